"""A trained contender in, what a race knows of it out: scores, by length too, its cost, its alignments, its maps."""

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
from regard.files import write_whole
from regard.names import RECIPE
from regard.race.course import LINKS
from regard.recipe import Corpus, PhrasebookCorpus, Recipe, TextCorpus, dump
from regard.score import Alignment, Score, alignment_error_rate, bleu, chrf, exact_match, read_pharaoh
from regard.train.events import Validated
from regard.train.journal import Log, read
from regard.train.maps import attention_maps
from regard.translator import Translator, load
from regard.translator.given import ENOUGH, choose_look, pairs_of, weigh

RESULT = "judged.json"
GROUPS = 6  # of like length at most
ALIGNED = 500  # pairs whose links are compared with gold ones
WARM = 16  # sentences translated before the clock starts
DRAWN = 4  # of the lectures' sentences: the animal that was too tired
SCORES: dict[str, Callable[..., Score]] = {"BLEU": bleu, "chrF": chrf, "exact match": exact_match}
"""The scores of a race by the names they go by in it, with or without regard of case."""
Pairs = list[tuple[str, str]]


@dataclass(frozen=True)
class Group:
    """Sentences of like length, and how well they were translated."""

    least: int
    """Fewest source words."""
    most: int
    sentences: int
    mean: float
    """Source words on average."""
    bleu: float
    chrf: float
    exact: float


@dataclass(frozen=True)
class Point:
    """How good a contender was at some moment of its training."""

    tokens: int
    seconds: float
    loss: float
    """Validation loss, nats a token."""
    bleu: float | None


@dataclass(frozen=True)
class Map:
    """Whom each word of the common sentence looked at: a row for each target word."""

    source: list[str]
    target: list[str]
    weights: list[list[float]]
    sure: list[tuple[int, int]]
    possible: list[tuple[int, int]]


@dataclass(frozen=True)
class Result:
    """What a race knows of one contender; everything a report shows of it."""

    name: str
    kind: str
    seed: int
    device: str
    parameters: int
    steps: int
    tokens: int
    """Target tokens learnt from."""
    flops: float
    """Operations of training, forward and backward."""
    seconds: float
    """Time of training, validation included."""
    training_speed: float
    """Target tokens a second while learning, the median."""
    decoding_speed: float
    """Target tokens a second while translating, searched as the recipe says."""
    memory: float | None
    """Bytes at the worst moment of training: of the device, or of the whole process on a CPU."""
    loss: float | None
    """Validation loss of the last reading, nats a token."""
    scores: dict[str, float]
    """What `SCORES` names, in percent; of a model that writes lower case, regardless of case."""
    signatures: dict[str, str]
    aer: float | None
    """Alignment error rate, where there are gold links and weights to read."""
    groups: list[Group]
    points: list[Point]
    map: Map | None = None
    recipe: str = field(default="", repr=False)
    """The recipe it was trained by, as TOML; a result of another one is none."""


def load_result(run: Path, recipe: Recipe) -> Result | None:
    """What was found before, if it was by this recipe."""
    try:
        table = json.loads((run / RESULT).read_text(encoding="utf-8"))
        result = from_json(table)
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return result if result.recipe == dump(recipe) and result.scores.keys() == SCORES.keys() else None


def from_json(table: dict[str, Any]) -> Result:
    """A result as JSON holds it."""
    told = {**table, "groups": [Group(**each) for each in table["groups"]]}
    told["points"] = [Point(**each) for each in table["points"]]
    told["map"] = None if table["map"] is None else Map(**table["map"])
    return Result(**told)


def judge(name: str, recipe: Recipe, run: Path, device: str = "auto") -> Result:
    """Translate and align the test text, and keep what was found beside the model."""
    corpus = recipe.data.test or recipe.data.valid
    assert corpus is not None, "a race without text to judge by was refused before"
    translator = load(run, device)
    pairs, gold = linked_pairs(corpus, recipe)
    said, speed = _translated(translator, [source for source, _ in pairs])
    meant = [target for _, target in pairs]
    lower = recipe.text.lowercase
    scores = {name: make(said, meant, lowercase=lower) for name, make in SCORES.items()}
    result = Result(
        name=name,
        seed=recipe.seed,
        **_training(read(run), run),
        decoding_speed=speed,
        scores={name: each.value for name, each in scores.items()},
        signatures={each.name: each.signature for each in scores.values()},
        aer=_error_rate(translator, recipe, pairs, gold),
        groups=by_length([source for source, _ in pairs], said, meant, lowercase=lower),
        map=_map(translator, corpus, pairs, gold),
        recipe=dump(recipe),
    )
    write_whole(run / RESULT, json.dumps(asdict(result), ensure_ascii=False, indent=1).encode())
    return result


def linked_pairs(corpus: Corpus, recipe: Recipe, most: int | None = None) -> tuple[Pairs, list[Alignment] | None]:
    """The pairs of a corpus, with gold links where the grammar or a file beside the source has them."""
    pairs, gold = pairs_of(corpus, recipe, most)
    if isinstance(corpus, TextCorpus):
        links = Path(recipe.data.root, f"{corpus.source}{LINKS}")
        if links.is_file():
            gold = list(islice(read_pharaoh(links), len(pairs)))
    return pairs, gold


