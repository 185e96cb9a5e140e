"""One run: every setting, with its default, its meaning and, where one exists, its paper.

The settings themselves stand by topic in `data.py`, `text.py`, `model.py`, `train.py` and `decode.py`. The classes are
frozen and strict: no key is ignored, no value is quietly turned into another type.
"""

from pydantic import Field, model_validator

from regard.recipe.data import Data
from regard.recipe.decode import Decode
from regard.recipe.model import Model, Transformer
from regard.recipe.section import Section
from regard.recipe.text import Text
from regard.recipe.train import Train


class Recipe(Section):
    """One run: its text, its model, how it learns and how it is searched."""

    name: str = Field(default="run", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100)
    """Name of the run; its folder is `runs/<name>`."""
    seed: int = Field(default=1, ge=0, lt=2**32)
    """Where everything random starts."""
    data: Data
    """Which text a run learns from, and which pairs of it."""
    text: Text = Text()
    """How a line becomes token ids."""
    model: Model = Transformer()
    """The model; `kind` picks the family."""
    train: Train = Train()
    """How a model learns."""
    decode: Decode = Decode()
    """How a translation is searched for."""

    @model_validator(mode="after")
    def _sections_fit_each_other(self) -> "Recipe":
        if self.model.tied in ("all", "embeddings", "outer") and not self.text.joint:
            raise ValueError(
                f"model.tied = '{self.model.tied}' shares the source's embedding, "
                "which needs text.joint = true; else say model.tied = 'decoder'"
            )
        tags = {corpus.tag for corpus in self.data.train if corpus.tag}
        missing = sorted(tags - set(self.text.symbols))
        if missing:
            raise ValueError(f"data.train uses the tags {missing}, which text.symbols does not list; add them there")
        return self
