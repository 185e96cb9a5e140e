"""Building a store and reading batches: ours beside `DataLoader` and Hugging Face `datasets`, in one run.

    python bench/data.py                      # the corpus next to the repository, or generated lines
    python bench/data.py --pairs 100000       # faster
    python bench/data.py --data FOLDER        # a folder with train.en.gz and train.de.gz
    python bench/data.py --json

The contenders take turns, so that other work on the machine affects all of them; the result is the median turn, with
the slowest and the fastest. Batches have about 25,000 target tokens. Ours are packed; the others pad. All have the same
token ids.
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

from measure import log, peak_memory
from regard.data.batching import BEGINNING, Feed
from regard.data.build import build_store
from regard.data.fields import with_tokenizers
from regard.data.plan import Order, cut
from regard.data.rows import Numbers, offsets_of
from regard.data.store import Store
from regard.recipe import Data, TextCorpus, parse
from regard.tasks import make_task
from regard.text import END, PAD, START, Tokenizers
from regard.train.stream import stream

ROOT = Path(__file__).resolve().parents[1]
REAL = ROOT.parent / "shared" / "data" / "multi30k"
TOKENS = 25_000
IGNORED = -100  # the label that the losses of PyTorch and Hugging Face ignore
BATCHES = 40  # batches per turn of the slower contenders: a million target tokens
MEMORY_PAIRS = 2_000_000
TASK = make_task(parse('data.train = [{ to = "de" }]'))  # translation, which collates batches


@dataclass
class Contender:
    """An implementation, and its throughput in each turn."""

    name: str
    turn: Callable[[], float]
    rates: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        """The median throughput."""
        return statistics.median(self.rates)


def main() -> None:
    options = parse_arguments()
    if options.memory is not None:
        print(json.dumps(measure_memory(options.memory)))
        return
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        lines = corpus_lines(options.data)
        tokenizers = Tokenizers.learn(lines, size=8000)
        tokenizers.save(folder / "tokenizer")
        write_corpus(lines, options.pairs, folder)
        building = take_turns(builders(folder, tokenizers, options.pairs), min(options.turns, 3))
        store = build(folder, tokenizers, folder / "store")
        feeding = take_turns(feeders(store), options.turns)
        write_corpus(lines, options.memory_pairs, folder)
        memory = measure_memory_in_process(folder)
    report(building, feeding, {"pairs": options.memory_pairs, **memory}, options.json)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=300_000, help="pairs for measuring speed")
    parser.add_argument("--memory-pairs", type=int, default=MEMORY_PAIRS, help="pairs for measuring memory")
    parser.add_argument("--data", type=Path, default=REAL, help="folder with train.en.gz and train.de.gz")
    parser.add_argument("--turns", type=int, default=5, help="repetitions of each measurement")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--memory", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


# The corpus


def corpus_lines(folder: Path) -> list[tuple[str, str]]:
    """Read the pairs of a corpus, or generate pairs of similar lengths."""
    files = [folder / f"train.{language}.gz" for language in ("en", "de")]
    if all(file.is_file() for file in files):
        english, german = (gzip.decompress(file.read_bytes()).decode().splitlines() for file in files)
        log(f"corpus: {len(english):,} pairs of {folder.name}, recombined to the number asked for")
        return list(zip(english, german, strict=True))
    log(f"corpus: generated lines, because {files[0]} does not exist")
    draw = random.Random(1)
    words = ["".join(draw.choices("abcdefghiklmnoprstuwz", k=draw.randint(2, 9))) for _ in range(5000)]

    def line() -> str:
        return " ".join(words[int(draw.paretovariate(0.5)) % len(words)] for _ in range(draw.randint(6, 20)))

    return [(line(), line()) for _ in range(29_000)]


def write_corpus(lines: list[tuple[str, str]], pairs: int, folder: Path) -> None:
    """Write `pairs` pairs: after the first pass, the first half of one with the second half of another."""
    with (folder / "train.en").open("w") as english, (folder / "train.de").open("w") as german:
        for number in range(pairs):
            round_number, at = divmod(number, len(lines))
            other = lines[(at + round_number * 997) % len(lines)]
            for side, file in enumerate((english, german)):
                first, second = lines[at][side].split(), other[side].split()
                file.write(" ".join(first[: len(first) // 2] + second[len(second) // 2 :]) + "\n")


# Building the store: from text to token ids on disk


def build(folder: Path, tokenizers: Tokenizers, cache: Path) -> Store:
    corpus = TextCorpus(files={"source": str(folder / "train.en"), "target": str(folder / "train.de")})
    return build_store(corpus, Data(train=(corpus,)), with_tokenizers(tokenizers), cache=cache)


def builders(folder: Path, tokenizers: Tokenizers, pairs: int) -> list[Contender]:
    def ours() -> float:
        with tempfile.TemporaryDirectory(dir=folder) as cache:
            start = time.perf_counter()
            build(folder, tokenizers, Path(cache))
            return pairs / (time.perf_counter() - start)

    contenders = [Contender("regard: read, encode, filter, store", ours)]
    with suppress(ImportError):
        contenders.append(Contender("HF datasets map, same SentencePiece model", hf_builder(folder, tokenizers, pairs)))
    if len(contenders) == 1:
        log("HF datasets is skipped because it is not installed (pip install 'regard[bench]')")
    return contenders


def hf_builder(folder: Path, tokenizers: Tokenizers, pairs: int) -> Callable[[], float]:
    """Encode text files to an Arrow file of ids with `datasets` on all cores, without filters."""
    import datasets

    datasets.disable_progress_bars()

    def encode(batch: dict[str, list[str]]) -> dict[str, Any]:
        rows = {}
        for name, column in (("input_ids", "en"), ("labels", "de")):
            ids, offsets = tokenizers["source"].encode_batch(batch[column], threads=1)
            rows[name] = np.split(ids, offsets[1:-1])
        return rows

    def turn() -> float:
        with tempfile.TemporaryDirectory(dir=folder) as cache:
            start = time.perf_counter()
            columns = [
                datasets.load_dataset(
                    "text", data_files=str(folder / f"train.{language}"), split="train", cache_dir=cache
                )
                for language in ("en", "de")
            ]
            named = [column.rename_column("text", name) for column, name in zip(columns, ("en", "de"), strict=True)]
            pair = datasets.concatenate_datasets(named, axis=1)
            pair.map(encode, batched=True, num_proc=os.cpu_count(), remove_columns=["en", "de"])
            return pairs / (time.perf_counter() - start)

    return turn


# Reading batches: from token ids on disk to batches in memory


def feeders(store: Store) -> list[Contender]:
    batches = bucketed(store)
    dataset = Padded(store)
    contenders = [
        Contender(f"regard: shuffled, order {order}", our_feeder(store, order)) for order in ("random", "length")
    ]
    contenders.append(Contender("regard: one thread, no prefetching", our_plain_feeder(store)))
    for workers in (0, 2):
        loader = DataLoader(dataset, batch_sampler=batches, collate_fn=pad, num_workers=workers)
        name = f"DataLoader, padding collate, {workers} workers"
        contenders.append(Contender(name, partial(rate_after_start, loader)))
    try:
        contenders += hf_feeders(store, batches)
    except ImportError as missing:
        log(f"HF datasets + collator is skipped because {missing.name} is not installed (pip install 'regard[bench]')")
    return contenders


def rate_after_start(loader: Iterable[dict[str, torch.Tensor]]) -> float:
    """Return the target tokens per second after the first batch, without the time to start the workers."""
    batches = iter(loader)
    next(batches)
    start = time.perf_counter()
    tokens = sum(int((batch["labels"] != IGNORED).sum()) for batch in batches)
    return tokens / (time.perf_counter() - start)


def our_feeder(store: Store, order: Order) -> Callable[[], float]:
    """Read two epochs of the batch stream of a training run, from its start."""
    feed = Feed([store], [1.0], TOKENS, TASK, order)

    def turn() -> float:
        tokens = 0
        start = time.perf_counter()
        with stream(feed, BEGINNING, None, pin=False) as steps:
            for step in steps:
                tokens += sum(batch.units for batch in step.batches)
                if step.after.epoch == 2:
                    break
            return tokens / (time.perf_counter() - start)

    return turn


def our_plain_feeder(store: Store) -> Callable[[], float]:
    """Read one epoch without prefetching."""
    feed = Feed([store], [1.0], TOKENS, TASK)

    def turn() -> float:
        start = time.perf_counter()
        tokens = sum(batch.units for step in feed.epoch(0) for batch in step)
        return tokens / (time.perf_counter() - start)

    return turn


def bucketed(store: Store) -> list[list[int]]:
    """Return shuffled batches of examples of similar length, as many as one turn needs and one to start."""
    lengths = TASK.sequence_lengths(store.lengths)
    order: Numbers = np.lexsort(lengths)
    cuts = cut([offsets_of(counts[order]) for counts in lengths], TOKENS).tolist()
    batches = [order[start:stop].tolist() for start, stop in pairwise(cuts)]
    random.Random(1).shuffle(batches)
    return batches[: BATCHES + 1]


class Padded(Dataset[tuple[torch.Tensor, torch.Tensor]], Sized):
    """A dataset of single pairs in memory, with their start and end symbols."""

    def __init__(self, store: Store) -> None:
        """Prepare all pairs; this is not timed."""
        rows = store.gather(np.arange(len(store)))
        source, target = rows["source"].append(END), rows["target"].prepend(START).append(END)
        self.sides = [
            torch.split_with_sizes(torch.from_numpy(rows.ids.astype(np.int64)), rows.lengths.tolist())
            for rows in (source, target)
        ]

    def __len__(self) -> int:
        """Return the number of pairs."""
        return len(self.sides[0])

    def __getitem__(self, number: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return source and target of a pair."""
        return self.sides[0][number], self.sides[1][number]


