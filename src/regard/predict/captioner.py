"""Captions of pictures by a trained model, with the regions that each word attends to."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import UInt8
from numpy.typing import NDArray
from PIL.Image import Image
from torch import Tensor

from regard.bundle import Bundle
from regard.data.fields import Fields, ImageField, TextsField
from regard.data.pictures import load_image
from regard.decode import Hypothesis, LengthLimits, SentenceOptions
from regard.engines import SteppableModel, parallel
from regard.models.image_encoder import ImageEncoder
from regard.models.seq2seq import Seq2Seq
from regard.nn.ragged import Ragged
from regard.nn.tap import recording
from regard.options import CaptionOptions, OptionError
from regard.predict.engine import make_engine, max_tokens, run_search
from regard.predict.search import search_options
from regard.predict.streaming import OutputMonitor, text_before_stop
from regard.predict.teacher_forcing import cross_attention_taps, evaluating
from regard.recipe import Decode
from regard.text import START, Tokenizer, words

Picture = str | Path | bytes | Image | NDArray[np.uint8]
"""A picture: the path of a file, its bytes, a PIL image, or an array of bytes (height, width, channels)."""
READ_AT_ONCE = 64
"""Pictures that are in memory at a time."""
ROWS = 256
"""Hypotheses that are searched at a time."""

AttentionGrid = NDArray[np.float32]
"""Attention weights of words over the regions of a picture: (words or tokens, rows, columns)."""


@dataclass(frozen=True)
class Caption:
    """A description of a picture: the best one, and in `nbest` all of them."""

    text: str
    score: float
    """The score by which captions are ranked."""
    logprob: float
    """Log-probability given the picture, in nats."""
    tokens: tuple[str, ...]
    """The subwords of the caption."""
    token_logprobs: tuple[float, ...]
    """Log-probability of each token, and of the end symbol if the model has generated it."""
    words: tuple[str, ...] = ()
    """The words of the caption, to which `attention` belongs."""
    attention: AttentionGrid | None = field(default=None, repr=False, compare=False)
    """Weights of each word over the regions of the picture (words, rows, columns); None without attention."""
    nbest: tuple["Caption", ...] = field(default=(), repr=False)

    def __str__(self) -> str:
        """Return the text."""
        return self.text

    def to_json(self) -> dict[str, Any]:
        """Return the caption as a JSON object; attention weights as nested lists."""
        table: dict[str, Any] = {
            "text": self.text,
            "score": self.score,
            "logprob": self.logprob,
            "tokens": list(self.tokens),
            "token_logprobs": list(self.token_logprobs),
        }
        if self.attention is not None:
            table |= {"words": list(self.words), "attention": np.round(self.attention, 4).tolist()}
        if len(self.nbest) > 1:
            table["nbest"] = [caption.to_json() for caption in self.nbest]
        return table


class Captioner:
    """A trained model that describes pictures.

    >>> captioner = regard.load("runs/scenes")
    >>> captioner("photo.jpg").text
    """

    def __init__(
        self, model: Seq2Seq, fields: Fields, decoding: Decode | None = None, *, engine: SteppableModel | None = None
    ) -> None:
        """Describe with a model as it is now, or with an engine made from it.

        Args:
            model: A model with an encoder of pictures.
            fields: The fields `image` and `captions` that it was trained with.
            decoding: The recipe's `[decode]` section, for the defaults of the options.
            engine: A fast engine for the model.
        """
        image, captions = fields["image"], fields["captions"]
        assert isinstance(image, ImageField)
        assert isinstance(captions, TextsField)
        assert isinstance(model.encoder, ImageEncoder)
        self.model, self.fields, self.encoder = model, fields, model.encoder
        self.image_field, self.tokenizer = image, captions.tokenizer
        self.max_caption = max_tokens(model.decoder.max_positions, reserved=1)
        self.engine: SteppableModel = engine or model
        # Engines are made for several threads. The model itself is not: it may be trained, or its taps recorded.
        self.workers = max(1, os.cpu_count() or 1) if engine is not None and self.device.type == "cpu" else 1
        settings = decoding or Decode()
        self.options = CaptionOptions(
            beam=settings.beam,
            length_penalty=settings.length_penalty,
            normalise=settings.normalise,
            no_repeat=settings.no_repeat,
        )

    @classmethod
    def from_bundle(cls, bundle: Bundle, precision: str = "auto") -> "Captioner":
        """Describe with a trained run, on the device it was loaded to."""
        model = bundle.model
        assert isinstance(model, Seq2Seq)
        engine = make_engine(model, model.output.weight.device, precision)
        return cls(model, bundle.fields, bundle.recipe.decode, engine=engine)

    @property
    def device(self) -> torch.device:
        """The device of the model."""
        return self.model.output.weight.device

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of the regions of a picture."""
        return self.encoder.grid

    @property
    def has_attention(self) -> bool:
        """Whether words attend to regions."""
        return bool(cross_attention_taps(self.model))

    def __call__(self, pictures: Any, *, attention: bool = True, **options: Any) -> Any:
        """Describe a picture, or each picture of a list, with options such as `beam=4`.

        Args:
            pictures: A `Picture`, or a list or tuple of them, which gives a list of captions.
            attention: Whether to compute the weights of each word over the picture.
            **options: See `CaptionOptions`.

        Raises:
            ValueError: A picture cannot be read.
        """
        if isinstance(pictures, list | tuple):
            return self.describe(pictures, attention=attention, **options)
        return self.describe([pictures], attention=attention, **options)[0]

    def describe(self, pictures: Sequence[Picture], *, attention: bool = True, **options: Any) -> list[Caption]:
        """Describe each of several pictures, with options such as `beam=4`."""
        chosen, captions = self.options.override(**options), list[Caption]()
        for begin in range(0, len(pictures), READ_AT_ONCE):
            captions += self.describe_pixels(self.read(pictures[begin : begin + READ_AT_ONCE]), chosen, attention)
        return captions

    def read(self, pictures: Sequence[Picture]) -> UInt8[Tensor, "B C H W"]:
        """Read pictures, and scale them as the recipe says."""
        settings = self.image_field.settings
        arrays = [load_image(picture, settings.size, settings.channels, settings.fit) for picture in pictures]
        return torch.from_numpy(np.stack(arrays)).permute(0, 3, 1, 2).contiguous()

    def describe_pixels(
        self, image_BCHW: UInt8[Tensor, "B C H W"], options: CaptionOptions, attention: bool = True
    ) -> list[Caption]:
        """Describe pictures that have been read."""
        rows = options.nbest if options.sample else options.beam
        parts = torch.split(image_BCHW, max(1, ROWS // rows // self.workers))
        with evaluating(self.model):
            found = parallel(partial(self._search, options=options), parts, self.workers)
            hypotheses = [row for part in found for row in part]
            captions = [self._assemble(row, options) for row in hypotheses]
            if not attention or not self.has_attention:
                return captions
            grids = self.attention(image_BCHW, [row[0].tokens for row in hypotheses])
        return [self._with_attention(*pair) for pair in zip(captions, hypotheses, grids, strict=True)]

    def attention(self, image_BCHW: UInt8[Tensor, "B C H W"], captions: Sequence[Sequence[int]]) -> list[AttentionGrid]:
        """Return the weights over the picture of each token of given captions, and of the end symbol.

        They are recorded in a pass over the whole captions. Those of a Transformer are the mean of all heads of the
        last layer. Hard attention has one region a token.
        """
        tokens = Ragged.from_list([[START, *ids] for ids in captions]).to(self.device)
        (tap,) = cross_attention_taps(self.model)[-1:]
        with evaluating(self.model), recording(self.model, tap) as seen:
            self.model.states(image_BCHW.to(self.device), tokens)
        (table_BHTL,) = seen[tap]
        mean_BTL = table_BHTL.float().mean(1).cpu().numpy()
        return [mean_BTL[at, : len(ids) + 1].reshape(-1, *self.grid) for at, ids in enumerate(captions)]

    def _search(self, image_BCHW: Tensor, options: CaptionOptions) -> list[list[Hypothesis]]:
        """Search for captions of some pictures in one batch."""
        if options.min_tokens > self.max_caption:
            raise OptionError(
                "{min_tokens} is {0}, but this model has positions for {1} tokens; use a smaller minimum",
                options.min_tokens,
                self.max_caption,
            )
        limits = LengthLimits(options.min_tokens, min(options.max_tokens, self.max_caption))
        search = search_options(options, limits, samples=options.nbest if options.sample else 0)
        monitor = OutputMonitor(self.tokenizer, options.stop, None, None)
        complete = monitor.is_complete if monitor.is_needed else None
        sentences = [SentenceOptions(seed=options.seed, is_complete=complete)] * len(image_BCHW)
        return run_search(self.engine, image_BCHW.to(self.device), sentences, search)

    def _assemble(self, hypotheses: Sequence[Hypothesis], options: CaptionOptions) -> Caption:
        """Return the caption that the hypotheses of a search are, best first."""
        captions = []
        for hypothesis in hypotheses:
            text = text_before_stop(self.tokenizer.decode(hypothesis.tokens), options.stop)
            pieces, logprobs = tuple(map(self.tokenizer.piece, hypothesis.tokens)), hypothesis.token_logprobs
            captions.append(Caption(text, hypothesis.score, sum(logprobs), pieces, logprobs, _words(text)))
        return replace(captions[0], nbest=tuple(captions))

    def _with_attention(self, caption: Caption, hypotheses: Sequence[Hypothesis], grid: AttentionGrid) -> Caption:
        """Return a caption with the weights of its words: the mean over the tokens of each word."""
        return replace(caption, attention=word_attention(self.tokenizer, hypotheses[0].tokens, caption.words, grid))


def word_attention(
    tokenizer: Tokenizer, ids: Sequence[int], texts: Sequence[str], grid: AttentionGrid
) -> AttentionGrid:
    """Return the weights of words from those of tokens: the mean over the tokens of each word.

    Args:
        tokenizer: The tokenizer of the captions.
        ids: The tokens of a caption.
        texts: The words that are wanted: the first ones of the caption.
        grid: The weights of the tokens.
    """
    spans = words(tokenizer.decode(ids))
    result = np.zeros((len(texts), *grid.shape[1:]), np.float32)
    counts = np.zeros(len(texts))
    for number, token in enumerate(tokenizer.tokens_of(ids)):
        for word, (begin, end) in enumerate(spans[: len(texts)]):
            if token.start < end and token.end > begin:
                result[word] += grid[number]
                counts[word] += 1
    return result / np.maximum(counts, 1)[:, None, None].astype(np.float32)


def _words(text: str) -> tuple[str, ...]:
    return tuple(text[begin:end] for begin, end in words(text))


def is_picture_file(path: Path) -> bool:
    """Return whether the name of a file ends like that of a picture."""
    return path.suffix.lower() in (".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp", ".tif", ".tiff")
