"""The surprisal of the words of a text: how unexpected each is to a language model, in bits (Levy 2008)."""

import math
from dataclasses import dataclass

from regard.predict.mask_filler import MaskFiller
from regard.predict.text_generator import TextGenerator
from regard.text.words import words


@dataclass(frozen=True)
class WordSurprisal:
    """A word of a text and its surprisal, summed over its tokens."""

    start: int
    end: int
    """The word is `text[start:end]`."""
    bits: float
    """-log2 of its probability: given the words before it or, for a masked language model, of each of its tokens given
    all other tokens of the text."""


def word_surprisals(model: TextGenerator | MaskFiller, text: str) -> list[WordSurprisal]:
    """Return the surprisal of each word of a text; white space counts as part of a word next to it.

    Example:
        >>> word_surprisals(regard.load("runs/words"), "I can go")[0].bits
    """
    spans = words(text)
    bits = [0.0] * len(spans)
    # The log-probability of the end symbol, which a causal model has too, belongs to no word.
    for token, logprob in zip(model.tokenizer.tokens(text), model.token_logprobs(text), strict=False):
        if token.word is not None:
            bits[token.word] -= logprob / math.log(2)
    return [WordSurprisal(start, end, value) for (start, end), value in zip(spans, bits, strict=True)]