def _translated(translator: Translator, lines: Sequence[str]) -> tuple[list[str], float]:
    """The translations, and how many target tokens a second they took."""
    translator.translate(lines[:WARM])
    begin = time.perf_counter()
    said = [each.text for each in translator.translate(lines)]
    spent = time.perf_counter() - begin
    tokens = sum(len(translator.tokenizers.target.encode(line)) + 1 for line in said)
    return said, tokens / max(spent, 1e-9)


def _training(log: Log, run: Path) -> dict[str, Any]:
    """What the log says of a training."""
    started, finished = log.started, log.finished
    if started is None or finished is None:
        raise ValueError(f"{run} was not trained to its end; give the same command again")
    last = log.validated[-1] if log.validated else None
    return {
        "kind": started.recipe.model.kind,
        "device": started.device,
        "parameters": started.parameters,
        "steps": finished.step,
        "tokens": finished.tokens,
        "flops": started.flops_per_token * finished.tokens,
        "seconds": finished.seconds,
        "training_speed": median([each.tokens_per_second for each in log.progress] or [0.0]),
        "memory": load_scores(run).get("memory"),
        "loss": None if last is None else last.loss,
        "points": _points(log),
    }


def _points(log: Log) -> list[Point]:
    """Every validation, at the tokens and seconds it came."""
    readings = {each.step: each for each in log.progress}
    found = []
    for each in log.validated:
        reading = readings.get(each.step)
        if reading is not None:
            found.append(Point(reading.tokens, reading.seconds, each.loss, validated_bleu(each)))
    return found


def validated_bleu(validated: Validated) -> float | None:
    """BLEU of a validation, whatever its case; none where nothing was translated."""
    return next((score.value for score in validated.scores if score.name.startswith("BLEU")), None)


def by_length(
    sources: Sequence[str], said: Sequence[str], meant: Sequence[str], most: int = GROUPS, lowercase: bool = False
) -> list[Group]:
    """Scores of groups of like length, shortest first, each with about as many sentences."""
    lengths = [len(line.split()) for line in sources]
    ordered = sorted(lengths)
    edges = sorted({ordered[len(ordered) * part // most] for part in range(most)})
    found = []
    for number, least in enumerate(edges):
        below = edges[number + 1] if number + 1 < len(edges) else ordered[-1] + 1
        members = [at for at, length in enumerate(lengths) if least <= length < below]
        ours, theirs = [said[at] for at in members], [meant[at] for at in members]
        mean = sum(lengths[at] for at in members) / len(members)
        scores = [make(ours, theirs, lowercase=lowercase).value for make in SCORES.values()]
        found.append(Group(least, max(lengths[at] for at in members), len(members), mean, *scores))
    return found


def _error_rate(translator: Translator, recipe: Recipe, pairs: Pairs, gold: Sequence[Alignment] | None) -> float | None:
    """The error rate of links read where they are best on validation text; none where there is nothing to read."""
    if gold is None or translator.aligned_by is None:
        return None
    if recipe.data.valid is not None:
        translator.aligned_by = choose_look(translator, *linked_pairs(recipe.data.valid, recipe, ENOUGH))
    found = [given.alignment or () for given in weigh(translator, pairs[:ALIGNED], alignments=True)]
    return alignment_error_rate(found, gold[:ALIGNED]).aer


def _map(translator: Translator, corpus: Corpus, pairs: Pairs, gold: Sequence[Alignment] | None) -> Map | None:
    """Where a model looks while it is told the sentence everyone is asked for."""
    at = common_sentence(pairs)
    pair, links = pairs[at], gold[at] if gold else None
    if isinstance(corpus, PhrasebookCorpus) and not corpus.tag:
        phrase = lectures(corpus.to)[DRAWN]
        pair = (phrase.source, phrase.target)
        every = [((link.source, link.target), link.sure) for link in phrase.alignment]
        links = Alignment(frozenset(link for link, sure in every if sure), frozenset(link for link, _ in every))
    maps = attention_maps(translator, [pair])
    if not maps:
        return None
    weights = np.asarray(maps[0].weights_TS, dtype=np.float64).round(4).tolist()
    sure, possible = (sorted(links.sure), sorted(links.possible)) if links else ([], [])
    return Map(list(maps[0].source), list(maps[0].target), weights, sure, possible)


def common_sentence(pairs: Sequence[tuple[str, str]]) -> int:
    """A pair to look at: the first whose source is as long as three in four are at most."""
    lengths = [len(source.split()) for source, _ in pairs]
    return lengths.index(sorted(lengths)[3 * len(lengths) // 4])


def trained(run: Path, recipe: Recipe) -> bool:
    """Whether a folder holds this recipe's model, trained to the end of its budget."""
    path = run / RECIPE
    if not path.is_file() or path.read_text(encoding="utf-8") != dump(recipe) or not (run / "log.jsonl").is_file():
        return False
    finished = read(run).finished
    return finished is not None and finished.reason != "stopped"
