"""Settings of pictures: how they are read, and the corpora that have them."""

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field

from regard.recipe.section import BaseCorpus, Positive, Section

CAPTIONS, LABELLED = ("image", "captions"), ("image", "label")
"""The fields of records with pictures, in the order of columns in a file."""


class ImageSettings(Section):
    """Pictures: the size that all are brought to."""

    size: Annotated[int, Field(ge=1, le=1024)] = 64
    """Height and width in pixels to which every picture is scaled."""
    channels: Literal[1, 3] = 3
    """3 for colours; 1 for shades of grey, to which coloured pictures are converted."""
    fit: Literal["squash", "crop", "pad"] = "squash"
    """How a picture becomes square: `squash` scales height and width separately, `crop` cuts the ends of the longer
    side off, `pad` adds white bars."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width, the order of a model's input."""
        return self.channels, self.size, self.size


class ImagesCorpus(BaseCorpus):
    """Pictures with captions or labels: a list of image files, or an archive with many pictures.

    A list is a TSV file with the path of a picture and its captions, or its label, on each line; or a JSONL file with
    the keys `image` and `captions` or `label`. A name that ends in `.npz` is an archive of numpy arrays: the encoded
    files end to end (`blob`, `offset`) or pixels (`x`), and labels (`y`).
    """

    kind: Literal["images"] = "images"
    """Pictures with captions or labels."""
    path: str
    """The file. Paths of pictures in it start from `data.root`."""
    captions: str = ""
    """Captions of the pictures of an archive: a TSV file with a name and then captions, on one line for each picture
    in order. `.gz` files are decompressed."""

    @property
    def paths(self) -> tuple[str, ...]:
        """The list or archive, and the captions of an archive."""
        return (self.path, self.captions) if self.captions else (self.path,)

    @property
    def is_packed(self) -> bool:
        """Whether the corpus is an archive."""
        return self.path.endswith(".npz")

    def check_fields(self, names: Sequence[str]) -> None:
        """Raise a ValueError unless the fields are pictures, and captions or a label."""
        _check_pictures(self.kind, names, CAPTIONS, LABELLED)
        if self.captions and not self.is_packed:
            raise ValueError(
                f".captions = '{self.captions}' belongs to an archive of pictures, but path = '{self.path}' is a list, "
                "which has the captions itself: remove the setting, or name an .npz file"
            )
        if self.is_packed and "captions" in names and not self.captions:
            raise ValueError(".captions is not set: name the file with the captions of the pictures in the archive")


class ScenesCorpus(BaseCorpus):
    """Generated pictures of shapes, each with the one caption that describes it; needs no file."""

    kind: Literal["scenes"] = "scenes"
    """Generated pictures of shapes, with captions."""
    language: Literal["en", "de", "fr", "it", "ar"] = "en"
    """Language of the captions."""
    count: Positive = 20_000
    """How many distinct pictures to generate."""
    split: Literal["train", "valid", "test", "novel"] = "train"
    """Part of the scenes; no description occurs in two parts, and `novel` has pairs of things that `train` has not."""

    def check_fields(self, names: Sequence[str]) -> None:
        """Raise a ValueError unless the fields are pictures and captions."""
        _check_pictures(self.kind, names, CAPTIONS)


class DigitsCorpus(BaseCorpus):
    """Generated pictures of digits, each with its label; needs no file."""

    kind: Literal["digits"] = "digits"
    """Generated pictures of digits, with labels."""
    count: Positive = 20_000
    """How many pictures to generate."""
    split: Literal["train", "valid", "test"] = "train"
    """Part of the digits; no picture occurs in two parts."""

    def check_fields(self, names: Sequence[str]) -> None:
        """Raise a ValueError unless the fields are pictures and labels."""
        _check_pictures(self.kind, names, LABELLED)


IMAGE_CORPORA = (ImagesCorpus, ScenesCorpus, DigitsCorpus)
"""The kinds of corpora that have pictures."""


def as_images(corpus: object) -> object:
    """Return the table of a corpus; a file becomes a list or an archive of pictures, unless a kind is named."""
    is_file = isinstance(corpus, dict) and "kind" not in corpus and "path" in corpus
    return {**corpus, "kind": "images"} if is_file else corpus  # type: ignore[dict-item]


def _check_pictures(kind: str, names: Sequence[str], *known: tuple[str, ...]) -> None:
    if tuple(names) not in known:
        raise ValueError(
            f".kind = '{kind}' has {' or '.join(' and '.join(fields) for fields in known)}, but this task has the "
            f"fields {', '.join(names)}: name another corpus, or another task"
        )
