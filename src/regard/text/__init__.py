"""A line of text to token ids and back, with each token's place in the line.

Comes in: a line (`str`). Goes out: ids (`int32`), or `Token`s that know their characters and their word. SentencePiece
(Kudo & Richardson 2018) learns the vocabulary and segments; no torch here.
"""

from regard.text.pair import Tokenizers
from regard.text.settings import END, PAD, START, UNK, Settings
from regard.text.spans import Token
from regard.text.tokenizer import Tokenizer
from regard.text.words import word_of, words

__all__ = ["END", "PAD", "START", "UNK", "Settings", "Token", "Tokenizer", "Tokenizers", "word_of", "words"]
