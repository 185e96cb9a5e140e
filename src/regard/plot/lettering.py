"""Text of any script on a figure: which way it runs, which font has its letters, and pieces of joined letters.

matplotlib (3.11 and newer) joins Arabic letters and orders mixed text by itself; reshaping it first would undo that.
"""

import logging
import unicodedata
from collections.abc import Iterable, Sequence
from functools import cache

from matplotlib.font_manager import FontProperties, fontManager, get_font

BASE = "DejaVu Sans"  # comes with matplotlib; Latin, Greek, Cyrillic, Arabic, Hebrew and more
SPACE = "▁"  # SentencePiece's mark of a blank
JOINER = "\u200d"  # zero width; keeps a letter in its joined shape where a cut parts it from its neighbour

_log = logging.getLogger("regard")
_told: set[str] = set()  # characters we have said to be missing


def right_to_left(text: str | Iterable[str]) -> bool:
    """Whether text runs right to left: what its first letter with a direction says (Unicode's rule P2)."""
    for letter in "".join(text):
        match unicodedata.bidirectional(letter):
            case "R" | "AL":
                return True
            case "L":
                return False
    return False


def piece_labels(pieces: Sequence[str]) -> list[str]:
    """SentencePiece's pieces as labels: no marks of blanks, and letters joined as they were before the cut.

    Arabic letters change their shape at the end of a word. Where a cut falls between two of them, a joiner on both
    sides keeps the shapes they have in the word.
    """
    labels = [piece.replace(SPACE, " ").strip() or SPACE for piece in pieces]
    for after in range(1, len(pieces)):
        before, here = pieces[after - 1], pieces[after]
        if before and here and joins(before[-1]) and joins(here[0]):
            labels[after - 1] += JOINER
            labels[after] = JOINER + labels[after]
    return labels


def joins(letter: str) -> bool:
    """Whether a letter may join its neighbours: a letter of Arabic or of a script written like it."""
    return unicodedata.bidirectional(letter) in ("AL", "NSM") and unicodedata.category(letter) in ("Lo", "Lm", "Mn")


def families(texts: Iterable[str]) -> list[str]:
    """The fonts to draw texts with: our own, and for letters it lacks those installed ones that have them.

    Letters no installed font has are named in a warning, once; they are drawn as a box that shows their script.
    """
    wanted = {letter for text in texts for letter in text if _drawn(letter)}
    chosen = [BASE]
    missing = wanted - _letters(fontManager.findfont(FontProperties(family=BASE)))
    for name, path in _installed().items() if missing else ():
        found = missing & _letters(path)
        if found:
            chosen.append(name)
            missing -= found
    _warn(missing)
    return chosen


def _drawn(letter: str) -> bool:
    """Whether a character leaves ink that a font must have; joiners and control characters leave none."""
    return unicodedata.category(letter) not in ("Cf", "Cc", "Zs", "Zl", "Zp")


@cache
def _installed() -> dict[str, str]:
    """Upright fonts of ordinary weight and their files, in the same order always; not the one that has only boxes."""
    fonts = [font for font in fontManager.ttflist if font.style == "normal" and font.weight == 400]
    named = {font.name: font.fname for font in sorted(fonts, key=lambda font: (font.name, font.fname), reverse=True)}
    return {name: named[name] for name in sorted(named) if name != BASE and not name.startswith("Last Resort")}


@cache
def _letters(path: str) -> frozenset[str]:
    """The characters a font has."""
    return frozenset(map(chr, get_font(path).get_charmap()))


def _warn(missing: set[str]) -> None:
    fresh = sorted(missing - _told)
    if not fresh:
        return
    _told.update(fresh)
    names = sorted({unicodedata.name(letter, "UNKNOWN").partition(" ")[0].capitalize() for letter in fresh})
    shown = "".join(fresh[:8]) + ("…" if len(fresh) > 8 else "")
    _log.warning(
        "no installed font has %d of the characters in a figure (%s: %s); boxes stand in for them. "
        "Install a font that has them, such as one of the Noto family, and draw it again.",
        len(fresh), ", ".join(names), shown,
    )  # fmt: skip