def pad(pairs: list[tuple[torch.Tensor, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """Collate pairs to padded source, inputs and labels."""
    return {
        "source": pad_sequence([source for source, _ in pairs], batch_first=True, padding_value=PAD),
        "inputs": pad_sequence([target[:-1] for _, target in pairs], batch_first=True, padding_value=PAD),
        "labels": pad_sequence([target[1:] for _, target in pairs], batch_first=True, padding_value=IGNORED),
    }


def hf_feeders(store: Store, batches: list[list[int]]) -> Iterator[Contender]:
    """Yield contenders with an Arrow dataset of the same ids, collated by `DataCollatorForSeq2Seq`."""
    import datasets
    import tokenizers
    import transformers

    def rows() -> Iterator[dict[str, list[int]]]:
        for number in range(len(store)):
            source, target = (
                field.ids[field.offsets[number] : field.offsets[number + 1]].tolist()
                for field in (store.fields["source"], store.fields["target"])
            )
            yield {"input_ids": [*source, END], "labels": [*target, END]}

    with tempfile.TemporaryDirectory() as cache:
        dataset = datasets.Dataset.from_generator(rows, cache_dir=cache, keep_in_memory=True)
    # The collator needs a tokenizer for padding; one that knows the id of <pad> suffices.
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"<pad>": PAD}, unk_token="<pad>"))
    fast: Any = transformers.PreTrainedTokenizerFast
    tokenizer = fast(tokenizer_object=words, pad_token="<pad>")
    collate = transformers.DataCollatorForSeq2Seq(tokenizer, return_tensors="pt")
    for workers in (0, 2):
        loader: DataLoader[Any] = DataLoader(dataset, batch_sampler=batches, collate_fn=collate, num_workers=workers)
        name = f"HF datasets + DataCollatorForSeq2Seq, {workers} workers"
        yield Contender(name, partial(rate_after_start, loader))


