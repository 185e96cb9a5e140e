"""The recipes that take part in a race, their training budget, and the text they share."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from random import Random
from typing import Literal, cast

import torch

from regard.data.phrasebook import Phrase, phrases
from regard.data.prepare import ProgressCallback, prepare
from regard.data.rows import Lengths
from regard.files import write_atomically
from regard.recipe import PhrasebookCorpus, Recipe, TextCorpus, load, parse
from regard.tasks import Task, make_task
from regard.train.estimate import flops_per_unit, sample_lengths
from regard.train.schedule import CUDA_TOKENS

SELF_ATTENTION = 'size="tiny", inner=512, encoder_layers=2, decoder_layers=2, dropout=0.0'
FAMILIES: dict[str, tuple[str, ...]] = {
    "sutskever": ('model={kind="sutskever", size="small", dropout=0.0}', "train.rate=1e-2"),
    "bahdanau": ('model={kind="bahdanau", size="tiny", dropout=0.0}', "train.optimiser=adamw", "train.rate=5e-3"),
    "luong": ('model={kind="luong", size="tiny", dropout=0.0}', "train.rate=1e-2"),
    "convs2s": ('model={kind="convs2s", size="tiny", dropout=0.0}', "train.rate=1e-2"),
    "restricted": (f"model={{{SELF_ATTENTION}, window=3}}", "train.rate=8e-3"),
    "transformer": (f"model={{{SELF_ATTENTION}}}", "train.rate=8e-3"),
}
"""The model families of the lectures, oldest first, with the settings that differ between them. Learning rates were
chosen on validation text (docs/race.md)."""
CHAT_FAMILIES: dict[str, tuple[str, ...]] = {
    "sutskever": ('model={kind="sutskever", size="small", dropout=0.0}', "train.rate=1e-2"),
    "bahdanau": ('model={kind="bahdanau", size="tiny", dropout=0.0}', "train.optimiser=adamw", "train.rate=5e-3"),
    "luong": ('model={kind="luong", size="tiny", dropout=0.0}', "train.rate=1e-2"),
    "convs2s": ('model={kind="convs2s", size="tiny", dropout=0.0}', "train.rate=1e-2"),
    "transformer": (f"model={{{SELF_ATTENTION}}}", "train.rate=8e-3"),
    "hran": ('model={kind="hran", size="tiny", dropout=0.0}', "train.optimiser=adamw", "train.rate=5e-3"),
    "hierarchical": (f'model={{kind="hierarchical", {SELF_ATTENTION}}}', "train.rate=8e-3"),
    "dual-encoder": ("chat.objective=retrieve", f"model={{{SELF_ATTENTION}}}", "train.rate=4e-3"),
}
"""Chatbots: five families that read a history as one sequence, two that read its turns, and one that selects among the
replies of the training data."""

BUDGET_UNITS = ("tokens", "seconds", "flops")
FILL = 0.95  # part of a batch's token budget that sentences fill on average

FULL_STOP = "."
LINKS = ".links"
"""Suffix of the file with the gold links of a source file."""


@dataclass(frozen=True)
class Contender:
    """A recipe and the name it has in the race."""

    name: str
    recipe: Recipe


@dataclass(frozen=True)
class Budget:
    """An amount of target tokens, seconds or FLOPs that each contender may use for training."""

    unit: Literal["tokens", "seconds", "flops"]
    amount: float

    @classmethod
    def parse(cls, text: str) -> "Budget":
        """Return the budget written as `tokens=2e6`, `seconds=120` or `flops=1e13`."""
        unit, equals, amount = text.partition("=")
        try:
            value = float(amount.replace("_", ""))
        except ValueError:
            value = 0.0
        if unit not in BUDGET_UNITS or not equals or not 0 < value < float("inf"):
            raise ValueError(f"'{text}' is not a budget; write tokens=2e6, seconds=120 or flops=1e13")
        return cls(cast(Literal["tokens", "seconds", "flops"], unit), value)

    def __str__(self) -> str:
        """Return the budget in words, such as "2,000,000 target tokens"."""
        unit = {"tokens": "target tokens", "seconds": "seconds", "flops": "FLOPs"}[self.unit]
        return f"{self.amount:,.0f} {unit}" if self.amount < 1e9 else f"{self.amount:.2e} {unit}"

    def limit(self, recipe: Recipe, progress: ProgressCallback | None = None) -> Recipe:
        """Return the recipe with its training limited to this budget.

        Tokens and FLOPs are converted into steps: batches hold the same sentences for all recipes that share text,
        seed and `train.tokens`, so equal steps are equal target tokens.

        Raises:
            ValueError: If the number of steps cannot be known.
        """
        if self.unit == "seconds":
            return _with_limits(recipe, {"steps": None, "minutes": self.amount / 60})
        if recipe.train.tokens == "auto":
            raise ValueError(
                f"{recipe.name}: train.tokens=auto is resolved only when training starts; "
                "for a budget of tokens or flops, set a number such as train.tokens=4096"
            )
        task = make_task(recipe)
        prepared = prepare(recipe, task, Path(), progress)
        lengths = sample_lengths(prepared.stores)
        longest = max(int(counts.sum()) for counts in task.sequence_lengths(lengths))
        tokens = recipe.train.tokens or CUDA_TOKENS  # the same on every device, and for every contender
        tokens_per_step = FILL * tokens * recipe.train.accumulate * _target_tokens(task, lengths) / longest
        cost_per_token = 1.0
        if self.unit == "flops":
            with torch.device("meta"):  # FLOPs depend on shapes only, so no memory is needed
                model = task.build(prepared.fields.sizes)
            cost_per_token = flops_per_unit(task, model, prepared.stores)
        steps = max(1, round(self.amount / (cost_per_token * tokens_per_step)))
        return _with_limits(recipe, {"steps": steps, "minutes": None, "tokens": tokens})


def _target_tokens(task: Task, lengths: Mapping[str, Lengths]) -> int:
    """Return the target tokens of records; those of their replies also for a retriever, whose loss counts replies."""
    return task.units(lengths) if task.unit == "tokens" else int(lengths["reply"].sum()) + len(lengths["reply"])


def _with_limits(recipe: Recipe, limits: Mapping[str, object]) -> Recipe:
    """Return the recipe with other limits and without early stopping, which would make budgets unequal."""
    return recipe.model_copy(update={"train": recipe.train.model_copy(update={**limits, "patience": 0})})


def family_contenders(task: str = "translation", overrides: Sequence[str] = ()) -> list[Contender]:
    """Return the model families of the lectures: translators on the phrasebook, or chatbots on small talk."""
    text = files("regard.race").joinpath(f"{task}.toml").read_text(encoding="utf-8")
    families = {"translation": FAMILIES, "chat": CHAT_FAMILIES}[task]
    return [
        Contender(name, parse(text, [f"name={name}", *settings, *overrides], where=f"the race's recipe {name}"))
        for name, settings in families.items()
    ]


def named_contenders(paths: Sequence[str], overrides: Sequence[str] = ()) -> list[Contender]:
    """Load recipes from files; a number is added to a name that occurs again."""
    contenders: list[Contender] = []
    for path in paths:
        recipe = load(Path(path), overrides)
        namesakes = sum(contender.recipe.name == recipe.name for contender in contenders)
        contenders.append(Contender(f"{recipe.name}-{namesakes + 1}" if namesakes else recipe.name, recipe))
    return contenders


def with_seeds(contenders: Sequence[Contender], seeds: int) -> list[Contender]:
    """Return a copy of each contender for each of several seeds, starting from the recipe's seed."""
    if seeds == 1:
        return list(contenders)
    return [
        Contender(
            f"{contender.name}.{number + 1}",
            contender.recipe.model_copy(update={"seed": contender.recipe.seed + number}),
        )
        for contender in contenders
        for number in range(seeds)
    ]


