"""Write a starter recipe for the files of a user, with comments that say what to change."""

import json
from collections.abc import Sequence
from pathlib import Path

from regard.files import read_lines

COUNTED = 1_000_000  # lines after which counting ends
STARTER_FILES = {
    "translation": ("train.en", "train.de"),
    "language_model": ("train.txt",),
    "chat": ("train.jsonl",),
}
"""The tasks with a starter recipe, and the names of files in it that are to be replaced."""
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


def starter(files: Sequence[str] = (), name: str = "mine", task: str | None = None) -> str:
    """Return a commented recipe for training files, as TOML.

    Args:
        files: Two text files with a sentence per line for translation; one TSV or JSONL file of sentence pairs; one
            text file for a language model; or one file of dialogues for chat. Without files, the recipe names files to
            be replaced.
        name: The name of the run.
        task: The task. By default, the files decide: a JSONL file whose first line has an array of turns is for chat.

    Raises:
        ValueError: If a file does not exist, there are too many, or there is no starter recipe for the task.
    """
    if len(files) > 2:
        raise ValueError(f"{len(files)} files: name two text files, or one TSV, JSONL or text file; add others by hand")
    lines = min((_count_lines(file) for file in files), default=SMALL_CORPUS)
    chosen = task or _task_of(files)
    if chosen not in STARTER_FILES:
        raise ValueError(f"there is no starter recipe for task '{chosen}', but for {', '.join(STARTER_FILES)}")
    if chosen != "translation" and len(files) > 1:
        raise ValueError(f"{len(files)} files: name one file for task '{chosen}'; add others by hand")
    if chosen == "chat" and files and _is_json(files[0]):
        lines *= _turns_of_first_line(files[0])
    names = tuple(files) or STARTER_FILES[chosen]
    return _TEMPLATE.format(
        name=name,
        explanation=f"{lines:,} {'turns' if chosen == 'chat' else 'lines'}"
        if files
        else "replace the names of the files",
        task=chosen,
        train=_corpus(names, chosen),
        valid=_corpus([_held_out(file, "valid") for file in names], chosen),
        test=_corpus([_held_out(file, "test") for file in names], chosen),
        vocabulary=next((size for limit, size in VOCABULARIES if lines < limit), LARGE_VOCABULARY),
        size="tiny" if lines < SMALL_CORPUS else "small",
    )


def _task_of(files: Sequence[str]) -> str:
    """Return the task that files look like."""
    if len(files) != 1:
        return "translation"
    if _is_json(files[0]) and _turns_of_first_line(files[0]):
        return "chat"
    return "translation" if _is_table(files[0]) else "language_model"


def _corpus(files: Sequence[str], task: str) -> str:
    """Return a corpus as an inline table."""
    quoted = [json.dumps(file, ensure_ascii=False) for file in files]
    if len(quoted) == 2:
        return f"{{ source = {quoted[0]}, target = {quoted[1]} }}"
    key = "text" if task == "language_model" and not _is_table(files[0]) else "path"
    return f"{{ {key} = {quoted[0]} }}"


def _is_table(file: str) -> bool:
    """Return whether the records of a file have several fields."""
    return _is_json(file) or file.removesuffix(".gz").endswith(".tsv")


def _is_json(file: str) -> bool:
    """Return whether a file has a JSON object on each line."""
    return file.removesuffix(".gz").endswith((".jsonl", ".json"))


def _turns_of_first_line(file: str) -> int:
    """Return how many turns the dialogue on the first line of a file has; 0 if it is none."""
    first = next((line for lines in read_lines(Path(file)) for line in lines if line.strip()), "")
    try:
        value = json.loads(first or "null")
    except ValueError:
        return 0
    turns = value.get("turns") if isinstance(value, dict) else None
    return len(turns) if isinstance(turns, list) else 0


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
