"""Read files of sentences and of word alignments.

Pharaoh: a line per sentence pair with links `0-0 1-2 3p4`; `-` is sure, `p` or `?` is possible; words count from 0.
NAACL (also called WPT): a line per link, `sentence source target [S|P] [confidence]`; everything counts from 1.
"""

import re
import sys
from collections import defaultdict
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

from regard import files
from regard.score.alignment import Alignment, Link

SentenceLengths = Sequence[tuple[int, int]]
"""Number of source and target words of each sentence pair."""

_PHARAOH = re.compile(r"([0-9]{1,9})([-p?])([0-9]{1,9})")
_NAACL = re.compile(
    r"([0-9]{1,9})\s+([0-9]{1,9})\s+([0-9]{1,9})"
    r"(?:\s+([SPsp]))?"
    r"(?:\s+(?:[01]|[01]?\.[0-9]+|[01]\.|[0-9](?:\.[0-9]+)?[eE]-[0-9]+))?"  # the confidence, at most about 1
)
_MAX_PAIRS = 10_000_000  # a wrong first column must not create a list of a billion sentences


def read_sentences(path: str | Path) -> list[str]:
    """Read the lines of a file, plain or gzip, or of standard input for `-`, without trailing white space.

    Lines end where sacrebleu's own command ends them.

    Raises:
        FileNotFoundError: If there is no such file.
        IsADirectoryError: If the path is a directory.
        ValueError: If the file is empty.
    """
    file = Path(path)
    if str(path) != "-" and file.is_dir():
        raise IsADirectoryError(f"{path} is a directory; give the file of sentences in it")
    if str(path) != "-" and not file.exists():
        raise FileNotFoundError(f"{path} does not exist; check the path (relative to {Path.cwd()})")
    blocks = files.read_lines(Path("standard input"), sys.stdin.buffer) if str(path) == "-" else files.read_lines(file)
    lines = [line.rstrip() for line in chain.from_iterable(blocks)]
    if not lines:
        raise ValueError(f"{path} is empty; it must hold one sentence per line")
    return lines


def read_alignments(
    path: str | Path, *, one_based: bool = False, lengths: SentenceLengths | None = None, pairs: int | None = None
) -> list[Alignment]:
    """Read a file in Pharaoh or NAACL format, recognised by its first line that is not blank.

    See `read_pharaoh` and `read_naacl` for the arguments.
    """
    lines = read_sentences(path)
    first = next((line for line in lines if line.strip()), "")
    if _NAACL.fullmatch(first.strip()):
        return _parse_naacl(lines, path, len(lengths) if lengths is not None else pairs, lengths)
    return _parse_pharaoh(lines, path, one_based, lengths)


def read_pharaoh(
    path: str | Path, *, one_based: bool = False, lengths: SentenceLengths | None = None
) -> list[Alignment]:
    """Read a file in Pharaoh format, one alignment per line.

    Args:
        path: The file, or `-` for standard input.
        one_based: Whether words count from 1.
        lengths: Numbers of words, against which links are checked.
    """
    return _parse_pharaoh(read_sentences(path), path, one_based, lengths)


def read_naacl(
    path: str | Path, *, lengths: SentenceLengths | None = None, pairs: int | None = None
) -> list[Alignment]:
    """Read a file in NAACL format, one link per line; sentences without a line have no links.

    A word 0 means "aligned to nothing" and gives no link. Confidences are ignored.

    Args:
        path: The file, or `-` for standard input.
        lengths: Numbers of words, against which links are checked.
        pairs: Number of sentence pairs; by default that of `lengths`, or else the highest number in the file.
    """
    return _parse_naacl(read_sentences(path), path, len(lengths) if lengths is not None else pairs, lengths)


def _parse_pharaoh(
    lines: list[str], path: str | Path, one_based: bool, lengths: SentenceLengths | None
) -> list[Alignment]:
    if lengths is not None and len(lines) != len(lengths):
        raise ValueError(f"{path} has {len(lines)} lines for {len(lengths)} sentence pairs; it needs one line per pair")
    alignments = []
    for number, line in enumerate(lines, start=1):
        where = f"{path}:{number}"
        links: dict[str, set[Link]] = {"-": set(), "p": set(), "?": set()}
        for token in line.split():
            link, mark = _parse_pharaoh_link(token, one_based, where)
            if lengths is not None:
                _check_range(link, lengths[number - 1], where)
            links[mark].add(link)
        alignments.append(Alignment(frozenset(links["-"]), frozenset(links["p"] | links["?"])))
    return alignments


def _parse_pharaoh_link(token: str, one_based: bool, where: str) -> tuple[Link, str]:
    match = _PHARAOH.fullmatch(token)
    if match is None:
        raise ValueError(
            f"{where}: {token!r} is not a Pharaoh link; join source and target word by - (sure) or p (possible), "
            "such as 0-0 or 3p4"
        )
    source, target = int(match[1]) - one_based, int(match[3]) - one_based
    if source < 0 or target < 0:
        raise ValueError(
            f"{where}: {token!r} has a word 0, but words were declared to count from 1; read it as 0-based"
        )
    return (source, target), match[2]


def _parse_naacl(
    lines: list[str], path: str | Path, pairs: int | None, lengths: SentenceLengths | None
) -> list[Alignment]:
    links: dict[str, defaultdict[int, set[Link]]] = {"S": defaultdict(set), "P": defaultdict(set)}
    limit, last = _MAX_PAIRS if pairs is None else pairs, 0
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        where = f"{path}:{number}"
        sentence, link, mark = _parse_naacl_link(line.strip(), where)
        if sentence > limit:
            raise ValueError(f"{where}: sentence {sentence} exceeds the limit of {limit}; check the first column")
        last = max(last, sentence)
        if min(link) < 0:
            continue
        if lengths is not None:
            _check_range(link, lengths[sentence - 1], where)
        links[mark][sentence].add(link)
    numbers = range(1, (last if pairs is None else pairs) + 1)
    nothing: frozenset[Link] = frozenset()
    return [Alignment(*(frozenset(links[mark].get(number, nothing)) for mark in "SP")) for number in numbers]


def _parse_naacl_link(line: str, where: str) -> tuple[int, Link, str]:
    match = _NAACL.fullmatch(line)
    if match is None or int(match[1]) == 0:
        raise ValueError(
            f"{where}: {line!r} is not a NAACL link; write sentence, source word and target word, counted from 1, then "
            "optionally S or P and a confidence up to 1, such as: 1 4 5 P 0.9"
        )
    return int(match[1]), (int(match[2]) - 1, int(match[3]) - 1), (match[4] or "S").upper()


def _check_range(link: Link, length: tuple[int, int], where: str) -> None:
    for side, word, words in zip(("source", "target"), link, length, strict=True):
        if word >= words:
            raise ValueError(
                f"{where}: link {link[0]}-{link[1]} (counted from 0) exceeds the {words} words of the {side} sentence; "
                "check that text and alignment belong together, and whether words count from 0 or 1"
            )
