"""Text of any script on a figure: its direction, the fonts that have its characters, and labels for subwords.

matplotlib (3.11 and newer) joins Arabic letters and orders bidirectional text itself; reshaping text first would break
both.
"""

import logging
import unicodedata
from collections.abc import Iterable, Sequence
from functools import cache

from matplotlib.font_manager import FontProperties, fontManager, get_font

BASE = "DejaVu Sans"  # comes with matplotlib; has Latin, Greek, Cyrillic, Arabic, Hebrew and more
SPACE = "▁"  # SentencePiece's mark of a space
JOINER = "\u200d"  # the zero-width joiner, which keeps a letter in its joined form at the edge of a label

_log = logging.getLogger("regard")
_reported: set[str] = set()  # characters without a font that a warning has named


def right_to_left(text: str | Iterable[str]) -> bool:
    """Return whether text runs right to left, by its first character with a direction (rule P2 of Unicode)."""
    for letter in "".join(text):
        match unicodedata.bidirectional(letter):
            case "R" | "AL":
                return True
            case "L":
                return False
    return False


def escape_math(word: str) -> str:
    """Escape dollar signs, which would begin a formula in matplotlib."""
    return word.replace("$", r"\$")


def subword_labels(pieces: Sequence[str]) -> list[str]:
    """Return SentencePiece's subwords as labels: without marks of spaces, Arabic letters joined as in the word.

    Arabic letters change their form at the end of a word. If a subword ends between two of them, a joiner on both sides
    keeps the forms they have inside the word.
    """
    labels = [piece.replace(SPACE, " ").strip() or SPACE for piece in pieces]
    for index in range(1, len(pieces)):
        previous, current = pieces[index - 1], pieces[index]
        if previous and current and joins_neighbours(previous[-1]) and joins_neighbours(current[0]):
            labels[index - 1] += JOINER
            labels[index] = JOINER + labels[index]
    return labels


def joins_neighbours(letter: str) -> bool:
    """Return whether a letter may join its neighbours, as letters of Arabic and similar scripts do."""
    return unicodedata.bidirectional(letter) in ("AL", "NSM") and unicodedata.category(letter) in ("Lo", "Lm", "Mn")


def font_families(texts: Iterable[str]) -> list[str]:
    """Return the fonts needed to draw texts: the default font, then installed ones for characters it lacks.

    Characters that no installed font has are named in one warning; matplotlib draws a box instead of each.
    """
    wanted = {letter for text in texts for letter in text if _is_visible(letter)}
    chosen = [BASE]
    missing = wanted - _characters(fontManager.findfont(FontProperties(family=BASE)))
    for name, path in _installed_fonts().items() if missing else ():
        supplied = missing & _characters(path)
        if supplied:
            chosen.append(name)
            missing -= supplied
    _warn_of_missing(missing)
    return chosen


def _is_visible(letter: str) -> bool:
    """Return whether a character needs a glyph; joiners, spaces and control characters do not."""
    return unicodedata.category(letter) not in ("Cf", "Cc", "Zs", "Zl", "Zp")


@cache
def _installed_fonts() -> dict[str, str]:
    """Return the files of upright fonts of regular weight in a fixed order, without the font that has only boxes."""
    fonts = [font for font in fontManager.ttflist if font.style == "normal" and font.weight == 400]
    files = {font.name: font.fname for font in sorted(fonts, key=lambda font: (font.name, font.fname), reverse=True)}
    return {name: files[name] for name in sorted(files) if name != BASE and not name.startswith("Last Resort")}


@cache
def _characters(path: str) -> frozenset[str]:
    """Return the characters that a font has."""
    return frozenset(map(chr, get_font(path).get_charmap()))


def _warn_of_missing(missing: set[str]) -> None:
    """Log one warning with the characters that no earlier warning named."""
    fresh = sorted(missing - _reported)
    if not fresh:
        return
    _reported.update(fresh)
    scripts = sorted({unicodedata.name(letter, "UNKNOWN").partition(" ")[0].capitalize() for letter in fresh})
    shown = "".join(fresh[:8]) + ("…" if len(fresh) > 8 else "")
    _log.warning(
        "no installed font has %d of the characters in a figure (%s: %s); they are drawn as boxes. "
        "Install a font that has them, such as one of the Noto family, and draw the figure again.",
        len(fresh), ", ".join(scripts), shown,
    )  # fmt: skip
