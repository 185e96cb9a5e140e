"""How a line becomes token ids."""

from typing import Literal

from pydantic import Field, model_validator

from regard.recipe.section import Section, Sequence, Share


class Text(Section):
    """How a line becomes token ids."""

    kind: Literal["bpe", "unigram", "word", "char"] = "bpe"
    """Subwords by merges (Sennrich et al. 2016), by a unigram model (Kudo 2018), whole words, or characters."""
    size: int = Field(default=8000, ge=8, le=1_000_000)
    """Entries of the vocabulary, reserved symbols included."""
    joint: bool = True
    """One vocabulary for source and target; needed to tie their embeddings."""
    normalise: Literal["nfkc", "identity"] = "nfkc"
    """Unicode form the tokenizer sees: compatibility-composed, or the line untouched."""
    lowercase: bool = False
    """Lower-case every line; translations come out lower-cased too."""
    bytes: bool = True
    """Spell unseen characters in bytes instead of `<unk>`."""
    symbols: Sequence[str] = ()
    """Symbols that are always one token, such as `<2de>`."""
    sampling: Share = 0.0
    """While training, cut words differently each time: BPE-dropout (Provilkov et al. 2020, 0.1 is usual) for `bpe`,
    the smoothing of subword regularisation (Kudo 2018) for `unigram`; 0 is off."""

    @model_validator(mode="after")
    def _sampling_needs_subwords(self) -> "Text":
        if self.sampling and self.kind in ("word", "char"):
            raise ValueError(
                f"sampling cuts words into subwords, which kind = '{self.kind}' has not; use 'bpe' or 'unigram'"
            )
        return self
