"""Lines to a SentencePiece model: the same lines in the same order give the same model, bit for bit."""

import io
import logging
import math
import random
import re
from collections.abc import Iterable
from itertools import islice
from typing import TypeVar

import sentencepiece

from regard.text import proto
from regard.text.prepare import Prepare
from regard.text.settings import END, PAD, SPACE, START, UNK, Settings

log = logging.getLogger(__name__)

SAMPLE = 1_000_000  # lines kept to learn from; more would cost memory and change a vocabulary little
LONGEST = 2_000  # characters of a line that are kept
AFFORDABLE = 8_000_000  # characters of different words (for unigram, of text) that are learned from: about 600 MiB
_THREADS = 8  # fixed: unigram learning adds up in an order that depends on the number of threads

T = TypeVar("T")


def reservoir(items: Iterable[T], most: int, seed: int) -> list[T]:
    """At most `most` items of a stream, each as likely as any other (Li 1994, algorithm L)."""
    stream = iter(items)
    kept = list(islice(stream, most))
    draw = random.Random(seed)
    weight = 1.0
    while True:
        weight *= math.exp(math.log(1 - draw.random()) / most)
        skip = int(math.log(1 - draw.random()) / math.log1p(-weight)) if weight < 1 else 0
        item = list(islice(stream, skip, skip + 1))
        if not item:
            return kept
        kept[draw.randrange(most)] = item[0]


def affordable(lines: list[str], most: int, kind: str, seed: int) -> list[str]:
    """A random part of the lines that fits into memory and minutes, in their order.

    What counts are the characters of different words, few unless a script writes no spaces; for unigram, whose
    first step looks at whole lines, all characters.
    """
    if sum(map(len, lines)) <= most:
        return lines
    order = list(range(len(lines)))
    random.Random(seed).shuffle(order)
    seen: set[str] = set()
    spent = 0
    for kept, at in enumerate(order):
        new = [lines[at]] if kind == "unigram" else set(lines[at].split(" ")) - seen
        seen.update(new if kind != "unigram" else ())
        spent += sum(map(len, new))
        if spent > most:
            return [lines[each] for each in sorted(order[: max(kept, 1)])]
    return lines


def learn(lines: Iterable[str], size: int, settings: Settings, seed: int = 0) -> bytes:
    """Learn a vocabulary of `size` ids and return the model file.

    A size the text cannot fill is lowered, with a note in the log; one that cannot hold even the characters is a
    ValueError that names the smallest that can.
    """
    if size <= settings.reserved:
        raise _too_small(size, settings.reserved + 1)
    prepare = Prepare(settings)
    kept = reservoir((line[:LONGEST] for line in lines), SAMPLE, seed)
    ready = [line for line in (_without_symbols(prepare.line(line), settings) for line in kept) if line.strip()]
    if not ready:
        raise ValueError(f"no text to learn a vocabulary from: {len(kept)} lines, all of them empty")
    ready = affordable(ready, AFFORDABLE, settings.kind, seed)
    model = proto.read(_train(ready, size, settings)).without({SPACE + symbol for symbol in settings.symbols})
    if len(model.pieces) < size:
        log.warning(
            "the text yields a vocabulary of %d pieces, fewer than the %d asked for; going on with %d",
            len(model.pieces),
            size,
            len(model.pieces),
        )
    return (model.lowered() if settings.lowercase else model).write()


def _without_symbols(line: str, settings: Settings) -> str:
    """For words, the line without its symbols, which SentencePiece would learn once more as words."""
    if settings.kind == "word":
        for symbol in settings.symbols:
            line = line.replace(symbol, " ")
    return line


def _train(lines: list[str], size: int, settings: Settings) -> bytes:
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines),
            model_writer=model,
            model_type=settings.kind,
            # A word model gets each symbol twice from SentencePiece, with a space before it and without.
            vocab_size=size + len(settings.symbols) * (settings.kind == "word"),
            hard_vocab_limit=False,
            # With bytes to fall back on, the rarest characters need no ids of their own.
            character_coverage=0.9995 if settings.bytes else 1.0,
            byte_fallback=settings.bytes,
            normalization_rule_name=settings.normalise,
            remove_extra_whitespaces=settings.collapses,
            user_defined_symbols=list(settings.symbols),
            pad_id=PAD,
            unk_id=UNK,
            bos_id=START,
            eos_id=END,
            max_sentence_length=8 * LONGEST,
            num_threads=_THREADS,
            minloglevel=3,
        )
    except RuntimeError as fault:
        if found := re.search(r"smaller than required_chars. \d+ vs (\d+)", str(fault)):
            raise _too_small(size, int(found[1])) from None
        raise ValueError(
            f"no {settings.kind} vocabulary can be learned from these {len(lines)} lines: {fault}"
        ) from None
    return model.getvalue()


def _too_small(size: int, smallest: int) -> ValueError:
    return ValueError(
        f"a vocabulary of {size} is too small for the characters of this text: give it at least {smallest}, "
        "counting four reserved ids, the symbols, and 256 bytes where bytes are on"
    )
