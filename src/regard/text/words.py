"""The words of a text: the units that alignments count and that tokens belong to.

A word is a run of characters without white space, exactly as `str.split` sees it, so that word indices agree with the
Pharaoh alignment format. Only a text without any white space in a script that writes none (Han, kana, Thai, Lao, Khmer,
Myanmar and similar ones) is split further: where the script changes, and at punctuation.
"""

import re
import unicodedata
from bisect import bisect_right

_RUN = re.compile(r"\S+")

# Unicode blocks of scripts that are written without spaces between words.
_UNSPACED: tuple[tuple[int, int, str], ...] = (
    (0x0E01, 0x0E3A, "thai"),
    (0x0E40, 0x0E4E, "thai"),
    (0x0E80, 0x0EFF, "lao"),
    (0x0F40, 0x0FBC, "tibetan"),
    (0x1000, 0x1049, "myanmar"),
    (0x1050, 0x109F, "myanmar"),
    (0x1780, 0x17D3, "khmer"),
    (0x1950, 0x19DF, "tai"),
    (0x1A20, 0x1AAF, "tai"),
    (0x2E80, 0x2FDF, "han"),
    (0x3005, 0x3007, "han"),
    (0x3021, 0x3029, "han"),
    (0x3041, 0x309F, "hiragana"),
    (0x30A1, 0x30FA, "katakana"),
    (0x30FD, 0x30FF, "katakana"),
    (0x31F0, 0x31FF, "katakana"),
    (0x3400, 0x4DBF, "han"),
    (0x4E00, 0x9FFF, "han"),
    (0xA9E0, 0xA9FF, "myanmar"),
    (0xAA60, 0xAA7F, "myanmar"),
    (0xAA80, 0xAADF, "tai"),
    (0xF900, 0xFAFF, "han"),
    (0xFF66, 0xFF6F, "katakana"),
    (0xFF71, 0xFF9D, "katakana"),
    (0x1AFF0, 0x1B16F, "katakana"),
    (0x20000, 0x3FFFD, "han"),
)
_FIRST = [first for first, _, _ in _UNSPACED]
_NAMES = {name for _, _, name in _UNSPACED}
_JOINERS = "\u00ad\u200c\u200d\u2060"  # soft hyphen, zero-width joiners, word joiner
_PROLONGED = "ー\uff70\uff9e\uff9f"  # length and voicing marks of either kana continue the run before them


def words(text: str) -> list[tuple[int, int]]:
    """Return the span `[start, end)` of every word of a text, in order."""
    spans = [match.span() for match in _RUN.finditer(text)]
    if len(spans) != 1:
        return spans
    start, end = spans[0]
    classes = _character_classes(text[start:end])
    if not any(name in _NAMES for name in classes):
        return spans
    cuts = [start + index for index in range(1, len(classes)) if classes[index] != classes[index - 1]]
    return list(zip([start, *cuts], [*cuts, end], strict=True))


OTHER, LETTER, UNSPACED, MARK = range(4)
"""Classes of characters: neither of the following; a letter or digit; one of a script without spaces; a combining mark
or joiner, which belongs to the character before it."""
JOINS = tuple(
    tuple(after == MARK or (before in (LETTER, MARK) and after == LETTER) for after in range(4)) for before in range(4)
)
"""Whether there is no word boundary between two characters of these classes: `JOINS[before][after]`. In a script
without spaces a word may end after every character."""


def character_class(character: str) -> int:
    """Return the class of a character, for `JOINS`."""
    category = unicodedata.category(character)
    if category[0] == "M" or character in _PROLONGED or character in _JOINERS:
        return MARK
    if _script(character):
        return UNSPACED
    return LETTER if category[0] in "LN" or character == "_" else OTHER


def find_phrase(phrase: str, text: str) -> list[tuple[int, int]]:
    """Return the spans of a text in which a phrase occurs as whole words.

    >>> find_phrase("Stra", "Straf, Stra!"), find_phrase("北京", "我在北京。")
    ([(7, 11)], [(2, 4)])
    """
    spans, start = [], text.find(phrase) if phrase else -1
    while start >= 0:
        end = start + len(phrase)
        if not (_is_inside_word(text, start) or _is_inside_word(text, end)):
            spans.append((start, end))
        start = text.find(phrase, start + 1)
    return spans


def _is_inside_word(text: str, position: int) -> bool:
    return 0 < position < len(text) and JOINS[character_class(text[position - 1])][character_class(text[position])]


def edge_classes(surface: bytes) -> tuple[int, int]:
    """Return the classes of the first and of the last character of a piece."""
    text = surface.decode(errors="replace")
    if not text:
        return OTHER, OTHER
    # A single byte may be the first or a later one of any character; most are of letters.
    if len(surface) == 1 and surface[0] >= 0x80:
        return (LETTER if surface[0] >= 0xC0 else MARK), LETTER
    return character_class(text[0]), character_class(text[-1])


def word_of(spans: list[tuple[int, int]], position: int) -> int | None:
    """Return the index of the word at a character.

    Between words it is the next word; after the last word, the last one.

    Args:
        spans: The words of the text, as `words` returns them.
        position: The position of the character.

    Returns:
        The index, or None if the text has no words.
    """
    if not spans:
        return None
    following = bisect_right(spans, position, key=lambda span: span[1])
    return min(following, len(spans) - 1)


def _character_classes(run: str) -> list[str]:
    """Return for each character the script, or other class, of the run it belongs to."""
    classes: list[str] = []
    for character in run:
        category = unicodedata.category(character)
        script = _script(character)
        # A combining mark or a joiner belongs to the character before it.
        if classes and (category[0] == "M" or category == "Cf" or character in _PROLONGED):
            classes.append(classes[-1])
        elif script:
            classes.append(script)
        else:
            classes.append("letter" if category[0] in "LNM" else "mark")
    return classes


def _script(character: str) -> str:
    """Return the script of a character if that script is written without spaces, else an empty string."""
    code = ord(character)
    index = bisect_right(_FIRST, code) - 1
    return _UNSPACED[index][2] if index >= 0 and code <= _UNSPACED[index][1] else ""
