"""Fuzz the request parser with atheris: python fuzz_requests.py -atheris_runs=10000

Any bytes must be parsed, or refused with a `ValueError`; atheris reports every other exception.
"""

import sys
from contextlib import suppress

import atheris

from regard.serve.requests import LinesRequest, PairsRequest, TokensRequest, TranslateRequest, parse_request
from regard.serve.settings import ServerLimits

KINDS: tuple[type[LinesRequest], ...] = (TranslateRequest, PairsRequest, TokensRequest)
LIMITS = ServerLimits(characters=500, sentences=5)


def fuzz_one_input(data: bytes) -> None:
    """Parse some bytes as each kind of request."""
    for kind in KINDS:
        with suppress(ValueError):
            assert sum(map(len, parse_request(kind, data, LIMITS).texts())) <= LIMITS.characters


if __name__ == "__main__":
    atheris.Setup(sys.argv, fuzz_one_input)
    atheris.Fuzz()
