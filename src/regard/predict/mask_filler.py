"""Fill masks and score texts by a trained masked language model."""

import logging
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, overload

import torch
from torch import Tensor

from regard.bundle import Bundle
from regard.models.masked_language_model import MaskedLanguageModel
from regard.nn.ragged import Ragged
from regard.predict.engine import max_tokens
from regard.predict.forward_pass import BATCH_TOKENS, plain_precision, token_batches
from regard.predict.teacher_forcing import evaluating
from regard.predict.text_generator import TextPerplexity
from regard.recipe import MASK
from regard.text import END, START, Tokenizer
from regard.text.settings import RESERVED, SPACE
from regard.text.words import LETTER
from regard.text.words import MARK as COMBINING

log = logging.getLogger(__name__)

CONTINUES = "##"  # before a candidate that continues the word before it, as in the vocabulary of BERT
_MASKS = re.compile(rf"\[MASK\]|{MASK}", re.IGNORECASE)

Ranked = list[tuple[int, float]]
"""Token ids with their log-probabilities, the most probable first."""


@dataclass(frozen=True)
class MaskCandidate:
    """A token for a mask, with its probability."""

    word: str
    """The token as a word; `##` stands before a token that continues the word before it."""
    token: str
    """The piece of the vocabulary, in which `▁` stands for a space."""
    probability: float
    """Probability among all tokens of the vocabulary."""


@dataclass(frozen=True)
class JointCandidate:
    """Tokens for all masks of a text together."""

    words: tuple[str, ...]
    text: str
    """The text with these words in place of its masks."""
    probability: float
    """Product of the probability of each word, given the words to its left; masks to its right stay masked."""


@dataclass(frozen=True)
class FilledText:
    """A text with masks, and what the model puts in their place."""

    text: str
    """The text as it was given."""
    filled: str
    """The text with the best candidate in place of each mask."""
    masks: tuple[tuple[MaskCandidate, ...], ...]
    """For each mask its candidates, the most probable first, while all other masks stay masked."""
    joint: tuple[JointCandidate, ...] = ()
    """Candidates for all masks together, if they were asked for."""

    def __str__(self) -> str:
        """Return the filled text."""
        return self.filled

    def to_json(self) -> dict[str, Any]:
        """Return everything as a JSON object."""
        table: dict[str, Any] = {
            "text": self.text,
            "filled": self.filled,
            "masks": [[vars(candidate) for candidate in candidates] for candidates in self.masks],
        }
        if self.joint:
            table["joint"] = [{**vars(candidate), "words": list(candidate.words)} for candidate in self.joint]
        return table


@dataclass(frozen=True)
class PseudoPerplexity(TextPerplexity):
    """Pseudo-log-likelihood of texts: each token is predicted from all others (Salazar et al. 2020, eq. 1 and 3).

    It is no likelihood, so it cannot be compared with the perplexity of a model that predicts the next token.
    """

    def to_json(self) -> dict[str, float]:
        """Return pseudo-perplexity per token and per word, and the counts."""
        table = super().to_json()
        counts = ("tokens", "words", "bytes", "characters")
        return {
            "pseudo_perplexity": table["perplexity"],
            "pseudo_perplexity_per_word": table["word_perplexity"],
            "nats_per_token": table["nats_per_token"],
            **{name: table[name] for name in counts},
        }


