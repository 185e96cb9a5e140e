"""Options of the captions of pictures."""

from dataclasses import dataclass
from typing import Any, Self

from regard.options.decoding import SAMPLING_NAMES, BeamOptions, GenerationOptions, SeedOptions
from regard.options.option import with_default


@dataclass(frozen=True)
class CaptionOptions(GenerationOptions):
    """Options of a caption: beam search, unless an option of sampling is given.

    >>> CaptionOptions().sample, CaptionOptions().override(temperature=0.7).sample
    (False, True)
    """

    sample: bool = with_default(SeedOptions, "sample", default=False)
    beam: int = with_default(BeamOptions, "beam", default=5)
    max_tokens: int = with_default(GenerationOptions, "max_tokens", default=60, help="Maximum tokens of a caption")
    min_tokens: int = with_default(GenerationOptions, "min_tokens", default=0, help="Minimum tokens of a caption")

    def override(self, **changes: Any) -> Self:
        """Return a copy with some options changed; a given option of sampling turns sampling on.

        Raises:
            ValueError: If there is no option of that name, a value is not allowed, or options of both search and
                sampling are given.
        """
        if any(changes.get(name) is not None for name in SAMPLING_NAMES) and not {"sample", "beam"} & changes.keys():
            changes["sample"] = True
        return super().override(**changes)
