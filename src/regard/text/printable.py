"""Texts of users and models as they are printed: on one line, and unable to control a terminal."""

import json
import re

_CONTROLS = re.compile("[\0-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters, which begin the escape sequences of terminals; line and paragraph separators; characters that
change the direction of the text after them; and lone surrogates, which no encoding has."""


def printable(text: str) -> str:
    r"""Return a text with its control characters as escape sequences.

    >>> print(printable("red:\x1b[31m\n"))
    red:\x1b[31m\n
    """
    return text if text.isprintable() else _CONTROLS.sub(lambda match: repr(match[0])[1:-1], text)


def printable_json(value: object) -> str:
    """Return a value as JSON on one line; only control characters are escaped, so that text stays readable."""
    return _CONTROLS.sub(lambda match: f"\\u{ord(match[0]):04x}", json.dumps(value, ensure_ascii=False))
