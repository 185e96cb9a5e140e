"""How fast text becomes batches: ours beside what people use, in one run, as ratios.

    python bench/data.py                      # on the real corpus beside the repository, else on made-up lines
    python bench/data.py --pairs 100000       # a quicker look
    python bench/data.py --data FOLDER        # a folder with train.en.gz and train.de.gz
    python bench/data.py --json

Contenders take turns, so that a busy machine slows all of them; the median of the turns is told, with the slowest and
the fastest. Batches hold about 25,000 target tokens. Ours are packed; the others pad, over the very same token ids.
"""

import argparse
import gzip
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

from regard.data.batching import Feed
from regard.data.build import build_store
from regard.data.example import Rows
from regard.data.order import Numbers
from regard.data.plan import Order, cut
from regard.data.store import Store
from regard.recipe import Data, TextCorpus
from regard.text import END, PAD, START, Tokenizers

ROOT = Path(__file__).resolve().parents[1]
REAL = ROOT.parent / "shared" / "data" / "multi30k"
TOKENS = 25_000
IGNORED = -100  # the label PyTorch's and HF's losses pass over
BATCHES = 40  # of the slower contenders, in one turn: a million target tokens
MEMORY_PAIRS = 2_000_000


@dataclass
class Contender:
    """One way to do a thing, and how much of it was done a second in each turn."""

    name: str
    turn: Callable[[], float]
    rates: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        """The rate that is told."""
        return statistics.median(self.rates)


def main() -> None:
    asked = arguments()
    if asked.memory is not None:
        print(json.dumps(memory_of_a_run(asked.memory)))
        return
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        lines = corpus_lines(asked.data)
        tokenizers = Tokenizers.learn(lines, size=8000)
        tokenizers.save(folder / "tokenizer")
        write_corpus(lines, asked.pairs, folder)
        building = take_turns(builders(folder, tokenizers, asked.pairs), min(asked.turns, 3))
        store = build(folder, tokenizers, folder / "kept")
        feeding = take_turns(feeders(store), asked.turns)
        write_corpus(lines, asked.memory_pairs, folder)
        memory = memory_in_a_process(folder)
    report(building, feeding, {"pairs": asked.memory_pairs, **memory}, asked.json)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=300_000, help="pairs of the corpus that speed is measured on")
    parser.add_argument("--memory-pairs", type=int, default=MEMORY_PAIRS, help="pairs that memory is measured on")
    parser.add_argument("--data", type=Path, default=REAL, help="folder with train.en.gz and train.de.gz")
    parser.add_argument("--turns", type=int, default=5, help="repetitions of each measurement")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--memory", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def note(text: str) -> None:
    print(text, file=sys.stderr)


# The corpus


def corpus_lines(folder: Path) -> list[tuple[str, str]]:
    """Real pairs where there are any, else made-up ones of about their lengths."""
    files = [folder / f"train.{language}.gz" for language in ("en", "de")]
    if all(file.is_file() for file in files):
        english, german = (gzip.decompress(file.read_bytes()).decode().splitlines() for file in files)
        note(f"corpus: {len(english):,} pairs of {folder.name}, varied to as many as asked for")
        return list(zip(english, german, strict=True))
    note(f"corpus: made-up lines, for {files[0]} is not there")
    chance = random.Random(1)
    words = ["".join(chance.choices("abcdefghiklmnoprstuwz", k=chance.randint(2, 9))) for _ in range(5000)]

    def line() -> str:
        return " ".join(words[int(chance.paretovariate(0.5)) % len(words)] for _ in range(chance.randint(6, 20)))

    return [(line(), line()) for _ in range(29_000)]


