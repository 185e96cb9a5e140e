"""Read corpora of pictures: lists of image files with captions or labels, and archives of pictures.

A record names its picture by a string that `regard.data.pictures.load_image` reads, such as `photos/dog.jpg` or
`train.images.npz#17`. No picture is read here.
"""

import json
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from regard.data.archive import find_packed, open_archive
from regard.data.fields.lists import SEPARATOR
from regard.files import read_lines
from regard.recipe import ImagesCorpus

CHUNK = 256
"""Records that are read at once: as many pictures are in memory when they are encoded."""

Examples = tuple[list[str], list[str], list[int]]
"""Names of pictures, their captions or labels, and the line or number of each record, counted from 1."""


def read_images(corpus: ImagesCorpus, paths: Sequence[Path], root: Path, has_captions: bool) -> Iterator[Examples]:
    """Yield the records of a corpus, many at once.

    Args:
        corpus: The settings of the corpus.
        paths: Its files.
        root: The folder from which the paths of pictures in a list start.
        has_captions: Whether records have captions, and not a label.

    Raises:
        ValueError: If a file is malformed. The message names the line.
    """
    is_packed = corpus.is_packed
    records = _read_archive(paths, has_captions) if is_packed else _read_list(paths[0], root, has_captions)
    while part := list(islice(records, CHUNK)):
        names, texts, lines = zip(*part, strict=True)
        yield list(names), list(texts), list(lines)


def image_files(path: Path, root: Path, has_captions: bool) -> list[Path]:
    """Return the files of the pictures in a list, in order.

    Raises:
        ValueError: If one does not exist. The message names the line.
    """
    files = []
    for name, _, line in _read_list(path, root, has_captions):
        packed = find_packed(name)
        file = Path(name) if packed is None else packed[0]
        if not file.is_file():
            what = "is a folder" if file.is_dir() else "does not exist"
            raise ValueError(
                f"{path}, line {line}: the picture {file} {what}. Fix the path, or data.root = '{root}', from which it "
                "starts."
            )
        files.append(file)
    return files


def _read_list(path: Path, root: Path, has_captions: bool) -> Iterator[tuple[str, str, int]]:
    """Yield name, captions or label, and line of the pictures in a TSV or JSONL file."""
    is_json = path.name.removesuffix(".gz").endswith((".jsonl", ".json"))
    root, number = root.expanduser(), 0
    for lines in read_lines(path):
        for line in lines:
            number += 1
            where = f"{path}, line {number}"
            name, text = (_json_record if is_json else _tsv_record)(where, line, has_captions)
            yield str(root / Path(name).expanduser()), text, number


def _tsv_record(where: str, line: str, has_captions: bool) -> tuple[str, str]:
    """Return the picture of a line, and its captions or its label."""
    name, *texts = line.split("\t")
    if not name.strip() or not texts:
        what = "captions" if has_captions else "a label"
        raise ValueError(f"{where}: needs the path of a picture, a tab and {what}. Fix or delete the line.")
    return name.strip(), SEPARATOR.join(texts) if has_captions else texts[0].strip()


def _json_record(where: str, line: str, has_captions: bool) -> tuple[str, str]:
    """Return the picture of a JSON object, and its captions or its label."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where}: not JSON ({error}). Each line must be one JSON object.") from error
    key = "captions" if has_captions else "label"
    if not isinstance(value, dict) or not {"image", key} <= value.keys():
        keys = ", ".join(map(repr, list(value)[:10])) if isinstance(value, dict) else "none"
        raise ValueError(f"{where}: needs an object with the keys 'image' and '{key}'; its keys are: {keys}.")
    name, texts = value["image"], value[key]
    if not has_captions and isinstance(texts, int):  # also numbers are labels
        texts = str(texts)
    texts = [texts] if isinstance(texts, str) else texts
    is_list = isinstance(texts, list) and all(isinstance(text, str) for text in texts)
    if not isinstance(name, str) or not name.strip() or not is_list or (not has_captions and len(texts) != 1):
        allowed = "a string or an array of strings" if has_captions else "a string"
        raise ValueError(f"{where}: 'image' must be the path of a picture, and '{key}' {allowed}.")
    try:
        (name + "".join(texts)).encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{where}: contains a lone surrogate, which is no character.") from error
    return name, SEPARATOR.join(" ".join(text.split()) for text in texts)


def _read_archive(paths: Sequence[Path], has_captions: bool) -> Iterator[tuple[str, str, int]]:
    """Yield name, captions or label, and number of the pictures of an archive."""
    archive = open_archive(paths[0])
    if not has_captions:
        texts = archive.labels()
    else:
        lines = [line for part in read_lines(paths[1]) for line in part]
        if len(lines) != len(archive):
            raise ValueError(
                f"{paths[1]} has {len(lines):,} lines, but {paths[0]} has {len(archive):,} pictures. Line k must "
                "belong to picture k."
            )
        texts = [line.partition("\t")[2] for line in lines]
    for number, text in enumerate(texts):
        yield archive.name(number), text, number + 1
