"""A trained run and sentence pairs in, what its report draws of them out: attention by word."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from regard.score import Alignment
from regard.text import words
from regard.train.journal import read as read_log
from regard.train.report import AttentionMap, write_report
from regard.translator import Translator, load
from regard.translator.alignment import by_word
from regard.translator.assembling import read

SAMPLES = 4  # maps in a report


def attention_maps(
    translator: Translator, pairs: Sequence[tuple[str, str]], gold: Sequence[Alignment] | None = None
) -> list[AttentionMap]:
    """Whom each word of given translations looked at, read where the translator reads its alignments from.

    What a word gave to the end symbol is left out, so a row may sum to less than one. A model that does not look at its
    source by weights has no maps.
    """
    if translator.aligned_by is None or not pairs:
        return []
    both = translator.tokenizers
    sides = [(read(source, both.source), read(target, both.target, target=True)) for source, target in pairs]
    forced = translator.force([(source[0], target[0]) for source, target in sides], looks=True)
    maps = []
    for number, (pair, each, (source, target)) in enumerate(zip(pairs, forced, sides, strict=True)):
        columns, rows = (tuple(line[start:end] for start, end in words(line)) for line in pair)
        weights = np.zeros((len(rows), len(columns)))
        table = by_word(translator.aligned_by.weights(each), source[1], target[1])
        weights[: table.shape[0], : table.shape[1]] = table
        maps.append(AttentionMap(columns, rows, weights, gold[number] if gold else None))
    return maps


def report_run(run: Path, device: str = "auto") -> tuple[Path, Path]:
    """Write the report of a trained run, with the attention of its model on sentences it was validated with."""
    samples = next((each.samples for each in reversed(read_log(run).validated) if each.samples), ())
    pairs = [(each.source, each.translation) for each in samples if each.source.split() and each.translation.split()]
    return write_report(run, attention=attention_maps(load(run, device), pairs[:SAMPLES]))
