"""Sampled subwords are the same in any process, and sampling processes exit with the training."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from regard.data.fields import TextField, WordsField, split_parts
from regard.data.phrasebook import phrases
from regard.data.rows import Rows
from regard.text import Tokenizers
from regard.text.tokenizers import PAIR
from regard.train.subword_sampling import (
    BLOCK,
    BlockSampler,
    FieldSampler,
    LocalSampler,
    SamplingTask,
    SubprocessSampler,
)

LINES = [phrase.target for phrase in phrases("de", "train", 300)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    saved = tmp_path_factory.mktemp("run") / "tokenizer"
    Tokenizers.learn([(line, line) for line in LINES], size=400).save(saved)
    return saved.parent


@pytest.fixture
def subprocess_sampler(folder: Path) -> Iterator[SubprocessSampler]:
    sampler = SubprocessSampler(folder, PAIR, count=2)
    yield sampler
    sampler.close()


def field_sampler(sampler: BlockSampler, name: str, folder: Path) -> FieldSampler:
    return FieldSampler(sampler, name, TextField(Tokenizers.load(folder)[name]))


def test_other_processes_sample_the_same_ids_as_this_one(folder: Path, subprocess_sampler: SubprocessSampler) -> None:
    many = LINES * (2 * BLOCK // len(LINES) + 1)  # more than two blocks, the last one not whole
    local = field_sampler(LocalSampler(Tokenizers.load(folder)), "target", folder).sample_batch(many, 0.3, seed=5)
    remote = field_sampler(subprocess_sampler, "target", folder).sample_batch(many, 0.3, seed=5)
    assert np.array_equal(local[0], remote[0])
    assert np.array_equal(local[1], remote[1])
    assert local[1].size == len(many) + 1


def test_each_block_has_its_own_seed(folder: Path) -> None:
    sampler = field_sampler(LocalSampler(Tokenizers.load(folder)), "source", folder)
    lines = LINES[:1] * (2 * BLOCK)
    ids, offsets = sampler.sample_batch(lines, 0.5, seed=1)
    halves = [[tuple(ids[offsets[at] : offsets[at + 1]]) for at in range(start, start + BLOCK)] for start in (0, BLOCK)]
    assert halves[0] != halves[1]
    assert not np.array_equal(sampler.sample_batch(lines, 0.5, seed=2)[0], ids)


def test_no_lines_give_no_ids(folder: Path) -> None:
    ids, offsets = field_sampler(LocalSampler(Tokenizers.load(folder)), "source", folder).sample_batch([], 0.1, seed=0)
    assert (ids.size, offsets.tolist()) == (0, [0])


def test_given_words_keep_their_boundaries_when_their_subwords_are_sampled(folder: Path) -> None:
    tokenizers = Tokenizers.load(folder)
    sampler = FieldSampler(LocalSampler(tokenizers), "target", WordsField(tokenizers["target"]))
    sampled = Rows(*sampler.sample_batch(LINES, 0.5, seed=1))
    tokens, sizes = split_parts(sampled)
    assert sizes.lengths.tolist() == [len(line.split()) for line in LINES]
    ends = np.cumsum([0, *sizes.ids]).tolist()
    words = [tokenizers["target"].decode(tokens.ids[begin:end]) for begin, end in pairwise(ends)]
    assert words == [tokenizers["target"].normalise(word) for line in LINES for word in line.split()]
    best = split_parts(WordsField(tokenizers["target"]).encode(LINES))[1]
    assert sizes.ids.sum() > best.ids.sum()


def test_a_killed_process_raises_an_error(subprocess_sampler: SubprocessSampler) -> None:
    task = SamplingTask("source", LINES[:2], 0.1, 0)
    assert len(subprocess_sampler.segment([task])) == 1
    for process in subprocess_sampler._processes:
        process.kill()
        process.wait()
    with pytest.raises(OSError, match="samples subwords has exited"):
        subprocess_sampler.segment([task])


def test_close_stops_the_processes(folder: Path) -> None:
    sampler = SubprocessSampler(folder, PAIR, count=1)
    sampler.segment([SamplingTask("source", LINES[:2], 0.1, 0)])
    sampler.close()
    assert [process.returncode for process in sampler._processes] == [0]
