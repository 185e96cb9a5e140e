"""Jobs to hypotheses: batches of like length, a search for each, and no line lost when one fails."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import torch
from torch import nn

from regard import decode
from regard.decode import Hypothesis, Wish
from regard.nn.ragged import Ragged
from regard.score import chrf
from regard.text import END, Tokenizer
from regard.translator.engine import Engine
from regard.translator.jobs import Job

Found = list[Hypothesis] | Exception
"""What became of a job: its hypotheses, the best first, or why there are none."""

ATTEMPTS = 8
"""Searches after which a phrase to be avoided that always comes back, cut differently each time, is a failure."""


def batches(lengths: Sequence[int], rows: int, budget: int) -> Iterator[list[int]]:
    """The places of sequences, the longest first, in batches whose padded tokens times `rows` stay in the budget."""
    batch: list[int] = []
    for at in sorted(range(len(lengths)), key=lambda at: -lengths[at]):
        if batch and lengths[batch[0]] * rows * (len(batch) + 1) > budget:
            yield batch
            batch = []
        batch.append(at)
    if batch:
        yield batch


def find(
    engine: Engine,
    jobs: Sequence[Job],
    options: decode.Options,
    device: torch.device,
    search: Callable[..., list[list[Hypothesis]]] = decode.search,
) -> list[list[Hypothesis]]:
    """Search for all jobs at once."""
    source = Ragged.from_list([[*job.ids, END] for job in jobs]).to(device)
    # A model that still learns must not be left with tensors that remember being made for inference only.
    with torch.no_grad(), torch.inference_mode(not isinstance(engine, nn.Module)):
        state = engine.start(source, options.rows)
        return search(engine, state, [job.wish for job in jobs], options, device)


def find_patiently(jobs: Sequence[Job], search: Callable[[Sequence[Job]], list[list[Hypothesis]]]) -> list[Found]:
    """Search for all jobs at once; where that fails, for each half, down to the one that cannot be searched for."""
    try:
        return [found or _unsatisfied(job) for job, found in zip(jobs, search(jobs), strict=True)]
    except Exception as error:
        if len(jobs) == 1:
            return [error]
    half = len(jobs) // 2
    return find_patiently(jobs[:half], search) + find_patiently(jobs[half:], search)


def find_avoiding(
    jobs: Sequence[Job], tokenizer: Tokenizer, search: Callable[[Sequence[Job]], list[Found]]
) -> list[Found]:
    """Search until no text has a phrase in it that is to be avoided.

    The search itself avoids the ids a phrase is usually cut into; where a text has it in other ids, these are avoided
    too, and the line is searched again.
    """
    current = list(jobs)
    found: list[Found] = search(current)
    for _ in range(ATTEMPTS):
        again = {}
        for at, (job, hypotheses) in enumerate(zip(current, found, strict=True)):
            if job.avoid and not isinstance(hypotheses, Exception):
                more = {ids for each in hypotheses for ids in _present(each, job, tokenizer)} - {*job.wish.avoid}
                if more:
                    again[at] = replace(job, wish=_avoiding(job.wish, more))
        if not again:
            return found
        for (at, job), hypotheses in zip(again.items(), search(list(again.values())), strict=True):
            current[at], found[at] = job, hypotheses
    return found


def by_risk(hypotheses: Sequence[Hypothesis], tokenizer: Tokenizer, wanted: int) -> list[Hypothesis]:
    """The samples whose text is most like that of all, by chrF, each with that as its score (Eikema & Aziz 2020)."""
    texts = [tokenizer.decode(each.tokens) for each in hypotheses]
    first = dict(zip(reversed(texts), reversed(hypotheses), strict=True))
    ranked = decode.minimum_bayes_risk(texts, lambda said, meant: chrf([said], [meant]).value)
    return [replace(first[text], score=value) for text, value in ranked[:wanted]]


def _avoiding(wish: Wish, more: set[tuple[int, ...]]) -> Wish:
    return replace(wish, avoid=(*wish.avoid, *sorted(more)))


def _present(hypothesis: Hypothesis, job: Job, tokenizer: Tokenizer) -> Iterator[tuple[int, ...]]:
    """The ids in which a text says a phrase to be avoided, after what it was made to begin with."""
    text = tokenizer.decode(hypothesis.tokens)
    for phrase in job.avoid:
        for match in re.finditer(rf"(?<!\w){re.escape(phrase)}(?!\w)", text):
            places = enumerate(tokenizer.tokens_of(hypothesis.tokens))
            inside = [at for at, token in places if token.start < match.end() and token.end > match.start()]
            if inside and inside[-1] >= len(job.wish.prefix):
                yield hypothesis.tokens[inside[0] : inside[-1] + 1]


def _unsatisfied(job: Job) -> Exception:
    return ValueError(
        f"no translation satisfies all that was asked ({len(job.wish.phrases)} phrases to have, {len(job.wish.avoid)} "
        "to avoid); ask for less, or allow more tokens"
    )