def write_corpus(lines: list[tuple[str, str]], pairs: int, folder: Path) -> None:
    """As many pairs as asked for: beyond the first round, the first half of one with the second half of another."""
    with (folder / "train.en").open("w") as english, (folder / "train.de").open("w") as german:
        for number in range(pairs):
            turn, at = divmod(number, len(lines))
            other = lines[(at + turn * 997) % len(lines)]
            for side, file in enumerate((english, german)):
                first, second = lines[at][side].split(), other[side].split()
                file.write(" ".join(first[: len(first) // 2] + second[len(second) // 2 :]) + "\n")


# Building the store: text to token ids on disk


def build(folder: Path, tokenizers: Tokenizers, cache: Path) -> Store:
    corpus = TextCorpus(source=str(folder / "train.en"), target=str(folder / "train.de"))
    return build_store(corpus, Data(train=(corpus,)), tokenizers, cache=cache)


def builders(folder: Path, tokenizers: Tokenizers, pairs: int) -> list[Contender]:
    def ours() -> float:
        with tempfile.TemporaryDirectory(dir=folder) as cache:
            start = time.perf_counter()
            build(folder, tokenizers, Path(cache))
            return pairs / (time.perf_counter() - start)

    found = [Contender("regard: read, encode, filter, store", ours)]
    with suppress(ImportError):
        found.append(Contender("HF datasets map, same SentencePiece model", hf_builder(folder, tokenizers, pairs)))
    if len(found) == 1:
        note("HF datasets is left out: it is not installed (pip install 'regard[bench]')")
    return found


def hf_builder(folder: Path, tokenizers: Tokenizers, pairs: int) -> Callable[[], float]:
    """Text files to an Arrow file of ids by `datasets`, on all cores; nothing is filtered."""
    import datasets

    datasets.disable_progress_bars()

    def encode(batch: dict[str, list[str]]) -> dict[str, Any]:
        rows = {}
        for name, column in (("input_ids", "en"), ("labels", "de")):
            ids, offsets = tokenizers.source.encode_batch(batch[column], threads=1)
            rows[name] = np.split(ids, offsets[1:-1])
        return rows

    def turn() -> float:
        with tempfile.TemporaryDirectory(dir=folder) as cache:
            start = time.perf_counter()
            columns = [
                datasets.load_dataset("text", data_files=str(folder / f"train.{each}"), split="train", cache_dir=cache)
                for each in ("en", "de")
            ]
            both = datasets.concatenate_datasets(
                [column.rename_column("text", each) for column, each in zip(columns, ("en", "de"), strict=True)], axis=1
            )
            both.map(encode, batched=True, num_proc=os.cpu_count(), remove_columns=["en", "de"])
            return pairs / (time.perf_counter() - start)

    return turn


# Feeding: token ids on disk to batches


def feeders(store: Store) -> list[Contender]:
    batches = bucketed(store)
    dataset = Padded(store)
    found = [Contender(f"regard: shuffled, order {order}", our_feeder(store, order)) for order in ("random", "length")]
    found.append(Contender("regard: one thread, nothing ahead", our_plain_feeder(store)))
    for workers in (0, 2):
        loader = DataLoader(dataset, batch_sampler=batches, collate_fn=pad, num_workers=workers)
        name = f"DataLoader, padding collate, {workers} workers"
        found.append(Contender(name, partial(rate_once_started, loader)))
    try:
        found += hf_feeders(store, batches)
    except ImportError as missing:
        note(f"HF datasets + collator is left out: {missing.name} is not installed (pip install 'regard[bench]')")
    return found


def rate_once_started(loader: Iterable[dict[str, torch.Tensor]]) -> float:
    """Target tokens a second after the first batch, so that starting the workers is not counted."""
    batches = iter(loader)
    next(batches)
    start = time.perf_counter()
    tokens = sum(int((batch["labels"] != IGNORED).sum()) for batch in batches)
    return tokens / (time.perf_counter() - start)


def our_feeder(store: Store, order: Order) -> Callable[[], float]:
    """Two epochs of the stream a training run reads, from its very start."""
    feed = Feed([store], [1.0], TOKENS, order)

    def turn() -> float:
        tokens = 0
        start = time.perf_counter()
        with feed.epochs() as stream:
            for step in stream:
                tokens += sum(batch.target_tokens for batch in step.batches)
                if step.after.epoch == 2:
                    break
            return tokens / (time.perf_counter() - start)

    return turn


def our_plain_feeder(store: Store) -> Callable[[], float]:
    """One epoch, each batch made when it is asked for."""
    feed = Feed([store], [1.0], TOKENS)

    def turn() -> float:
        start = time.perf_counter()
        tokens = sum(batch.target_tokens for step in feed.epoch(0) for batch in step)
        return tokens / (time.perf_counter() - start)

    return turn


def bucketed(store: Store) -> list[list[int]]:
    """Batches of examples of like length, shuffled; as many as one turn takes, and the first."""
    lengths = [side.lengths.astype(np.int64) + 1 for side in (store.source, store.target)]
    order: Numbers = np.lexsort(lengths)
    ends = [np.concatenate([[0], np.cumsum(each[order])]) for each in lengths]
    cuts = cut(ends[0], ends[1], TOKENS).tolist()
    batches = [order[start:stop].tolist() for start, stop in pairwise(cuts)]
    random.Random(1).shuffle(batches)
    return batches[: BATCHES + 1]


class Padded(Dataset[tuple[torch.Tensor, torch.Tensor]], Sized):
    """Pairs one at a time, as `DataLoader` asks for them: all in memory, their symbols already put."""

    def __init__(self, store: Store) -> None:
        """Prepare every pair; not timed."""
        which = np.arange(len(store))
        source_ids, source_offsets, target_ids, target_offsets = store.gather(which)
        source = Rows(source_ids, source_offsets).append(END)
        target = Rows(target_ids, target_offsets).prepend(START).append(END)
        self.sides = [
            torch.split_with_sizes(torch.from_numpy(rows.ids.astype(np.int64)), rows.lengths.tolist())
            for rows in (source, target)
        ]

    def __len__(self) -> int:
        """How many pairs there are."""
        return len(self.sides[0])

    def __getitem__(self, number: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Source and target."""
        return self.sides[0][number], self.sides[1][number]


def pad(pairs: list[tuple[torch.Tensor, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """Three rectangles, as one would write them for a `DataLoader`."""
    return {
        "source": pad_sequence([each for each, _ in pairs], batch_first=True, padding_value=PAD),
        "inputs": pad_sequence([each[:-1] for _, each in pairs], batch_first=True, padding_value=PAD),
        "labels": pad_sequence([each[1:] for _, each in pairs], batch_first=True, padding_value=IGNORED),
    }


def hf_feeders(store: Store, batches: list[list[int]]) -> Iterator[Contender]:
    """An Arrow dataset of the same ids, collated by `DataCollatorForSeq2Seq`."""
    import datasets
    import tokenizers
    import transformers

    def rows() -> Iterator[dict[str, list[int]]]:
        for number in range(len(store)):
            source, target = (
                side.ids[side.offsets[number] : side.offsets[number + 1]].tolist()
                for side in (store.source, store.target)
            )
            yield {"input_ids": [*source, END], "labels": [*target, END]}

    with tempfile.TemporaryDirectory() as cache:
        dataset = datasets.Dataset.from_generator(rows, cache_dir=cache, keep_in_memory=True)
    # The collator pads through a tokenizer; any that knows the number of <pad> will do.
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"<pad>": PAD}, unk_token="<pad>"))
    fast: Any = transformers.PreTrainedTokenizerFast
    tokenizer = fast(tokenizer_object=words, pad_token="<pad>")
    collate = transformers.DataCollatorForSeq2Seq(tokenizer, return_tensors="pt")
    for workers in (0, 2):
        loader: DataLoader[Any] = DataLoader(dataset, batch_sampler=batches, collate_fn=collate, num_workers=workers)
        name = f"HF datasets + DataCollatorForSeq2Seq, {workers} workers"
        yield Contender(name, partial(rate_once_started, loader))


# Memory


def memory_in_a_process(folder: Path) -> dict[str, float]:
    command = [sys.executable, __file__, "--memory", str(folder)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return dict(json.loads(done.stdout))


def memory_of_a_run(folder: Path) -> dict[str, float]:
    """Peak memory of this process, building the store and passing over it once; Linux alone tells it."""
    before = peak()
    store = build(folder, Tokenizers.load(folder / "tokenizer"), folder / "memory")
    built = peak()
    tokens = sum(batch.target_tokens for step in Feed([store], [1.0], TOKENS).epoch(0) for batch in step)
    return {"libraries": before, "built": built, "passed": peak(), "target_tokens": tokens}


def peak() -> float:
    """MiB this process has held at most, mapped files included; it starts no other, only threads."""
    # Of the process's memory map: the figure `getrusage` gives would begin with that of whoever started the process.
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


# The report


def take_turns(contenders: list[Contender], turns: int) -> list[Contender]:
    for turn in range(turns):
        for contender in contenders:
            contender.rates.append(contender.turn())
            note(f"turn {turn + 1}: {contender.name}: {contender.rates[-1]:,.0f}/s")
    return contenders


def report(building: list[Contender], feeding: list[Contender], memory: dict[str, float], as_json: bool) -> None:
    if as_json:
        tables = {"pairs/s": building, "target tokens/s": feeding}
        rates = {unit: {each.name: each.rates for each in table} for unit, table in tables.items()}
        print(json.dumps({**rates, "memory MiB": memory}, indent=2))
        return
    print_table("Building the store, pairs/s", building)
    print_table(f"Store to batches of {TOKENS:,} target tokens, target tokens/s", feeding)
    print(f"\nPeak memory of building {memory['pairs']:,.0f} pairs and one pass over them, MiB")
    print(f"  libraries alone {memory['libraries']:,.0f}, built {memory['built']:,.0f}, passed {memory['passed']:,.0f}")


def print_table(title: str, contenders: list[Contender]) -> None:
    width = max(len(each.name) for each in contenders)
    print(f"\n{title}\n  {'':{width}}  {'median':>12}  {'slowest':>12}  {'fastest':>12}  ours is")
    for each in contenders:
        ratio = contenders[0].median / each.median
        numbers = "  ".join(f"{rate:12,.0f}" for rate in (each.median, min(each.rates), max(each.rates)))
        print(f"  {each.name:{width}}  {numbers}  {ratio:6.1f}×")


if __name__ == "__main__":
    main()
