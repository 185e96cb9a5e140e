"""Lists of words, tags or labels that are written as one string."""

from collections.abc import Sequence

SEPARATOR = "\t"
"""Separates the parts of a value whose parts are given, such as the words of a tagged sentence."""


def join_list(entries: Sequence[str]) -> str:
    """Return a list as one string, from which `split_list` gets the same entries, also if they contain spaces."""
    return SEPARATOR.join(entries) + SEPARATOR * (len(entries) == 1)


def split_list(value: str, separator: str | None = None) -> list[str]:
    """Return the entries of a list that is written as one string: separated by tabs or, without one, by `separator`.

    Args:
        value: The list. Entries of a JSON array are joined by tabs, so they may hold any other character.
        separator: Default: white space.
    """
    entries = value.split(SEPARATOR) if SEPARATOR in value else value.split(separator)
    return [stripped for entry in entries if (stripped := entry.strip())]


def split_turns(value: str) -> list[str]:
    """Return the turns of a history that is written as one string, without those that have no text."""
    return [turn for entry in value.split(SEPARATOR) if (turn := on_one_line(entry))]


def on_one_line(turn: str) -> str:
    """Return a turn with each run of white space, also line breaks and tabs, as one space."""
    return " ".join(turn.split())
