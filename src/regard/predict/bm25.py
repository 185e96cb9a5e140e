"""BM25: the similarity of texts by the words that they share (Robertson & Zaragoza 2009), as Lucene computes it."""

import logging
import unicodedata
from collections.abc import Iterable, Sequence

import bm25s
import numpy as np
from numpy.typing import NDArray

from regard.text.words import LETTER, MARK, UNSPACED, character_class

K1, B = 1.2, 0.75  # the defaults of Lucene
logging.getLogger("bm25s").setLevel(logging.WARNING)  # it sets DEBUG, and would log every index


class _Separated(dict[int, str]):
    """A table for `str.translate`: spaces for what is no part of a word, and around what is a word by itself."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        kind = character_class(character)
        self[code] = character if kind in (LETTER, MARK) else f" {character} " if kind == UNSPACED else " "
        return self[code]


_SEPARATED = _Separated()


def search_words(text: str) -> list[str]:
    """Return the words of a text for a search, in any language: case and punctuation are ignored.

    In a script that is written without spaces, each character is a word.

    >>> search_words("Don't you like STRASSE or Straße? 北京!")
    ['don', 't', 'you', 'like', 'strasse', 'or', 'strasse', '北', '京']
    """
    return unicodedata.normalize("NFKC", text).casefold().translate(_SEPARATED).split()


class Bm25Index:
    """Texts that queries are compared with: for each word of a query that occurs in a text, idf · tf.

    idf = ln(1 + (n - d + 0.5) / (d + 0.5)) for n texts, d of which have the word; tf = f / (f + k₁ (1 - b + b l / m))
    for a word that occurs f times in a text of l words, where the mean is m (Kamphuis et al. 2020, table 1, Lucene
    with exact lengths). A word that a query repeats counts as often.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        """Index texts; one without a word is similar to nothing."""
        self.size = len(texts)
        self.vocabulary: dict[str, int] = {}
        ids = [[self._number(word) for word in search_words(text)] for text in texts]
        self._index = bm25s.BM25(K1, B, method="lucene", dtype="float64")
        if self.vocabulary:  # otherwise the mean length is 0
            self._index.index((ids, self.vocabulary), create_empty_token=False, show_progress=False)

    def scores(self, query: Iterable[tuple[str, float]]) -> NDArray[np.float64]:
        """Return the similarity of each text and a query.

        Args:
            query: The parts of the query, each with the weight of its words.
        """
        total = np.zeros(self.size)
        for text, weight in query:
            if ids := [number for word in search_words(text) if (number := self.vocabulary.get(word)) is not None]:
                total += weight * self._index.get_scores_from_ids(ids)
        return total

    def _number(self, word: str) -> int:
        return self.vocabulary.setdefault(word, len(self.vocabulary))
