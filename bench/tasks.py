"""Train and predict with encoder-only models: ours beside Hugging Face's with the same layers, in one run.

    python bench/tasks.py                                # a small model on a CPU
    python bench/tasks.py --device cuda --size base
    python bench/tasks.py --only tagging --rounds 5

classification  BertForSequenceClassification, documents of 8 to 500 tokens
tagging         BertForTokenClassification, sentences of 3 to 100 words of one or two tokens
masked          BertForMaskedLM, documents as above, 15 % of the tokens to predict

Batches come in two orders: `random`, as our training makes them by default, and `length`, in which texts of similar
length are batched, as Hugging Face's `group_by_length` does. Ours has no padding in either. Both have the same weights,
layers and optimiser (AdamW). Ratios are ours to theirs in the same order, and ours in random order to theirs by length.
"""

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from numpy.typing import NDArray
from torch import Tensor, nn

from measure import fastest, log, timed
from regard.data.batch import Batch
from regard.data.rows import Rows, offsets_of
from regard.nn.cross_entropy import IGNORED
from regard.recipe import Recipe, Transformer, parse
from regard.tasks import Task, make_task
from regard.tasks.masked_language_model import MaskedLanguageModelBatch
from regard.text import END, START

VOCABULARY, CLASSES, FIRST = 8000, 20, 300  # ids below FIRST are symbols and bytes
SIZES = {"tiny": Transformer(size="tiny"), "small": Transformer(size="small"), "base": Transformer(size="base")}
Ids = NDArray[np.int64]


@dataclass(frozen=True)
class Texts:
    """Random texts: the tokens of each, and for tagging the number of tokens of each word."""

    tokens: list[Ids]
    words: list[Ids]
    labels: Ids

    def count(self, index: Ids) -> int:
        """Return the number of tokens of some texts."""
        return sum(len(self.tokens[at]) for at in index)


def draw_texts(task: str, tokens: int, seed: int = 1) -> Texts:
    """Draw texts with this many tokens in all, whose lengths are distributed as those of real ones."""
    random, drawn = np.random.default_rng(seed), Texts([], [], np.zeros(0, np.int64))
    total = 0
    while total < tokens:
        if task == "tagging":
            words = random.choice([1, 2], int(np.clip(np.exp(random.normal(2.7, 0.7)), 3, 100)), p=[0.8, 0.2])
        else:
            words = np.ones(int(np.clip(np.exp(random.normal(4.6, 0.7)), 8, 500)), np.int64)
        drawn.words.append(words)
        drawn.tokens.append(random.integers(FIRST, VOCABULARY, words.sum()))
        total += int(words.sum())
    return Texts(drawn.tokens, drawn.words, random.integers(0, CLASSES, len(drawn.tokens)))


def make_batches(texts: Texts, tokens: int, order: str, count: int) -> list[Ids]:
    """Return the numbers of the texts of some batches of about `tokens` tokens, evenly spaced in all of them."""
    lengths = np.array([len(ids) for ids in texts.tokens])
    index = np.random.default_rng(2).permutation(lengths.size)
    if order == "length":
        index = index[np.argsort(lengths[index], kind="stable")]
    ends = np.searchsorted(np.cumsum(lengths[index]), np.arange(tokens, lengths.sum(), tokens))
    pool = [part for part in np.split(index, ends) if part.size]
    return [pool[at] for at in np.linspace(0, len(pool) - 1, count + 2).astype(int)[1:-1]]


