"""Hypotheses to translations: ids to text, parts to lines, weights to links between words."""

from collections.abc import Sequence
from dataclasses import replace

from regard.decode import Hypothesis
from regard.text import Tokenizer, Tokenizers, word_of, words
from regard.translator.alignment import Link, Weights, links
from regard.translator.jobs import Job
from regard.translator.splitting import Span, join, leading_symbols
from regard.translator.translation import Translation, together

Ranked = Sequence[tuple[Hypothesis, Weights | None]]
"""Hypotheses of a job, the best first, each with where its tokens looked, if that is known."""


def assemble(line: str, parts: Sequence[tuple[Job, Ranked]], tokenizers: Tokenizers) -> Translation:
    """The translation of a line from what was found for its parts: the first of each, the second of each, and so on."""
    ranks = min(len(ranked) for _, ranked in parts)
    best = [_one(line, [(job, *ranked[rank]) for job, ranked in parts], tokenizers) for rank in range(ranks)]
    return replace(best[0], nbest=tuple(best))


def _one(line: str, parts: Sequence[tuple[Job, Hypothesis, Weights | None]], tokenizers: Tokenizers) -> Translation:
    """One translation of a line."""
    tokenizer = tokenizers.target
    made = [
        Translation(
            line,
            tokenizer.decode(found.tokens),
            found.score,
            found.logprob,
            tuple(tokenizer.piece(each) for each in found.tokens),
            found.token_logprobs,
        )
        for _, found, _ in parts
    ]
    whole = together(line, made)
    if any(weights is None for *_, weights in parts):
        return whole
    _, begins = join([each.text for each in made])
    source_spans, target_spans = words(line), words(whole.text)
    found_links: set[Link] = set()
    for (job, found, weights), begin in zip(parts, begins, strict=True):
        assert weights is not None
        source = [None] * job.symbols + _numbers(tokenizers.source, job.text, job.start, source_spans)
        target = [word_of(target_spans, token.start + begin) for token in tokenizer.tokens_of(found.tokens)]
        found_links.update(links(weights, source, target))
    return replace(whole, alignment=tuple(sorted(found_links)))


def read(line: str, tokenizer: Tokenizer, target: bool = False) -> tuple[list[int], list[int | None]]:
    """The ids of a given line, and the number of the word each belongs to; symbols before a source belong to none."""
    symbols, begin = ([], 0) if target else leading_symbols(line, tokenizer)
    text = line[begin:]
    return [*symbols, *tokenizer.encode(text)], [
        *([None] * len(symbols)),
        *_numbers(tokenizer, text, begin, words(line)),
    ]


def _numbers(tokenizer: Tokenizer, text: str, start: int, spans: list[Span]) -> list[int | None]:
    """The number of each token's word in the line that the text is a part of."""
    return [word_of(spans, token.start + start) for token in tokenizer.tokens(text)]