def check_fair(contenders: Sequence[Contender]) -> None:
    """Raise a `ValueError` unless all contenders have the same text and vocabulary, and text to be evaluated on."""
    if len(contenders) < 2:
        raise ValueError("a race needs at least two recipes; name more, or none for the lectures' families")
    first = contenders[0]
    if first.recipe.data.test is None and first.recipe.data.valid is None:
        raise ValueError(f"{first.name}: data.test and data.valid are missing; a race needs one of them for evaluation")
    for contender in contenders[1:]:
        for section in ("data", "text"):
            settings, expected = (getattr(other.recipe, section).model_dump() for other in (contender, first))
            keys = [key for key in settings if settings[key] != expected[key]]
            if keys:
                raise ValueError(
                    f"{contender.name} and {first.name} differ in {section}.{keys[0]} "
                    f"({settings[keys[0]]!r} and {expected[keys[0]]!r}); all recipes of a race need the same text"
                )


def with_joined_phrases(contenders: list[Contender], max_phrases: int, folder: Path) -> list[Contender]:
    """Return the contenders with a corpus whose lines join one to `max_phrases` phrases of the phrasebook.

    Sentences of the grammar have at most 13 words, which a single vector can hold. Joined by full stops they are three
    times as long, so that the effect of length can be measured. They keep their gold links. The text is written into
    `folder` once.
    """
    data = contenders[0].recipe.data
    corpora = [*data.train, *(corpus for corpus in (data.valid, data.test) if corpus is not None)]
    if not all(isinstance(corpus, PhrasebookCorpus) and not corpus.tag for corpus in corpora):
        raise ValueError("only sentences of the phrasebook can be joined; leave out --join for other text")
    seed = contenders[0].recipe.seed
    written = [
        _write_corpus(corpus, max_phrases, seed, folder) for corpus in corpora if isinstance(corpus, PhrasebookCorpus)
    ]
    held_out = iter(written[len(data.train) :])
    settings = {
        "train": tuple(written[: len(data.train)]),
        "valid": next(held_out) if data.valid is not None else None,
        "test": next(held_out) if data.test is not None else None,
    }
    return [
        Contender(
            contender.name,
            contender.recipe.model_copy(update={"data": contender.recipe.data.model_copy(update=settings)}),
        )
        for contender in contenders
    ]


