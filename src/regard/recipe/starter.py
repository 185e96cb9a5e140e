"""Write a starter recipe for the files of a user, with comments that say what to change."""

import json
from collections.abc import Sequence
from pathlib import Path

from regard.files import read_lines

COUNTED = 1_000_000  # lines after which counting ends
TRANSLATION_FILES = ("train.en", "train.de")
VOCABULARIES = ((3_000, 1000), (10_000, 2000), (50_000, 4000), (COUNTED, 8000))
"""Sizes of a vocabulary for corpora below a number of lines."""
LARGE_VOCABULARY = 32_000
SMALL_CORPUS = 50_000
"""Lines below which a tiny model learns as much."""

_TEMPLATE = """\
# A recipe for regard; {explanation}. `regard recipe explain KEY` explains a setting,
# `regard recipe show {name}.toml` prints them all, and `regard train {name}.toml --dry-run` estimates the cost.
# Settings that are not named here are chosen for the corpus, the device and the time.

name = "{name}"                 # the run is in runs/{name}
task = "{task}"

[data]
train = [{train}]
# Text that is not used for training chooses the best weights and measures them; some hundred lines are enough:
# valid = {valid}
# test = {test}

[text]
size = {vocabulary}                   # entries of the vocabulary; fewer for less text

[model]
size = "{size}"                  # tiny, small, base or big

[train]
minutes = 10.0                # the learning rate schedule follows this time; or name steps = 5000 instead
"""


def starter(files: Sequence[str] = (), name: str = "mine") -> str:
    """Return a commented recipe for training files, as TOML.

    Args:
        files: Two text files with a sentence per line for translation; one TSV or JSONL file of sentence pairs; or one
            text file for a language model. Without files, the recipe names files to be replaced.
        name: The name of the run.

    Raises:
        ValueError: If a file does not exist, or there are more than two.
    """
    if len(files) > 2:
        raise ValueError(f"{len(files)} files: name two text files, or one TSV, JSONL or text file; add others by hand")
    lines = min((_count_lines(file) for file in files), default=SMALL_CORPUS)
    pairs = len(files) != 1 or files[0].removesuffix(".gz").endswith((".tsv", ".jsonl", ".json"))
    vocabulary = next((size for limit, size in VOCABULARIES if lines < limit), LARGE_VOCABULARY)
    return _TEMPLATE.format(
        name=name,
        explanation=f"{lines:,} lines" if files else "replace the names of the files",
        task="translation" if pairs else "language_model",
        train=_corpus(files),
        valid=_corpus([_held_out(file, "valid") for file in files or TRANSLATION_FILES]),
        test=_corpus([_held_out(file, "test") for file in files or TRANSLATION_FILES]),
        vocabulary=vocabulary,
        size="tiny" if lines < SMALL_CORPUS else "small",
    )


def _corpus(files: Sequence[str]) -> str:
    """Return a corpus as an inline table."""
    quoted = [json.dumps(file, ensure_ascii=False) for file in files or TRANSLATION_FILES]
    if len(quoted) == 2:
        return f"{{ source = {quoted[0]}, target = {quoted[1]} }}"
    key = "path" if files[0].removesuffix(".gz").endswith((".tsv", ".jsonl", ".json")) else "text"
    return f"{{ {key} = {quoted[0]} }}"


def _held_out(file: str, part: str) -> str:
    """Return the name that a file of validation or test text would have beside a training file."""
    path = Path(file)
    return str(path.with_name(part + "".join(path.suffixes)))


def _count_lines(file: str) -> int:
    """Return the number of lines of a file, counted up to a limit."""
    if not Path(file).is_file():
        raise ValueError(f"{file} does not exist; name your training files, or none for a recipe with other names")
    count = 0
    for lines in read_lines(Path(file)):
        count += len(lines)
        if count >= COUNTED:
            break
    return count
