"""Tokenization: text to token ids and back, with the span of each token in the text.

SentencePiece (Kudo & Richardson 2018) learns the vocabularies and segments the text. This package does not need torch.
"""

from regard.text.printable import printable, printable_json
from regard.text.settings import END, PAD, START, UNK, TokenizerSettings
from regard.text.spans import Token
from regard.text.tokenizer import Tokenizer
from regard.text.tokenizers import Tokenizers
from regard.text.words import JOINS, find_phrase, word_of, words

__all__ = [
    "END",
    "JOINS",
    "PAD",
    "START",
    "UNK",
    "Token",
    "Tokenizer",
    "TokenizerSettings",
    "Tokenizers",
    "find_phrase",
    "printable",
    "printable_json",
    "word_of",
    "words",
]
