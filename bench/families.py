"""One training step of each model family: ours beside the same model as usually written in torch, in one run.

    python bench/families.py
    python bench/families.py --width 256 --tokens 4096 --turns 5

The torch models pad: `pack_padded_sequence` around the LSTM, a loop over steps with input feeding, `bmm` and a masked
softmax, `conv1d` and `glu`. Both train on the same sentences, which are sorted by length for the torch models. The
contenders take turns. The result is the median CPU time, which other work on the machine affects less, and its ratio.
tok/s counts target tokens without padding.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

from regard.models.build import build
from regard.models.seq2seq import Seq2Seq
from regard.nn.cross_entropy import smoothed_cross_entropy
from regard.nn.ragged import Ragged
from regard.recipe import Bahdanau, ConvS2S, Luong, Model, Sutskever, Transformer

VOCABULARY = 4000
Sentences = list[Tensor]


class Padded(nn.Module):
    """Luong's model on padded rows: two LSTM layers, bilinear scores, with or without input feeding or attention."""

    def __init__(self, width: int, attention: bool, feeding: bool) -> None:
        """Create the layers."""
        super().__init__()
        self.embed, self.attention, self.feeding = nn.Embedding(VOCABULARY, width), attention, feeding
        self.encoder = nn.LSTM(width, width, 2, batch_first=True)
        self.decoder = nn.LSTM(2 * width if feeding else width, width, 2, batch_first=True)
        self.score, self.combine = nn.Linear(width, width, bias=False), nn.Linear(2 * width, width, bias=False)

    def forward(self, source: Tensor, lengths: Tensor, target: Tensor) -> Tensor:
        """Return the logits at every position of every row."""
        packed = pack_padded_sequence(self.embed(source), lengths, batch_first=True, enforce_sorted=False)
        encoded, state = self.encoder(packed)
        memory, _ = pad_packed_sequence(encoded, batch_first=True)
        padding = torch.arange(memory.shape[1]) >= lengths[:, None]
        x = self.embed(target)
        if not self.feeding:
            h, _ = self.decoder(x, state)
            return self._logits(self._attend(h, memory, padding) if self.attention else h)
        vector, out = torch.zeros_like(x[:, :1]), []
        for step in range(x.shape[1]):
            h, state = self.decoder(torch.cat([x[:, step : step + 1], vector], -1), state)
            vector = self._attend(h, memory, padding)
            out.append(vector)
        return self._logits(torch.cat(out, 1))

    def _attend(self, h: Tensor, memory: Tensor, padding: Tensor) -> Tensor:
        scores = torch.bmm(self.score(h), memory.transpose(1, 2)).masked_fill(padding[:, None], -torch.inf)
        return torch.tanh(self.combine(torch.cat([torch.bmm(scores.softmax(-1), memory), h], -1)))

    def _logits(self, x: Tensor) -> Tensor:
        return functional.linear(x, self.embed.weight)


class PaddedConvolutions(nn.Module):
    """ConvS2S on padded rows, with `conv1d`."""

    def __init__(self, width: int, layers: int) -> None:
        """Create the layers."""
        super().__init__()
        self.embed, self.positions = nn.Embedding(VOCABULARY, width), nn.Embedding(1024, width)
        self.enter, self.leave, self.enter2, self.leave2 = (nn.Linear(width, width) for _ in range(4))
        self.encoder, self.decoder = (
            nn.ModuleList(nn.Conv1d(width, 2 * width, 3) for _ in range(layers)) for _ in range(2)
        )
        self.query, self.context = (nn.ModuleList(nn.Linear(width, width) for _ in range(layers)) for _ in range(2))

    def forward(self, source: Tensor, lengths: Tensor, target: Tensor) -> Tensor:
        """Return the logits at every position of every row."""
        padding = torch.arange(source.shape[1]) >= lengths[:, None]
        e, g = (self.embed(ids) + self.positions(torch.arange(ids.shape[1])) for ids in (source, target))
        x = self.enter(e)
        for layer in self.encoder:
            y = layer(functional.pad(x.masked_fill(padding[..., None], 0).transpose(1, 2), (1, 1)))
            x = (x + functional.glu(y, 1).transpose(1, 2)) * 0.5**0.5
        z, h = self.leave(x), self.enter2(g)
        for layer, query, context in zip(self.decoder, self.query, self.context, strict=True):
            y = layer(functional.pad(h.transpose(1, 2), (2, 0)))
            h = (h + functional.glu(y, 1).transpose(1, 2)) * 0.5**0.5
            scores = torch.bmm(query(h) + g, z.transpose(1, 2)).masked_fill(padding[:, None], -torch.inf)
            c = torch.bmm(scores.softmax(-1), z + e) * lengths[:, None, None] ** 0.5
            h = (h + context(c)) * 0.5**0.5
        return functional.linear(self.leave2(h), self.embed.weight)


