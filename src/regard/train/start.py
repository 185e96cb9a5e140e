"""A run begun from another's weights: with its vocabulary, some symbols more, or a new one."""

from pathlib import Path

import torch
from torch import Tensor

from regard.bundle import load_bundle
from regard.data.prepare import Prepared
from regard.models.seq2seq import Seq2Seq
from regard.names import RECIPE
from regard.nn.embedding import Embedding, Output
from regard.recipe import Recipe, load
from regard.text import Tokenizer, Tokenizers
from regard.train.checkpoint import exists
from regard.train.job import new_model

_MAY_DIFFER = {"size", "dropout", "attention_dropout", "activation_dropout", "word_dropout"}
"""Settings of a model that have no weights."""


def adopted(recipe: Recipe, run: Path | None = None) -> Recipe:
    """The recipe as it will be run: with the text settings of the run it begins from, if it takes its vocabulary.

    A `run` that has begun already has taken all it wants, and no longer needs the other one.
    """
    settings = recipe.train
    home = _home(settings.start, run)
    if home == settings.start != "":
        _check_model(recipe, _recipe_of(home))
    if not settings.start or settings.vocabulary == "new":
        return recipe
    before = _recipe_of(home)
    symbols = tuple(dict.fromkeys((*before.text.symbols, *recipe.text.symbols)))
    text = before.text.model_copy(update={"symbols": symbols, "sampling": recipe.text.sampling})
    return recipe.model_copy(update={"text": text})


def given_tokenizers(recipe: Recipe, run: Path | None = None) -> Tokenizers | None:
    """The vocabulary a recipe takes over, with the symbols it adds; none where it learns its own."""
    settings = recipe.train
    if not settings.start or settings.vocabulary == "new":
        return None
    return Tokenizers.load(_home(settings.start, run)).extended(recipe.text.symbols)


def begun(recipe: Recipe, prepared: Prepared) -> tuple[Seq2Seq, str]:
    """The recipe's model with the weights of the run it begins from, and how much of them it took."""
    bundle = load_bundle(recipe.train.start)
    model = new_model(recipe, prepared)
    old = dict(bundle.model.named_parameters())
    # Where vocabularies are two, the encoder's vectors are of source pieces, the others of target pieces.
    rows = {
        side: _matches(getattr(prepared.tokenizers, side), getattr(bundle.tokenizers, side))
        for side in ("source", "target")
    }
    words = _vocabularies(model)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name in words:
                new_rows, old_rows = rows["source" if name.startswith("encoder") else "target"]
                weight[new_rows] = old[name][old_rows]
            else:
                weight.copy_(old[name])
    known, size = len(rows["target"][0]), len(prepared.tokenizers.target)
    return model, f"begun from {recipe.train.start}; {known} of {size} target pieces keep their vectors"


def _home(start: str, run: Path | None) -> str:
    """Where the vocabulary is: in the run itself once it has a checkpoint, else where it begins from."""
    return str(run) if run is not None and exists(run) else start


def _recipe_of(start: str) -> Recipe:
    """The recipe of the run to begin from."""
    path = Path(start) / RECIPE
    if not path.is_file():
        raise ValueError(f"train.start = '{start}' is not a run: there is no {path}; name the folder of a trained run")
    return load(path)


def _check_model(recipe: Recipe, before: Recipe) -> None:
    """Refuse a model whose weights have other shapes, naming what differs."""
    mine, theirs = recipe.model.model_dump(), before.model.model_dump()
    differ = [key for key in sorted(mine | theirs) if mine.get(key) != theirs.get(key) and key not in _MAY_DIFFER]
    if differ:
        said = ", ".join(f"model.{key} is {theirs.get(key)!r} there and {mine.get(key)!r} here" for key in differ)
        raise ValueError(f"train.start = '{recipe.train.start}' has another model: {said}; give this recipe the same")


def _vocabularies(model: Seq2Seq) -> set[str]:
    """The weights that have a row for each piece."""
    return {
        f"{prefix}.{name}"
        for prefix, module in model.named_modules()
        if isinstance(module, Embedding | Output)
        for name, _ in module.named_parameters(recurse=False)
    }


def _matches(new: Tokenizer, old: Tokenizer) -> tuple[Tensor, Tensor]:
    """Ids of the pieces both know, in one and in the other."""
    before = {old.piece(number): number for number in range(len(old))}
    both = [(number, before[piece]) for number in range(len(new)) if (piece := new.piece(number)) in before]
    ids = torch.tensor(both).T
    return ids[0], ids[1]
