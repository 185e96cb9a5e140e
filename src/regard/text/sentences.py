"""Split a text into sentences by rules, with the span of each sentence.

A sentence ends at a full stop, question mark or exclamation mark of any script, closing quotes and brackets included,
if white space follows; after a full-width mark none is needed. It does not end after an abbreviation, after an initial,
or before a lower-case letter. A blank line always ends a sentence.
"""

import re
from collections.abc import Iterator

# Marks after which white space must follow: Latin, Greek, Arabic, Urdu, Devanagari, Ethiopic, Armenian, Khmer, Burmese.
_SPACED = ".!?…‽;؟۔।॥።፧։។။"
# Full-width marks of Chinese and Japanese, which no white space follows.
_UNSPACED = "。！？｡．"
_CLOSING = "\"'”’»›)]}」』）］】〉》"
# Without their last full stop.
_ENGLISH = "mr mrs ms dr prof rev sr jr st gen col capt lt sgt hon vs etc e.g i.e cf al approx no vol fig ed pp inc ltd"
_MONTHS = "jan feb mar apr jun jul aug sep sept oct nov dec"
_OTHERS = "z.b d.h bzw usw nr str ca evtl ggf m mme mlle p.ex sig dott ing avv"
_ABBREVIATIONS = frozenset(f"{_ENGLISH} {_MONTHS} {_OTHERS}".split())

# A run of marks is tried from its first one only and without backtracking, so that long runs take linear time.
_END = re.compile(
    rf"(?<![{re.escape(_SPACED)}])[{re.escape(_SPACED)}]++[{re.escape(_CLOSING)}]*+(?=\s)"
    rf"|[{_UNSPACED}]+[{re.escape(_CLOSING)}]*|\n\s*\n"
)
_FIRST = re.compile(r"\S")
_LAST_WORD = re.compile(r"[^\s\"'“”‘’«»()\[\]]+$")


def split_sentences(text: str) -> list[tuple[int, int]]:
    """Return the spans of the sentences of a text, without the white space around them; a blank text has none."""
    spans, begin = [], 0
    for end in (*_ends(text), len(text)):
        part = text[begin:end]
        if stripped := part.strip():
            first = begin + part.index(stripped)
            spans.append((first, first + len(stripped)))
        begin = end
    return spans


def _ends(text: str) -> Iterator[int]:
    """Yield the positions behind sentences."""
    for match in _END.finditer(text):
        if not match[0].strip() or match[0][0] in _UNSPACED or not _continues(text, match):
            yield match.end()


def _continues(text: str, match: re.Match[str]) -> bool:
    """Return whether a sentence continues after a mark."""
    following = _FIRST.search(text, match.end())
    if match[0][0] == ";":  # a question mark in Greek, which Unicode does not distinguish from a semicolon
        return not ("\u0370" <= text[match.start() - 1 : match.start()] <= "\u03ff")
    if following is not None and following[0].islower():
        return True
    if match[0] != ".":
        return False
    before = _LAST_WORD.search(text[max(0, match.start() - 20) : match.start()])
    word = before[0] if before else ""
    return word.lower() in _ABBREVIATIONS or (len(word) == 1 and word.isalpha() and word.isupper())