def sentences(tokens: int) -> Sentences:
    """Draw sentences of 5 to 40 tokens, with about `tokens` tokens in total."""
    torch.manual_seed(1)
    lengths = torch.randint(5, 41, (max(1, tokens // 22),)).tolist()
    return [torch.randint(3, VOCABULARY, (length,)) for length in lengths]


def ragged_step(model: Seq2Seq, batch: Sentences) -> Callable[[], None]:
    """Return the step of our model, on sentences in random order."""
    text = Ragged.from_list(batch)

    def step() -> None:
        torch.autograd.backward(smoothed_cross_entropy(model(text, text), text.values, 0.1))

    return step


def padded_step(model: nn.Module, batch: Sentences, parts: int = 4) -> Callable[[], None]:
    """Return the step of a torch model, on several batches sorted by length, which need little padding."""
    batch = sorted(batch, key=len)
    size = -(-len(batch) // parts)
    groups = [batch[start : start + size] for start in range(0, len(batch), size)]

    def step() -> None:
        for group in groups:
            rows, lengths = pad_sequence(group, batch_first=True), torch.tensor([len(sentence) for sentence in group])
            labels = pad_sequence(group, batch_first=True, padding_value=-100)
            logits = model(rows, lengths, rows).flatten(0, 1)
            loss = functional.cross_entropy(logits, labels.flatten(), label_smoothing=0.1, reduction="sum")
            torch.autograd.backward(loss)

    return step


def contenders(width: int, batch: Sentences) -> dict[str, list[Callable[[], None]]]:
    """Return the steps of each family: ours, and that of the torch model if there is one."""
    sizes: dict[str, Any] = {"width": width, "dropout": 0.0, "tied": "all"}
    luong = Luong(**sizes, layers=2, backwards=False)
    settings: dict[str, Model] = {
        "sutskever": Sutskever(**sizes, layers=2, backwards=False),
        "bahdanau": Bahdanau(**sizes),
        "luong": luong,
        "luong, no input feeding": luong.model_copy(update={"feeding": False}),
        "convs2s": ConvS2S(**sizes, encoder_layers=4, decoder_layers=4),
        "transformer": Transformer(**sizes, inner=4 * width, heads=4, encoder_layers=3, decoder_layers=3),
    }
    ours = {name: build(model, VOCABULARY, VOCABULARY) for name, model in settings.items()}
    peers = {
        "sutskever": Padded(width, attention=False, feeding=False),
        "luong": Padded(width, attention=True, feeding=True),
        "luong, no input feeding": Padded(width, attention=True, feeding=False),
        "convs2s": PaddedConvolutions(width, 4),
    }
    return {
        name: [ragged_step(model, batch), *([padded_step(peers[name], batch)] if name in peers else [])]
        for name, model in ours.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--tokens", type=int, default=3000, help="source and target tokens of a batch")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    batch = sentences(options.tokens)
    tokens = sum(len(sentence) for sentence in batch)
    for name, steps in contenders(options.width, batch).items():
        seconds: list[list[float]] = [[] for _ in steps]
        for turn in range(options.turns + 1):
            for taken, step in zip(seconds, steps, strict=True):
                start = time.process_time()
                step()
                if turn:  # the first turn is a warm-up
                    taken.append(time.process_time() - start)
        medians = [statistics.median(taken) for taken in seconds]
        row = {"family": name, "tokens_per_second": [round(tokens / median) for median in medians]}
        if options.json:
            print(json.dumps(row), flush=True)
        else:
            ratio = f"  padded {tokens / medians[1]:,.0f}  ratio {medians[1] / medians[0]:.2f}" if steps[1:] else ""
            print(f"{name:24s} ours {tokens / medians[0]:,.0f} tok/s{ratio}", flush=True)


if __name__ == "__main__":
    main()
