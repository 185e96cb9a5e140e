"""Subwords sampled apart: the same ids whoever cuts, and processes that end with whoever asked them."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from regard.data.phrasebook import phrases
from regard.text import Tokenizers
from regard.train.cutting import BLOCK, Apart, Here, Side, Task

LINES = [phrase.target for phrase in phrases("de", "train", 300)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("run") / "tokenizer"
    Tokenizers.learn([(line, line) for line in LINES], size=400).save(made)
    return made.parent


@pytest.fixture
def apart(folder: Path) -> Iterator[Apart]:
    cutter = Apart(folder, count=2)
    yield cutter
    cutter.close()


def test_other_processes_cut_as_this_one_does(folder: Path, apart: Apart) -> None:
    many = LINES * (2 * BLOCK // len(LINES) + 1)  # more than two blocks, the last one not whole
    here = Side(Here(Tokenizers.load(folder)), "target").sample_batch(many, 0.3, seed=5)
    there = Side(apart, "target").sample_batch(many, 0.3, seed=5)
    assert np.array_equal(here[0], there[0])
    assert np.array_equal(here[1], there[1])
    assert here[1].size == len(many) + 1


def test_each_block_is_cut_by_dice_of_its_own(folder: Path) -> None:
    both = Side(Here(Tokenizers.load(folder)), "source")
    lines = LINES[:1] * (2 * BLOCK)
    ids, offsets = both.sample_batch(lines, 0.5, seed=1)
    halves = [[tuple(ids[offsets[at] : offsets[at + 1]]) for at in range(start, start + BLOCK)] for start in (0, BLOCK)]
    assert halves[0] != halves[1]
    assert not np.array_equal(both.sample_batch(lines, 0.5, seed=2)[0], ids)


def test_no_lines_are_no_ids(folder: Path) -> None:
    ids, offsets = Side(Here(Tokenizers.load(folder)), "source").sample_batch([], 0.1, seed=0)
    assert (ids.size, offsets.tolist()) == (0, [0])


def test_a_process_that_is_gone_is_told_of(apart: Apart) -> None:
    task = Task("source", LINES[:2], 0.1, 0)
    assert len(apart.cut([task])) == 1
    for process in apart._processes:
        process.kill()
        process.wait()
    with pytest.raises(OSError, match="samples subwords has ended"):
        apart.cut([task])


def test_closing_ends_the_processes(folder: Path) -> None:
    cutter = Apart(folder, count=1)
    cutter.cut([Task("source", LINES[:2], 0.1, 0)])
    cutter.close()
    assert [process.returncode for process in cutter._processes] == [0]
