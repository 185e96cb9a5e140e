"""Evaluate a trained translator of a race: scores, scores by source length, cost, alignment error rate, attention."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Self

import numpy as np

from regard.data.phrasebook import lectures
from regard.predict import Translator
from regard.predict.scoring import MAX_CHOICE_PAIRS, choose_alignment_head, read_pairs, score_pairs
from regard.race.contenders import LINKS
from regard.race.result import RaceResult, training_figures
from regard.recipe import Corpus, PhrasebookCorpus, Recipe, TextCorpus, dump
from regard.score import Alignment, Score, alignment_error_rate, bleu, chrf, exact_match, read_pharaoh
from regard.tasks import load_translator
from regard.tasks.translation import attention_maps

LENGTH_GROUPS = 6  # maximum number of groups of similar source length
ALIGNED_PAIRS = 500  # pairs whose links are compared with gold links
WARMUP_SENTENCES = 16  # translated before the decoding speed is measured
LECTURE_SENTENCE = 4  # the lecture sentence whose attention is drawn: the animal that was too tired
SCORES: dict[str, Callable[..., Score]] = {"BLEU": bleu, "chrF": chrf, "exact match": exact_match}
"""The scores of a race by name."""
Pairs = list[tuple[str, str]]


@dataclass(frozen=True)
class LengthGroup:
    """Sentences of similar source length, and the scores of their translations."""

    min_words: int
    max_words: int
    sentences: int
    mean_words: float
    bleu: float
    chrf: float
    exact: float


@dataclass(frozen=True)
class SentenceAttention:
    """Attention weights for the sentence that is drawn for every contender: a row for each target word."""

    source: list[str]
    target: list[str]
    weights: list[list[float]]
    sure: list[tuple[int, int]]
    possible: list[tuple[int, int]]


@dataclass(frozen=True, kw_only=True)
class TranslationResult(RaceResult):
    """The evaluation of a translator. Its scores are those named in `SCORES`, in percent."""

    decoding_speed: float
    """Target tokens per second in decoding, with the recipe's search."""
    aer: float | None
    """Alignment error rate, if the text has gold links and the model has attention."""
    groups: list[LengthGroup]
    attention: SentenceAttention | None = None

    def score(self, name: str) -> float | None:
        """Return a score by name, also the alignment error rate; None if this contender has none of that name."""
        return self.aer if name == "AER" else super().score(name)

    @classmethod
    def from_json(cls, table: dict[str, Any]) -> Self:
        """Return the result that a JSON object describes."""
        if table["scores"].keys() != SCORES.keys():
            raise ValueError(f"the result has other scores than {', '.join(SCORES)}")
        attention = table["attention"]
        nested = {
            "groups": [LengthGroup(**group) for group in table["groups"]],
            "attention": None if attention is None else SentenceAttention(**attention),
        }
        return super().from_json({**table, **nested})


def evaluate_translator(name: str, recipe: Recipe, run: Path, device: str = "auto") -> TranslationResult:
    """Translate and align the test text with a trained run, and save the result in the run."""
    corpus = recipe.data.test or recipe.data.valid
    assert corpus is not None, "check_fair ensures that there is text for evaluation"
    translator = load_translator(run, device)
    pairs, gold = linked_pairs(corpus, recipe)
    hypotheses, speed = _translate(translator, [source for source, _ in pairs])
    references = [target for _, target in pairs]
    lowercase = recipe.text.lowercase
    scores = {name: score(hypotheses, references, lowercase=lowercase) for name, score in SCORES.items()}
    result = TranslationResult(
        name=name,
        seed=recipe.seed,
        **training_figures(run),
        decoding_speed=speed,
        scores={name: score.value for name, score in scores.items()},
        signatures={score.name: score.signature for score in scores.values()},
        aer=_alignment_error_rate(translator, recipe, pairs, gold),
        groups=scores_by_length([source for source, _ in pairs], hypotheses, references, lowercase=lowercase),
        attention=_attention(translator, corpus, pairs, gold),
        recipe=dump(recipe),
    )
    result.save(run)
    return result


