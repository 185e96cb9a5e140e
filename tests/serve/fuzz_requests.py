"""Fuzz the request parser with atheris: python fuzz_requests.py -atheris_runs=10000

Any bytes must be parsed, or refused with a `ValueError`; atheris reports every other exception.
"""

import sys
from contextlib import suppress

import atheris

from regard.serve.chat_requests import ChatRequest
from regard.serve.openai_chat import parse_completion_request
from regard.serve.requests import (
    ModelRequest,
    PairsRequest,
    TokensRequest,
    TranslateRequest,
    check_size,
    parse_request,
)
from regard.serve.settings import ServerLimits

KINDS: tuple[type[ModelRequest], ...] = (TranslateRequest, PairsRequest, TokensRequest, ChatRequest)
LIMITS = ServerLimits(characters=500, sentences=5)


def fuzz_one_input(data: bytes) -> None:
    """Parse some bytes as each kind of request."""
    for kind in KINDS:
        with suppress(ValueError):
            assert sum(map(len, parse_request(kind, data, LIMITS).texts())) <= LIMITS.characters
    with suppress(ValueError):
        own = parse_completion_request(data).own_request(LIMITS)
        check_size(own, LIMITS)
        assert own.count() == 1


if __name__ == "__main__":
    atheris.Setup(sys.argv, fuzz_one_input)
    atheris.Fuzz()
