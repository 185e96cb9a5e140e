"""A recipe to all that training reads: its vocabulary, and a store for each of its corpora.

Both are kept in the cache under what they are made of, so a second run of the same recipe finds them there. A run's
folder gets its own copy of the vocabulary, because a model is nothing without it.
"""

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.data.build import build_store, identity
from regard.data.cache import building, cache_folder, lock_of, locked, room_in, sweep
from regard.data.corpus import read_chunks
from regard.data.store import Store
from regard.files import write_whole
from regard.names import RECIPE, TOKENIZER
from regard.recipe import Corpus, Recipe, dump
from regard.text import Tokenizers

Watch = Callable[[str, int], None]
"""Told the name of a task and how many pairs it has dealt with."""


@dataclass(frozen=True)
class Prepared:
    """What a recipe's run starts from."""

    run: Path
    """The run's folder, with `recipe.toml` and `tokenizer/` in it."""
    tokenizers: Tokenizers
    corpora: tuple[Corpus, ...]
    """The training corpora, in the recipe's order."""
    stores: tuple[Store, ...]
    """The store of each."""

    def summary(self) -> dict[str, Any]:
        """What was made, as JSON holds it."""
        return {
            "run": str(self.run),
            "vocabulary": {
                "kind": self.tokenizers.source.settings.kind,
                "joint": self.tokenizers.joint,
                "source": len(self.tokenizers.source),
                "target": len(self.tokenizers.target),
            },
            "corpora": [
                {
                    "corpus": corpus.model_dump(),
                    "source_tokens": int(store.source.offsets[-1]),
                    "target_tokens": int(store.target.offsets[-1]),
                    "longest": store.longest,
                    "filters": store.report.model_dump(),
                    "store": str(store.folder),
                }
                for corpus, store in zip(self.corpora, self.stores, strict=True)
            ],
        }

    def __str__(self) -> str:
        """What was made, as a person reads it."""
        source, target = self.tokenizers.source, self.tokenizers.target
        sizes = (
            f"{len(source):,} pieces, joint" if self.tokenizers.joint else f"{len(source):,} and {len(target):,} pieces"
        )
        parts = [f"vocabulary  {source.settings.kind}, {sizes}, in {self.run / 'tokenizer'}"]
        for corpus, store in zip(self.corpora, self.stores, strict=True):
            sides = zip(("source", "target"), (store.source, store.target), strict=True)
            tokens = "; ".join(
                f"{side.offsets[-1]:,} {name} tokens, {side.offsets[-1] / len(store):.1f} a line, up to {side.longest}"
                for name, side in sides
            )
            parts.append(f"{_name(corpus)}\n{tokens}\n{store.report}")
        return "\n\n".join(parts)


def prepare(recipe: Recipe, run: Path, watch: Watch | None = None, workers: int | None = None) -> Prepared:
    """Learn a recipe's vocabulary, store its corpora and lay out its run's folder; what is there already is used."""
    prepared = gather(recipe, run, watch, workers)
    lay_out(recipe, prepared)
    return prepared


def gather(
    recipe: Recipe,
    run: Path,
    watch: Watch | None = None,
    workers: int | None = None,
    tokenizers: Tokenizers | None = None,
) -> Prepared:
    """The same without a word in the run's folder; with `tokenizers` given, no vocabulary is learnt."""
    watch = watch or (lambda task, pairs: None)
    tokenizers = tokenizers or _vocabulary(recipe, cache_folder(), watch)
    stores = tuple(_store(recipe, number, tokenizers, watch, workers) for number in range(len(recipe.data.train)))
    return Prepared(run, tokenizers, recipe.data.train, stores)


def lay_out(recipe: Recipe, prepared: Prepared) -> None:
    """Write recipe and tokenizer into the run's folder."""
    prepared.tokenizers.save(prepared.run / TOKENIZER)
    write_whole(prepared.run / RECIPE, dump(recipe).encode())


def _store(recipe: Recipe, number: int, tokenizers: Tokenizers, watch: Watch, workers: int | None) -> Store:
    """The store of one training corpus; its text is kept where subwords will be sampled from it."""
    corpus = recipe.data.train[number]
    task = f"storing {_name(corpus)}"
    return build_store(
        corpus,
        recipe.data,
        tokenizers,
        cache=cache_folder(),
        keep_text=recipe.text.sampling > 0,
        seed=recipe.seed,
        progress=lambda pairs: watch(task, pairs),
        workers=workers,
    )


def _vocabulary(recipe: Recipe, cache: Path, watch: Watch) -> Tokenizers:
    """The vocabulary of a recipe's training text: the one in the cache, or else a new one that is kept there."""
    parts = {
        "text": recipe.text.model_dump(exclude={"sampling"}),
        "corpora": [identity(corpus, Path(recipe.data.root), recipe.seed, cache) for corpus in recipe.data.train],
        "seed": recipe.seed,
    }
    name = hashlib.blake2b(json.dumps(parts, sort_keys=True).encode(), digest_size=16).hexdigest()
    folder = cache / "vocabulary" / name
    with room_in(folder.parent):
        folder.parent.mkdir(parents=True, exist_ok=True)
        sweep(folder.parent)
        with locked(lock_of(folder)):
            if not folder.exists():
                learnt = _learn(recipe, watch)
                with building(folder) as scratch:
                    learnt.save(scratch)
    return Tokenizers.load(folder)


def _learn(recipe: Recipe, watch: Watch) -> Tokenizers:
    """Learn the vocabulary from every training corpus, each read once."""
    text = recipe.text
    return Tokenizers.learn(
        _pairs(recipe, watch),
        kind=text.kind,
        size=text.size,
        joint=text.joint,
        normalise=text.normalise,
        lowercase=text.lowercase,
        bytes=text.bytes,
        symbols=text.symbols,
        seed=recipe.seed,
    )


def _pairs(recipe: Recipe, watch: Watch) -> Iterator[tuple[str, str]]:
    """The pairs of all training corpora, one corpus after the other."""
    done = 0
    for corpus in recipe.data.train:
        for chunk in read_chunks(corpus, Path(recipe.data.root), recipe.seed):
            yield from zip(chunk.source, chunk.target, strict=True)
            done += len(chunk)
            watch("learning the vocabulary", done)


def _name(corpus: Corpus) -> str:
    """A corpus as a person calls it."""
    return " and ".join(corpus.files) or "the phrasebook"