def linked_pairs(corpus: Corpus, recipe: Recipe, max_pairs: int | None = None) -> tuple[Pairs, list[Alignment] | None]:
    """Return the pairs of a corpus, and their gold links if the phrasebook or a file next to the source has them."""
    pairs, gold = read_pairs(corpus, recipe, max_pairs)
    if isinstance(corpus, TextCorpus):
        links = Path(recipe.data.root, f"{corpus.files['source']}{LINKS}")
        if links.is_file():
            gold = list(islice(read_pharaoh(links), len(pairs)))
    return pairs, gold


def _translate(translator: Translator, lines: Sequence[str]) -> tuple[list[str], float]:
    """Return the translations, and the decoding speed in target tokens per second."""
    translator.translate(lines[:WARMUP_SENTENCES])
    start = time.perf_counter()
    hypotheses = [translation.text for translation in translator.translate(lines)]
    seconds = time.perf_counter() - start
    tokens = sum(len(translator.tokenizers["target"].encode(line)) + 1 for line in hypotheses)
    return hypotheses, tokens / max(seconds, 1e-9)


def scores_by_length(
    sources: Sequence[str],
    hypotheses: Sequence[str],
    references: Sequence[str],
    max_groups: int = LENGTH_GROUPS,
    lowercase: bool = False,
) -> list[LengthGroup]:
    """Return scores of groups of similar source length and about equal size, shortest first."""
    lengths = [len(line.split()) for line in sources]
    ordered = sorted(lengths)
    edges = sorted({ordered[len(ordered) * part // max_groups] for part in range(max_groups)})
    groups = []
    for number, least in enumerate(edges):
        end = edges[number + 1] if number + 1 < len(edges) else ordered[-1] + 1
        members = [index for index, length in enumerate(lengths) if least <= length < end]
        group_hypotheses, group_references = ([lines[index] for index in members] for lines in (hypotheses, references))
        mean = sum(lengths[index] for index in members) / len(members)
        scores = [score(group_hypotheses, group_references, lowercase=lowercase).value for score in SCORES.values()]
        groups.append(LengthGroup(least, max(lengths[index] for index in members), len(members), mean, *scores))
    return groups


def _alignment_error_rate(
    translator: Translator, recipe: Recipe, pairs: Pairs, gold: Sequence[Alignment] | None
) -> float | None:
    """Return the AER of links read from the attention that aligns validation text best, or None without links."""
    if gold is None or translator.alignment_head is None:
        return None
    if recipe.data.valid is not None:
        translator.alignment_head = choose_alignment_head(
            translator, *linked_pairs(recipe.data.valid, recipe, MAX_CHOICE_PAIRS)
        )
    alignments = [scored.alignment or () for scored in score_pairs(translator, pairs[:ALIGNED_PAIRS], alignments=True)]
    return alignment_error_rate(alignments, gold[:ALIGNED_PAIRS]).aer


def _attention(
    translator: Translator, corpus: Corpus, pairs: Pairs, gold: Sequence[Alignment] | None
) -> SentenceAttention | None:
    """Return the attention for a sentence that is the same for all contenders, with teacher forcing."""
    index = _sentence_to_draw(pairs)
    pair, links = pairs[index], gold[index] if gold else None
    if isinstance(corpus, PhrasebookCorpus) and not corpus.tag:
        phrase = lectures(corpus.to)[LECTURE_SENTENCE]
        pair = (phrase.source, phrase.target)
        every = [((link.source, link.target), link.sure) for link in phrase.alignment]
        links = Alignment(frozenset(link for link, sure in every if sure), frozenset(link for link, _ in every))
    maps = attention_maps(translator, [pair])
    if not maps:
        return None
    weights = np.asarray(maps[0].weights_QK, dtype=np.float64).round(4).tolist()
    sure, possible = (sorted(links.sure), sorted(links.possible)) if links else ([], [])
    return SentenceAttention(list(maps[0].keys), list(maps[0].queries), weights, sure, possible)


def _sentence_to_draw(pairs: Sequence[tuple[str, str]]) -> int:
    """Return the index of the first pair whose source length is the third quartile."""
    lengths = [len(source.split()) for source, _ in pairs]
    return lengths.index(sorted(lengths)[3 * len(lengths) // 4])