class Ours:
    """A task of this package."""

    def __init__(self, task: str, settings: Transformer, device: torch.device) -> None:
        """Build its model."""
        name = "language_model" if task == "masked" else task
        model = settings.model_copy(update={"position": "learned", "positions": 512, "activation": "gelu"})
        text = f'task = "{name}"\ntext.symbols = ["<mask>"]\ndata.train = [{{ path = "train.tsv" }}]'
        recipe: Recipe = parse(text + ('\nlanguage_model.objective = "masked"' if task == "masked" else ""))
        self.task: Task = make_task(recipe.model_copy(update={"model": model}))
        self.name, self.device = task, device
        sizes = {"text": VOCABULARY, "words": VOCABULARY, "label": CLASSES, "tags": CLASSES}
        self.model = self.task.build(sizes).to(device)

    def batch(self, texts: Texts, index: Ids) -> Batch:
        """Return the batch of some texts."""
        rows: dict[str, Rows] = {}
        if self.name == "tagging":
            parts = [np.insert(texts.tokens[at], np.cumsum(texts.words[at]), END) for at in index]
            rows["words"] = _rows(parts)
            rows["tags"] = _rows([np.arange(len(texts.words[at])) % CLASSES for at in index])
        else:
            rows["text"] = _rows([texts.tokens[at] for at in index])
        if self.name == "classification":
            rows["label"] = _rows([texts.labels[at : at + 1] for at in index])
        if self.name == "masked":
            return _masked_batch(rows["text"], index).to(self.device)
        return self.task.collate(rows, index).to(self.device)

    def loss(self, batch: Batch) -> Tensor:
        """Return the loss of a batch."""
        return self.task.loss(self.model, batch) / batch.units

    def predict(self, batch: Batch) -> Tensor:
        """Return what a batch is judged by."""
        return self.task.evaluate(self.model, batch)


class Peer:
    """A model of Hugging Face with the same layers."""

    def __init__(self, task: str, settings: Transformer, device: torch.device) -> None:
        """Build it."""
        config = transformers.BertConfig(
            vocab_size=VOCABULARY,
            hidden_size=settings.width,
            num_hidden_layers=settings.encoder_layers,
            num_attention_heads=settings.heads,
            intermediate_size=settings.inner,
            max_position_embeddings=512,
            hidden_dropout_prob=settings.dropout,
            attention_probs_dropout_prob=0.0,
        )
        config.num_labels = CLASSES
        kinds: dict[str, Any] = {
            "classification": transformers.BertForSequenceClassification,
            "tagging": transformers.BertForTokenClassification,
            "masked": transformers.BertForMaskedLM,
        }
        model: nn.Module = kinds[task](config)
        self.model = model.to(device)
        self.name, self.device = task, device

    def batch(self, texts: Texts, index: Ids) -> dict[str, Tensor]:
        """Return some texts, padded to the longest."""
        longest = max(len(texts.tokens[at]) for at in index) + 2
        ids, labels = (torch.full((len(index), longest), fill) for fill in (0, -100))
        random = np.random.default_rng(3)
        for row, at in enumerate(index):
            tokens = np.array([1, *texts.tokens[at], 2])
            ids[row, : len(tokens)] = torch.from_numpy(tokens)
            if self.name == "tagging":
                starts = 1 + np.cumsum(texts.words[at]) - texts.words[at]
                labels[row, starts] = torch.arange(len(starts)) % CLASSES
            else:
                chosen = 1 + random.permutation(len(tokens) - 2)[: max(1, round(0.15 * (len(tokens) - 2)))]
                labels[row, chosen] = ids[row, chosen]
        whole = torch.from_numpy(texts.labels[index]) if self.name == "classification" else labels
        tensors = {"input_ids": ids, "attention_mask": (ids > 0).long(), "labels": whole}
        return {name: tensor.to(self.device) for name, tensor in tensors.items()}

    def loss(self, batch: dict[str, Tensor]) -> Tensor:
        """Return the loss of a batch."""
        loss: Tensor = self.model(**batch).loss
        return loss

    def predict(self, batch: dict[str, Tensor]) -> Tensor:
        """Return the logits of a batch."""
        logits: Tensor = self.model(**batch).logits
        return logits


def _rows(parts: Sequence[Ids]) -> Rows:
    lengths = np.array([len(part) for part in parts])
    return Rows(np.concatenate(parts).astype(np.int32), offsets_of(lengths))


