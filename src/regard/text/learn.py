"""Learning a SentencePiece model from lines: the same lines in the same order give the same model, bit for bit."""

import io
import logging
import math
import random
import re
from collections.abc import Iterable
from itertools import chain, islice
from typing import Any, TypeVar

import sentencepiece

from regard.text import proto
from regard.text.prepare import Preparation, split_lines
from regard.text.settings import END, PAD, SPACE, START, UNK, TokenizerSettings

log = logging.getLogger(__name__)

SAMPLE = 1_000_000  # lines to learn from at most; more would cost memory and change a vocabulary little
LONGEST = 2_000  # characters used of a line; documents are split into lines of at most this length instead
MEMORY_LIMIT = 8_000_000  # characters of distinct words (for unigram, of text) to learn from: about 600 MiB
_THREADS = 8  # fixed: unigram learning sums in an order that depends on the number of threads

T = TypeVar("T")


def reservoir(items: Iterable[T], size: int, seed: int) -> list[T]:
    """Draw a uniform sample of at most `size` items from a stream of unknown length (Li 1994, algorithm L)."""
    stream = iter(items)
    sample = list(islice(stream, size))
    draw = random.Random(seed)
    weight = 1.0
    while True:
        weight *= math.exp(math.log(1 - draw.random()) / size)
        skip = int(math.log(1 - draw.random()) / math.log1p(-weight)) if weight < 1 else 0
        item = list(islice(stream, skip, skip + 1))
        if not item:
            return sample
        sample[draw.randrange(size)] = item[0]


def limit_text(lines: list[str], max_characters: int, kind: str, seed: int) -> list[str]:
    """Return a random part of the lines, in order, that SentencePiece can learn from within its memory.

    Memory grows with the characters of distinct words, which are few unless a script writes no spaces. For unigram,
    whose first step builds a suffix array of all lines, it grows with all characters.
    """
    if sum(map(len, lines)) <= max_characters:
        return lines
    order = list(range(len(lines)))
    random.Random(seed).shuffle(order)
    seen: set[str] = set()
    characters = 0
    for count, index in enumerate(order):
        new = [lines[index]] if kind == "unigram" else set(lines[index].split(" ")) - seen
        seen.update(new if kind != "unigram" else ())
        characters += sum(map(len, new))
        if characters > max_characters:
            return [lines[number] for number in sorted(order[: max(count, 1)])]
    return lines


def learn(lines: Iterable[str], size: int, settings: TokenizerSettings, seed: int = 0) -> bytes:
    """Learn a vocabulary and return the model file.

    Args:
        lines: The text. With `settings.multiline` each item is a document, and all of its lines are used; without,
            the first 2,000 characters of each item are.
        size: The number of ids, reserved ones included. If the text has too few pieces, the vocabulary is smaller and
            a warning is logged.
        settings: How text is segmented.
        seed: The seed of the sample of a large corpus.

    Raises:
        ValueError: If the size cannot hold the characters of the text; the message names the smallest that can.
    """
    if size <= settings.reserved:
        raise _too_small(size, settings.reserved + 1)
    preparation = Preparation(settings)
    if settings.multiline:
        lines = chain.from_iterable(split_lines(document, LONGEST) for document in lines)
    sample = reservoir((line[:LONGEST] for line in lines), SAMPLE, seed)
    prepared = (_without_symbols(preparation.line(line), settings) for line in sample)
    ready = [line for line in prepared if line.strip()]
    if not ready:
        raise ValueError(f"no text to learn a vocabulary from: {len(sample)} lines, all of them empty; name other text")
    ready = limit_text(ready, MEMORY_LIMIT, settings.kind, seed)
    model = proto.read(_train(ready, size, settings)).without({SPACE + symbol for symbol in settings.symbols})
    if len(model.pieces) < size:
        log.warning(
            "the text yields a vocabulary of %d pieces, fewer than the %d asked for; continuing with %d",
            len(model.pieces),
            size,
            len(model.pieces),
        )
    return (model.lowercased() if settings.lowercase else model).write()


def _without_symbols(line: str, settings: TokenizerSettings) -> str:
    """Remove the symbols from a line for kind `word`, because SentencePiece would learn them as words as well."""
    if settings.kind == "word":
        for symbol in settings.symbols:
            line = line.replace(symbol, " ")
    return line


def _train(lines: list[str], size: int, settings: TokenizerSettings) -> bytes:
    model = io.BytesIO()
    # With bytes to fall back on, the rarest characters need no ids of their own. In documents of kind `char` they have
    # them, so that there are as many tokens as characters.
    covers_all = not settings.bytes or (settings.multiline and settings.kind == "char")
    # Naming the default would add it to the model file, and so change the fingerprint of every tokenizer.
    prefix: dict[str, Any] = {"add_dummy_prefix": False} if settings.multiline else {}
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines),
            model_writer=model,
            model_type=settings.kind,
            # A word model gets each symbol twice from SentencePiece, with a space before it and without.
            vocab_size=size + len(settings.symbols) * (settings.kind == "word"),
            hard_vocab_limit=False,
            character_coverage=1.0 if covers_all else 0.9995,
            byte_fallback=settings.bytes,
            normalization_rule_name=settings.normalise,
            remove_extra_whitespaces=settings.collapses,
            user_defined_symbols=list(settings.unsplit),
            pad_id=PAD,
            unk_id=UNK,
            bos_id=START,
            eos_id=END,
            max_sentence_length=8 * LONGEST,
            num_threads=_THREADS,
            minloglevel=3,
            **prefix,
        )
    except RuntimeError as error:
        if match := re.search(r"smaller than required_chars. \d+ vs (\d+)", str(error)):
            raise _too_small(size, int(match[1])) from None
        raise ValueError(
            f"no {settings.kind} vocabulary can be learned from these {len(lines)} lines: {error}"
        ) from None
    return model.getvalue()


def _too_small(size: int, smallest: int) -> ValueError:
    return ValueError(
        f"a vocabulary of {size} is too small for the characters of this text: set the size to at least {smallest}, "
        "which counts four reserved ids, the symbols, and 256 bytes if bytes are on"
    )
