"""Lines to what a search takes: the ids of each line, or of each of its parts, with what is asked for it."""

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from regard.decode import Wish
from regard.text import Tokenizers
from regard.translator.options import Options, Request
from regard.translator.splitting import leading_symbols, split


@dataclass(frozen=True)
class Job:
    """A line, or a part of one, as ids."""

    symbols: int
    """How many of the ids are symbols that stood before the line."""
    start: int
    """Where in the line its text begins."""
    text: str
    ids: tuple[int, ...]
    wish: Wish
    avoid: tuple[str, ...]
    last: bool
    """Whether it is the last part of its line."""


def jobs(request: Request, tokenizers: Tokenizers, options: Options, longest: int) -> tuple[Job, ...]:
    """What there is to translate of one line: nothing, the line, or its parts where it has more ids than `longest`."""
    tokenizer = tokenizers.source
    symbols, begin = leading_symbols(request.line, tokenizer)
    line = request.line[begin:]
    ids = tokenizer.encode(line)
    if not ids:
        return ()
    room = longest - len(symbols)
    if len(ids) <= room:
        parts = [(line, ids, begin)]
    elif options.long == "error":
        raise ValueError(
            f"it has {len(symbols) + len(ids)} tokens, more than the {longest} this model was trained on; "
            "shorten it, or let it be split (long = split)"
        )
    else:
        spans = split(line, tokenizer, max(1, room))
        parts = [(line[a:b], tokenizer.encode(line[a:b]), begin + a) for a, b in spans]
    return tuple(_made(request, symbols, parts, tokenizers, options))


def _made(
    request: Request,
    symbols: list[int],
    parts: Sequence[tuple[str, list[int], int]],
    tokenizers: Tokenizers,
    options: Options,
) -> Iterator[Job]:
    """A job for each part: the first has the prefix, and each phrase falls to the part its term stands in."""
    encode = tokenizers.target.encode
    avoid = (*options.avoid, *request.avoid)
    for at, (text, ids, start) in enumerate(parts):
        prefix = (request.prefix or options.prefix) if at == 0 else ""
        asked = (*options.constraints, *request.constraints) if at == 0 else ()
        phrases = dict.fromkeys((*asked, *options.terms.of(text)))
        begun = encode(prefix)
        wish = Wish(
            source=len(symbols) + len(ids),
            prefix=tuple(begun),
            # What the prefix already says need not be said again.
            phrases=tuple(tuple(encode(phrase)) for phrase in phrases if phrase and phrase not in prefix),
            avoid=tuple(tuple(encode(phrase)) for phrase in avoid if phrase),
            # The line itself goes into the seed, so that equal lines draw equally and different ones differently.
            seed=(options.seed << 32) | zlib.crc32(text.encode(errors="replace")),
        )
        yield Job(len(symbols), start, text, (*symbols, *ids), wish, avoid, at == len(parts) - 1)
