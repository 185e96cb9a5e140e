"""Files of word alignments in, `Alignment`s out, and back.

Pharaoh: a line for each sentence pair, links `0-0 1-2 3p4`; `-` is sure, `p` or `?` is possible; words from 0.
NAACL (also called WPT): a line for each link, `sentence source target [S|P] [confidence]`; everything from 1.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from regard.score.alignment import Alignment, Link
from regard.score.lines import read_lines

Lengths = Sequence[tuple[int, int]]

_PHARAOH = re.compile(r"([0-9]{1,9})([-p?])([0-9]{1,9})")
_NAACL = re.compile(
    r"([0-9]{1,9})\s+([0-9]{1,9})\s+([0-9]{1,9})"
    r"(?:\s+([SPsp]))?"
    r"(?:\s+(?:[01]|[01]?\.[0-9]+|[01]\.|[0-9](?:\.[0-9]+)?[eE]-[0-9]+))?"  # the confidence, at most about 1
)
_MOST_PAIRS = 10_000_000  # A slipped column must not make a list of a thousand million sentences.


def read_alignments(
    path: str | Path, *, one_based: bool = False, lengths: Lengths | None = None, pairs: int | None = None
) -> list[Alignment]:
    """Read either format, told apart by the first line that is not blank: NAACL has bare numbers, Pharaoh has links."""
    lines = read_lines(path)
    first = next((line for line in lines if line.strip()), "")
    if _NAACL.fullmatch(first.strip()):
        return _naacl(lines, path, len(lengths) if lengths is not None else pairs, lengths)
    return _pharaoh(lines, path, one_based, lengths)


def read_pharaoh(path: str | Path, *, one_based: bool = False, lengths: Lengths | None = None) -> list[Alignment]:
    """Read one alignment a line; with `lengths` (words of source and target) a link beyond them is an error."""
    return _pharaoh(read_lines(path), path, one_based, lengths)


def read_naacl(path: str | Path, *, lengths: Lengths | None = None, pairs: int | None = None) -> list[Alignment]:
    """Read one link a line; sentences without a line have no links.

    `pairs` (or the number of `lengths`) says how many sentence pairs there are; otherwise the highest number found
    does. A word 0 stands for "aligned to nothing" and makes no link. Confidences are read past.
    """
    return _naacl(read_lines(path), path, len(lengths) if lengths is not None else pairs, lengths)


def _pharaoh(lines: list[str], path: str | Path, one_based: bool, lengths: Lengths | None) -> list[Alignment]:
    if lengths is not None and len(lines) != len(lengths):
        raise ValueError(f"{path} has {len(lines)} lines for {len(lengths)} sentence pairs; it needs one for each")
    alignments = []
    for number, line in enumerate(lines, start=1):
        where = f"{path}:{number}"
        links: dict[str, set[Link]] = {"-": set(), "p": set(), "?": set()}
        for token in line.split():
            link, mark = _pharaoh_link(token, one_based, where)
            if lengths is not None:
                _check_range(link, lengths[number - 1], where)
            links[mark].add(link)
        alignments.append(Alignment(frozenset(links["-"]), frozenset(links["p"] | links["?"])))
    return alignments


def _pharaoh_link(token: str, one_based: bool, where: str) -> tuple[Link, str]:
    match = _PHARAOH.fullmatch(token)
    if match is None:
        raise ValueError(
            f"{where}: {token!r} is no Pharaoh link; write source and target word joined by - (sure) or p (possible), "
            "such as 0-0 or 3p4"
        )
    source, target = int(match[1]) - one_based, int(match[3]) - one_based
    if source < 0 or target < 0:
        raise ValueError(f"{where}: {token!r} has a word 0, but words were said to count from 1; read it as 0-based")
    return (source, target), match[2]


def _naacl(lines: list[str], path: str | Path, pairs: int | None, lengths: Lengths | None) -> list[Alignment]:
    links: dict[str, defaultdict[int, set[Link]]] = {"S": defaultdict(set), "P": defaultdict(set)}
    most, last = _MOST_PAIRS if pairs is None else pairs, 0
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        where = f"{path}:{number}"
        sentence, link, mark = _naacl_link(line.strip(), where)
        if sentence > most:
            raise ValueError(f"{where}: sentence {sentence} is beyond the {most} there can be; check the first column")
        last = max(last, sentence)
        if min(link) < 0:
            continue
        if lengths is not None:
            _check_range(link, lengths[sentence - 1], where)
        links[mark][sentence].add(link)
    numbers = range(1, (last if pairs is None else pairs) + 1)
    nothing: frozenset[Link] = frozenset()
    return [Alignment(*(frozenset(links[mark].get(number, nothing)) for mark in "SP")) for number in numbers]


def _naacl_link(line: str, where: str) -> tuple[int, Link, str]:
    match = _NAACL.fullmatch(line)
    if match is None or int(match[1]) == 0:
        raise ValueError(
            f"{where}: {line!r} is no NAACL link; write sentence, source word and target word, counted from 1, then "
            "optionally S or P and a confidence up to 1, such as: 1 4 5 P 0.9"
        )
    return int(match[1]), (int(match[2]) - 1, int(match[3]) - 1), (match[4] or "S").upper()


def _check_range(link: Link, length: tuple[int, int], where: str) -> None:
    for side, word, words in zip(("source", "target"), link, length, strict=True):
        if word >= words:
            raise ValueError(
                f"{where}: link {link[0]}-{link[1]} (counted from 0) points beyond the {words} words of its {side} "
                "sentence; check that text and alignment belong together, and whether words count from 0 or 1"
            )


def format_pharaoh(alignment: Alignment, *, one_based: bool = False) -> str:
    """One line of links in order: `-` for sure, `p` for possible."""
    return " ".join(
        f"{source + one_based}{'-' if (source, target) in alignment.sure else 'p'}{target + one_based}"
        for source, target in sorted(alignment.possible)
    )


def format_naacl(alignments: Iterable[Alignment]) -> Iterator[str]:
    """Lines `sentence source target S|P`, counted from 1."""
    for sentence, alignment in enumerate(alignments, start=1):
        for source, target in sorted(alignment.possible):
            yield f"{sentence} {source + 1} {target + 1} {'S' if (source, target) in alignment.sure else 'P'}"