# Memory


def measure_memory_in_process(folder: Path) -> dict[str, float]:
    command = [sys.executable, __file__, "--memory", str(folder)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return dict(json.loads(done.stdout))


def measure_memory(folder: Path) -> dict[str, float]:
    """Return the peak memory in MiB of building a store and reading it once; Linux only."""
    before = peak()
    store = build(folder, Tokenizers.load(folder / "tokenizer"), folder / "memory")
    built = peak()
    tokens = sum(batch.units for step in Feed([store], [1.0], TOKENS, TASK).epoch(0) for batch in step)
    return {"libraries": before, "built": built, "passed": peak(), "target_tokens": tokens}


def peak() -> float:
    """Return the peak memory of this process in MiB."""
    return peak_memory(torch.device("cpu")) / 2**20


# The report


def take_turns(contenders: list[Contender], turns: int) -> list[Contender]:
    for turn in range(turns):
        for contender in contenders:
            contender.rates.append(contender.turn())
            log(f"turn {turn + 1}: {contender.name}: {contender.rates[-1]:,.0f}/s")
    return contenders


def report(building: list[Contender], feeding: list[Contender], memory: dict[str, float], as_json: bool) -> None:
    if as_json:
        tables = {"pairs/s": building, "target tokens/s": feeding}
        rates = {unit: {contender.name: contender.rates for contender in table} for unit, table in tables.items()}
        print(json.dumps({**rates, "memory MiB": memory}, indent=2))
        return
    print_table("Building the store, pairs/s", building)
    print_table(f"Store to batches of {TOKENS:,} target tokens, target tokens/s", feeding)
    print(f"\nPeak memory of building {memory['pairs']:,.0f} pairs and one pass over them, MiB")
    print(f"  imports {memory['libraries']:,.0f}, built {memory['built']:,.0f}, read {memory['passed']:,.0f}")


def print_table(title: str, contenders: list[Contender]) -> None:
    width = max(len(contender.name) for contender in contenders)
    print(f"\n{title}\n  {'':{width}}  {'median':>12}  {'slowest':>12}  {'fastest':>12}  ratio")
    for contender in contenders:
        ratio = contenders[0].median / contender.median
        numbers = "  ".join(f"{rate:12,.0f}" for rate in (contender.median, min(contender.rates), max(contender.rates)))
        print(f"  {contender.name:{width}}  {numbers}  {ratio:6.1f}×")


if __name__ == "__main__":
    main()
