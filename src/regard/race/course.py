"""A longer course: several sentences of the phrasebook as one, so that length can tell families apart.

The grammar's sentences have 13 words at most, which one vector can hold. Joined by a full stop they have three times
as many and more, and keep their gold links.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random

from regard.data.phrasebook import Phrase, phrases
from regard.files import write_whole
from regard.race.entrants import Contender
from regard.recipe import PhrasebookCorpus, Recipe, TextCorpus

STOP = "."
LINKS = ".links"
"""What is added to a source's file name for the file of its gold links."""


def lengthened(contenders: list[Contender], most: int, folder: Path) -> list[Contender]:
    """The same contenders on sentences of one to `most` phrases, written into a folder once."""
    data = contenders[0].recipe.data
    corpora = [*data.train, *(each for each in (data.valid, data.test) if each is not None)]
    if not all(isinstance(each, PhrasebookCorpus) and not each.tag for each in corpora):
        raise ValueError("only the phrasebook's sentences can be joined; leave --join out for other text")
    seed = contenders[0].recipe.seed
    made = [_written(each, most, seed, folder) for each in corpora if isinstance(each, PhrasebookCorpus)]
    rest = iter(made[len(data.train) :])
    told = {
        "train": tuple(made[: len(data.train)]),
        "valid": next(rest) if data.valid is not None else None,
        "test": next(rest) if data.test is not None else None,
    }
    return [Contender(each.name, _on(each.recipe, told)) for each in contenders]


def _on(recipe: Recipe, told: Mapping[str, object]) -> Recipe:
    return recipe.model_copy(update={"data": recipe.data.model_copy(update=told)})


def _written(corpus: PhrasebookCorpus, most: int, seed: int, folder: Path) -> TextCorpus:
    """A corpus as two files and a third with its links; what is there already is used."""
    stem = folder / f"{corpus.split}-{corpus.pairs}-{seed}-{most}"
    source, target = stem.with_suffix(".en"), stem.with_suffix(f".{corpus.to}")
    links = Path(f"{source}{LINKS}")
    if not links.is_file():  # the last one written
        rows = list(_joined(corpus, most, seed))
        for path, lines in zip((source, target, links), zip(*rows, strict=True), strict=True):
            write_whole(path, "".join(f"{line}\n" for line in lines).encode())
    return TextCorpus(source=str(source.resolve()), target=str(target.resolve()))


def _joined(corpus: PhrasebookCorpus, most: int, seed: int) -> Iterator[tuple[str, str, str]]:
    """Lines of one to so many phrases each, as many lines as there were phrases; every phrase is used."""
    drawn = list(phrases(corpus.to, corpus.split, corpus.pairs, seed))
    draw = Random(f"{corpus.split} {seed} {most}")
    for first in drawn:
        rest = draw.sample(drawn, min(draw.randrange(most), len(drawn)))
        yield _one([first, *rest])


def _one(parts: list[Phrase]) -> tuple[str, str, str]:
    """Phrases as one pair of lines, and its links in the Pharaoh format: `-` sure, `p` possible."""
    links, source, target = [], 0, 0
    for number, phrase in enumerate(parts):
        if number:
            links.append(f"{source - 1}-{target - 1}")
        links += [
            f"{source + each.source}{'-' if each.sure else 'p'}{target + each.target}" for each in phrase.alignment
        ]
        source += len(phrase.source.split()) + 1
        target += len(phrase.target.split()) + 1
    between = f" {STOP} "
    return between.join(each.source for each in parts), between.join(each.target for each in parts), " ".join(links)
