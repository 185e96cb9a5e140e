"""Evaluate a trained contender of a race: scores, scores by source length, cost, alignment error rate, attention."""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from regard.bundle import load_scores
from regard.data.phrasebook import lectures
from regard.files import write_atomically
from regard.predict import Translator
from regard.predict.scoring import MAX_CHOICE_PAIRS, choose_alignment_head, read_pairs, score_pairs
from regard.race.contenders import LINKS
from regard.recipe import Corpus, PhrasebookCorpus, Recipe, TextCorpus, dump
from regard.run_files import RECIPE
from regard.score import Alignment, Score, alignment_error_rate, bleu, chrf, exact_match, read_pharaoh
from regard.tasks import load_translator
from regard.tasks.translation import attention_maps
from regard.train.events import Validated
from regard.train.report.log import TrainingLog, read_log

RESULT = "result.json"
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
class ValidationPoint:
    """A point of the learning curve."""

    tokens: int
    seconds: float
    loss: float
    """Validation loss in nats per token."""
    bleu: float | None


@dataclass(frozen=True)
class SentenceAttention:
    """Attention weights for the sentence that is drawn for every contender: a row for each target word."""

    source: list[str]
    target: list[str]
    weights: list[list[float]]
    sure: list[tuple[int, int]]
    possible: list[tuple[int, int]]


@dataclass(frozen=True)
class RaceResult:
    """The evaluation of one contender."""

    name: str
    kind: str
    seed: int
    device: str
    parameters: int
    steps: int
    tokens: int
    """Target tokens of training."""
    flops: float
    """FLOPs of training, forward and backward."""
    seconds: float
    """Time of training, including validation."""
    training_speed: float
    """Target tokens per second in training, median."""
    decoding_speed: float
    """Target tokens per second in decoding, with the recipe's search."""
    memory: float | None
    """Peak memory of training in bytes: of the GPU, or of the whole process on a CPU."""
    loss: float | None
    """Last validation loss, in nats per token."""
    scores: dict[str, float]
    """The scores named in `SCORES`, in percent; case-insensitive for a model of lower-cased text."""
    signatures: dict[str, str]
    aer: float | None
    """Alignment error rate, if the text has gold links and the model has attention."""
    groups: list[LengthGroup]
    points: list[ValidationPoint]
    attention: SentenceAttention | None = None
    recipe: str = field(default="", repr=False)
    """The recipe as TOML; a result of another recipe is not reused."""


def load_result(run: Path, recipe: Recipe) -> RaceResult | None:
    """Return the saved result of a run, or None if there is none of this recipe."""
    try:
        result = _from_json(json.loads((run / RESULT).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return result if result.recipe == dump(recipe) and result.scores.keys() == SCORES.keys() else None


def _from_json(table: dict[str, Any]) -> RaceResult:
    nested = {
        "groups": [LengthGroup(**group) for group in table["groups"]],
        "points": [ValidationPoint(**point) for point in table["points"]],
        "attention": None if table["attention"] is None else SentenceAttention(**table["attention"]),
    }
    return RaceResult(**{**table, **nested})


def evaluate_contender(name: str, recipe: Recipe, run: Path, device: str = "auto") -> RaceResult:
    """Translate and align the test text with a trained run, and save the result in the run."""
    corpus = recipe.data.test or recipe.data.valid
    assert corpus is not None, "check_fair ensures that there is text for evaluation"
    translator = load_translator(run, device)
    pairs, gold = linked_pairs(corpus, recipe)
    hypotheses, speed = _translate(translator, [source for source, _ in pairs])
    references = [target for _, target in pairs]
    lowercase = recipe.text.lowercase
    scores = {name: score(hypotheses, references, lowercase=lowercase) for name, score in SCORES.items()}
    result = RaceResult(
        name=name,
        seed=recipe.seed,
        **_training_figures(read_log(run), run),
        decoding_speed=speed,
        scores={name: score.value for name, score in scores.items()},
        signatures={score.name: score.signature for score in scores.values()},
        aer=_alignment_error_rate(translator, recipe, pairs, gold),
        groups=scores_by_length([source for source, _ in pairs], hypotheses, references, lowercase=lowercase),
        attention=_attention(translator, corpus, pairs, gold),
        recipe=dump(recipe),
    )
    write_atomically(run / RESULT, json.dumps(asdict(result), ensure_ascii=False, indent=1).encode())
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


def _training_figures(log: TrainingLog, run: Path) -> dict[str, Any]:
    """Return the fields of a result that the training log holds."""
    started, finished = log.started, log.finished
    if started is None or finished is None:
        raise ValueError(f"{run} is not trained to its end; repeat the command to resume")
    last = log.validated[-1] if log.validated else None
    progress = {reading.step: reading for reading in log.progress}
    return {
        "kind": started.recipe.model.kind,
        "device": started.device,
        "parameters": started.parameters,
        "steps": finished.step,
        "tokens": finished.tokens,
        "flops": started.flops_per_token * finished.tokens,
        "seconds": finished.seconds,
        "training_speed": median([reading.tokens_per_second for reading in log.progress] or [0.0]),
        "memory": load_scores(run).get("memory"),
        "loss": None if last is None else last.loss,
        "points": [
            ValidationPoint(reading.tokens, reading.seconds, validated.loss, validation_bleu(validated))
            for validated in log.validated
            if (reading := progress.get(validated.step)) is not None
        ],
    }


def validation_bleu(validated: Validated) -> float | None:
    """Return the BLEU of a validation, cased or not, or None if nothing was translated."""
    return next((score.value for score in validated.scores if score.name.startswith("BLEU")), None)


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


def is_trained(run: Path, recipe: Recipe) -> bool:
    """Return whether a folder holds a model of this recipe that was trained to the end of its budget."""
    path = run / RECIPE
    if not path.is_file() or path.read_text(encoding="utf-8") != dump(recipe) or not (run / "log.jsonl").is_file():
        return False
    finished = read_log(run).finished
    return finished is not None and finished.reason != "stopped"