def _write_corpus(corpus: PhrasebookCorpus, max_phrases: int, seed: int, folder: Path) -> TextCorpus:
    """Write the joined lines of a corpus into three files (source, target, links), unless they exist."""
    stem = folder / f"{corpus.split}-{corpus.pairs}-{seed}-{max_phrases}"
    source, target = stem.with_suffix(".en"), stem.with_suffix(f".{corpus.to}")
    links = Path(f"{source}{LINKS}")
    if not links.is_file():  # the links are written last
        rows = list(_joined_lines(corpus, max_phrases, seed))
        for path, lines in zip((source, target, links), zip(*rows, strict=True), strict=True):
            write_atomically(path, "".join(f"{line}\n" for line in lines).encode())
    return TextCorpus(files={"source": str(source.resolve()), "target": str(target.resolve())})


def _joined_lines(corpus: PhrasebookCorpus, max_phrases: int, seed: int) -> Iterator[tuple[str, str, str]]:
    """Yield a line for each phrase of the corpus, followed by up to `max_phrases - 1` random phrases."""
    drawn = list(phrases(corpus.to, corpus.split, corpus.pairs, seed))
    random = Random(f"{corpus.split} {seed} {max_phrases}")
    for first in drawn:
        rest = random.sample(drawn, min(random.randrange(max_phrases), len(drawn)))
        yield _join([first, *rest])


def _join(parts: list[Phrase]) -> tuple[str, str, str]:
    """Join phrases into a source line, a target line, and links in Pharaoh format (`-` sure, `p` possible)."""
    links, source, target = [], 0, 0
    for number, phrase in enumerate(parts):
        if number:  # the full stops are linked to each other
            links.append(f"{source - 1}-{target - 1}")
        links += [
            f"{source + link.source}{'-' if link.sure else 'p'}{target + link.target}" for link in phrase.alignment
        ]
        source += len(phrase.source.split()) + 1
        target += len(phrase.target.split()) + 1
    separator = f" {FULL_STOP} "
    return separator.join(part.source for part in parts), separator.join(part.target for part in parts), " ".join(links)
