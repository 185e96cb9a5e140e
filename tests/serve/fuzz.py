"""Bytes nobody would think of, for the request parser: python fuzz.py -atheris_runs=10000

Whatever comes, a request is read or refused with a sentence; anything else is a crash, which atheris reports.
"""

import sys
from contextlib import suppress

import atheris

from regard.serve.settings import Limits
from regard.serve.wire import Asked, Pairs, Tokens, Translate, read

KINDS: tuple[type[Asked], ...] = (Translate, Pairs, Tokens)
LIMITS = Limits(characters=500, sentences=5)


def one(data: bytes) -> None:
    """Read some bytes as each kind of request."""
    for kind in KINDS:
        with suppress(ValueError):
            assert read(kind, data, LIMITS).characters() <= LIMITS.characters


if __name__ == "__main__":
    atheris.Setup(sys.argv, one)
    atheris.Fuzz()