class MaskFiller:
    """A trained masked language model with its tokenizer.

    >>> fill = regard.load("runs/masked")
    >>> fill("the animal did not [MASK] the street").masks[0][0].word
    'cross'
    """

    def __init__(
        self, model: MaskedLanguageModel, tokenizer: Tokenizer, *, window: int | None = None, precision: str = "auto"
    ) -> None:
        """Fill masks with a model as it is now.

        Args:
            model: The model.
            tokenizer: The tokenizer it was trained with.
            window: Tokens that the model was trained on, which a text is scored with at most.
            precision: Precision of matrix products: `float32`, `bfloat16`, or `auto`, which is bfloat16 on a GPU.
        """
        self.model, self.tokenizer = model, tokenizer
        self.precision = plain_precision(precision, self.device)
        self.max_tokens = max_tokens(model.max_positions, reserved=2)
        self.window = min(window or self.max_tokens, self.max_tokens)
        self._mask = tokenizer.id(MASK)
        symbols = {*RESERVED, *tokenizer.settings.symbols}
        self._unwanted = [number for number in range(len(tokenizer)) if tokenizer.piece(number) in symbols]

    @classmethod
    def from_bundle(cls, bundle: Bundle, precision: str = "auto") -> "MaskFiller":
        """Fill masks with a trained run, on the device it was loaded to."""
        data = bundle.recipe.data
        return cls(bundle.model, bundle.tokenizers["text"], window=data.block or data.longest, precision=precision)

    @property
    def device(self) -> torch.device:
        """The device of the model."""
        return self.model.output.weight.device

    @overload
    def __call__(self, texts: str, *, top: int = 5, joint: bool = False) -> FilledText: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, texts: Sequence[str], *, top: int = 5, joint: bool = False) -> list[FilledText]: ...
    def __call__(
        self, texts: str | Sequence[str], *, top: int = 5, joint: bool = False
    ) -> FilledText | list[FilledText]:
        """Fill the masks of a text or of a list of texts.

        Args:
            texts: Texts with `[MASK]` or `<mask>` in place of the words to fill in.
            top: Number of candidates for each mask.
            joint: Whether to find candidates for all masks of a text together, too.

        Raises:
            ValueError: If a text has no mask.
        """
        if isinstance(texts, str):
            return self([texts], top=top, joint=joint)[0]
        if top < 1:
            raise ValueError(f"top = {top} asks for no candidates; ask for at least 1")
        encoded = [self._encode(text) for text in texts]
        ranked = self._rank(encoded, top)
        return [
            self._filled(text, candidates, self._rank_jointly(ids, top) if joint else [])
            for text, ids, candidates in zip(texts, encoded, ranked, strict=True)
        ]

    def perplexity(self, texts: Iterable[str]) -> PseudoPerplexity:
        """Return the pseudo-perplexity of documents: each token is masked once, and predicted from all others.

        Of a document longer than the model's window, a token is predicted from a window around it.
        """
        nats, tokens, words, size, characters = 0.0, 0, 0, 0, 0
        for text in texts:
            logprobs = self.token_logprobs(text)
            nats -= math.fsum(logprobs)
            tokens, words = tokens + len(logprobs), words + len(text.split())
            size, characters = size + len(text.encode()), characters + len(text)
        return PseudoPerplexity(nats, tokens, words, size, characters)

    def token_logprobs(self, text: str) -> list[float]:
        """Return the log-probability of each token of a text given all others, each masked once."""
        return self._token_logprobs(self.tokenizer.encode(text))

    def _encode(self, text: str) -> list[int]:
        """Return the ids of a text with masks, between start and end symbol.

        A mask stands for a token with its space, so the space before it is no token, unless tokens are characters.
        """
        if not _MASKS.search(text):
            raise ValueError(f"there is no mask in {text!r}; write [MASK] in place of the word to fill in")
        ids = self.tokenizer.encode(_MASKS.sub(MASK, text))
        if self.tokenizer.settings.kind != "char":
            space = self.tokenizer.id(SPACE)
            ids = [
                number
                for number, after in zip(ids, [*ids[1:], END], strict=True)
                if not (after == self._mask and number == space and self.tokenizer.piece(space) == SPACE)
            ]
        if len(ids) > self.max_tokens:
            log.warning("a text of %d tokens is cut to the %d that the model can read", len(ids), self.max_tokens)
            if self._mask in ids[self.max_tokens :]:
                raise ValueError(
                    f"a mask is behind the first {self.max_tokens} tokens of a text, which are all that the model can "
                    "read; shorten the text"
                )
        return [START, *ids[: self.max_tokens], END]

    def _rank(self, sequences: Sequence[Sequence[int]], count: int) -> list[list[Ranked]]:
        """Return the most probable tokens for each mask of each sequence."""
        results: list[list[Ranked]] = [[] for _ in sequences]
        count = min(count, len(self.tokenizer) - len(self._unwanted))
        for batch in token_batches([len(sequence) for sequence in sequences]):
            chosen = [sequences[index] for index in batch]
            logprobs_MV = self._mask_logprobs(chosen)
            logprobs_MV[:, self._unwanted] = -math.inf
            values_MK, tokens_MK = logprobs_MV.topk(count)
            ranked = (
                list(zip(tokens, values, strict=True))
                for tokens, values in zip(tokens_MK.tolist(), values_MK.tolist(), strict=True)
            )
            for index, sequence in zip(batch, chosen, strict=True):
                results[index] = [next(ranked) for token in sequence if token == self._mask]
        return results

    def _rank_jointly(self, ids: Sequence[int], count: int) -> list[tuple[list[int], float]]:
        """Return the best tokens for all masks of a text, filled in from left to right by beam search."""
        beams: list[tuple[list[int], list[int], float]] = [(list(ids), [], 0.0)]
        while self._mask in beams[0][0]:
            at = beams[0][0].index(self._mask)
            ranked = self._rank([sequence for sequence, _, _ in beams], count)
            extended = [
                ([*sequence[:at], token, *sequence[at + 1 :]], [*chosen, token], total + logprob)
                for (sequence, chosen, total), candidates in zip(beams, ranked, strict=True)
                for token, logprob in candidates[0]
            ]
            beams = sorted(extended, key=lambda beam: -beam[2])[:count]
        return [(chosen, total) for _, chosen, total in beams]

    def _mask_logprobs(self, sequences: Sequence[Sequence[int]]) -> Tensor:
        """Return the log-probabilities of all tokens at each mask of some sequences."""
        tokens = Ragged.from_list([list(sequence) for sequence in sequences]).to(self.device)
        positions_M = (tokens.values == self._mask).nonzero()[:, 0]
        bfloat16 = self.precision == "bfloat16"
        with evaluating(self.model), torch.autocast(self.device.type, torch.bfloat16, enabled=bfloat16):
            logits_MV = self.model.output(self.model.head(self.model.states(tokens)[positions_M]))
        logprobs_MV: Tensor = logits_MV.log_softmax(-1, torch.promote_types(logits_MV.dtype, torch.float32))
        return logprobs_MV

    def _token_logprobs(self, ids: Sequence[int]) -> list[float]:
        """Return the log-probabilities of all tokens, each given all others in its window."""
        size = min(len(ids), self.window)
        logprobs: list[float] = []
        step = max(1, BATCH_TOKENS // (size + 2))
        for start in range(0, len(ids), step):
            places = range(start, min(start + step, len(ids)))
            begins = [min(max(place - size // 2, 0), len(ids) - size) for place in places]
            sequences = [
                [START, *ids[begin:place], self._mask, *ids[place + 1 : begin + size], END]
                for begin, place in zip(begins, places, strict=True)
            ]
            # A text may contain the mask itself; the token to predict is the one that was masked here.
            logprobs_MV = self._mask_logprobs(sequences)
            masked = [place - begin + 1 for begin, place in zip(begins, places, strict=True)]
            rows = _rows_of_masks(sequences, masked, self._mask)
            labels_N = torch.tensor([ids[place] for place in places], device=logprobs_MV.device)
            logprobs += logprobs_MV[rows].gather(1, labels_N[:, None])[:, 0].double().tolist()
        return logprobs

    def _filled(self, text: str, ranked: list[Ranked], joint: list[tuple[list[int], float]]) -> FilledText:
        """Return the result for a text."""
        masks = tuple(
            tuple(
                MaskCandidate(self.word(token), self.tokenizer.piece(token), math.exp(logprob))
                for token, logprob in candidates
            )
            for candidates in ranked
        )
        together = tuple(
            JointCandidate(tuple(map(self.word, tokens)), self._replace_masks(text, tokens), math.exp(logprob))
            for tokens, logprob in joint
        )
        filled = together[0].text if together else self._replace_masks(text, [row[0][0] for row in ranked])
        return FilledText(text, filled, masks, together)

    def word(self, token: int) -> str:
        """Return a token as a word: without its space, or with `##` if it continues the word before it."""
        piece = self.tokenizer.piece(token)
        if piece.startswith(SPACE) or self.tokenizer.settings.kind in ("word", "char"):
            return piece.removeprefix(SPACE).replace(SPACE, " ") or piece
        continues = self.tokenizer.character_classes[0][token] in (LETTER, COMBINING)
        return (CONTINUES if continues else "") + piece.replace(SPACE, " ")

    def _replace_masks(self, text: str, tokens: Sequence[int]) -> str:
        """Return a text with tokens in place of its masks, with a space before each token that begins a word."""
        filled, end = "", 0
        for match, token in zip(_MASKS.finditer(text), tokens, strict=True):
            filled += text[end : match.start()]
            has_space = self.tokenizer.piece(token).startswith(SPACE) or self.tokenizer.settings.kind == "word"
            if self.tokenizer.settings.kind != "char":
                filled = filled.rstrip()
                filled += " " * (has_space and bool(filled))
            filled, end = filled + self.tokenizer.decode([token]).removeprefix(" "), match.end()
        return filled + text[end:]


def _rows_of_masks(sequences: Sequence[Sequence[int]], positions: Sequence[int], mask: int) -> list[int]:
    """Return the number of the mask at one position of each sequence among all masks of all sequences."""
    rows, before = [], 0
    for sequence, position in zip(sequences, positions, strict=True):
        rows.append(before + sequence[:position].count(mask))
        before += sequence.count(mask)
    return rows