def _masked_batch(rows: Rows, index: Ids) -> Batch:
    """Return a batch with 15 % of its tokens to predict; drawing them is part of reading the data, not of a step."""
    framed, random = rows.prepend(START).append(END), np.random.default_rng(3)
    labels = np.full(framed.ids.size, IGNORED, np.int64)
    for begin, end in pairwise(framed.offsets.tolist()):
        chosen = begin + 1 + random.permutation(end - begin - 2)[: max(1, round(0.15 * (end - begin - 2)))]
        labels[chosen] = framed.ids[chosen]
    return MaskedLanguageModelBatch(framed.to_ragged(), torch.from_numpy(labels), torch.from_numpy(index))


def measure(contender: Ours | Peer, texts: Texts, batches: Sequence[Ids], half: bool, rounds: int) -> dict[str, float]:
    """Return the tokens per second of training steps and of predictions, without padding."""
    device, made = contender.device, [contender.batch(texts, index) for index in batches]
    optimiser = torch.optim.AdamW(contender.model.parameters(), 1e-4)

    def train(batch: Any) -> None:
        optimiser.zero_grad()
        with torch.autocast(device.type, torch.bfloat16, enabled=half):
            loss = contender.loss(batch)
        torch.autograd.backward(loss)
        optimiser.step()

    def predict(batch: Any) -> None:
        with torch.no_grad(), torch.autocast(device.type, torch.bfloat16, enabled=half):
            contender.predict(batch)

    speeds = {}
    steps: dict[str, Callable[[Any], None]] = {"train": train, "predict": predict}
    for name, step in steps.items():
        contender.model.train(name == "train")
        step(made[0])
        times, tokens = [], []
        for _ in range(rounds):
            for index, batch in zip(batches, made, strict=True):
                times.append(timed(partial(step, batch), device))
                tokens.append(texts.count(index))
        speeds[name] = fastest(times, tokens)[0]
    return speeds


def main() -> None:
    """Measure all tasks and print tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--size", choices=SIZES, help="default: small on a CPU, base on CUDA")
    parser.add_argument("--tokens", type=int, help="tokens per batch; default: 4,096 on a CPU, 32,768 on CUDA")
    parser.add_argument("--batches", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--precision", choices=["float32", "bfloat16"], help="default: bfloat16 on CUDA")
    parser.add_argument("--only", default="classification,tagging,masked")
    parser.add_argument("--out", type=Path, help="also write JSON to this file")
    options = parser.parse_args()
    device = torch.device(options.device)
    on_cuda = device.type == "cuda"
    settings = SIZES[options.size or ("base" if on_cuda else "small")]
    tokens = options.tokens or (32_768 if on_cuda else 4_096)
    half = (options.precision or ("bfloat16" if on_cuda else "float32")) == "bfloat16"
    results: dict[str, Any] = {}
    for task in options.only.split(","):
        texts = draw_texts(task, 24 * tokens)
        for order in ("random", "length"):
            batches = make_batches(texts, tokens, order, options.batches)
            for name, kind in (("ours", Ours), ("peer", Peer)):
                torch.manual_seed(1)
                contender = kind(task, settings, device)
                speeds = measure(contender, texts, batches, half, options.rounds)
                results.setdefault(task, {}).setdefault(order, {})[name] = speeds
                log(f"{task}, {order}, {name}: " + ", ".join(f"{key} {value:,.0f}" for key, value in speeds.items()))
    print(f"{settings.size}, {'bfloat16' if half else 'float32'}, {tokens:,} tokens per batch, {device}; tokens/s\n")
    print(f"{'':16}{'':8}{'ours':>12}{'peer':>12}{'ratio':>8}{'by length':>12}{'peer':>12}{'ratio':>8}{'best':>8}")
    for task, by_order in results.items():
        for step in ("train", "predict"):
            ours, peer = ([by_order[order][name][step] for order in ("random", "length")] for name in ("ours", "peer"))
            cells = [ours[0], peer[0], ours[0] / peer[0], ours[1], peer[1], ours[1] / peer[1], ours[0] / peer[1]]
            widths = (12, 12, 8, 12, 12, 8, 8)
            digits = (0, 0, 2, 0, 0, 2, 2)
            row = "".join(f"{cell:>{w},.{d}f}" for cell, w, d in zip(cells, widths, digits, strict=True))
            print(f"{task:16}{step:8}{row}")
    if options.out:
        options.out.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
