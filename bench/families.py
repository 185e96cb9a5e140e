"""One training step of each family, ours beside the same model as it is usually written in torch, in one run.

    python bench/families.py
    python bench/families.py --width 256 --tokens 4096 --turns 5

Theirs pad: `pack_padded_sequence` around torch's LSTM, a loop over cells where states are fed back, `bmm` and a masked
softmax, `conv1d` and `glu`. Both see the same sentences, theirs sorted by length. Contenders take turns; the figure is
processor time, which a busy machine disturbs less, and the ratio of medians. tok/s counts real target tokens.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

from regard.models.convolutional.outline import ConvS2S
from regard.models.outline import Outline
from regard.models.recurrent.outline import Bahdanau, Luong, Sutskever
from regard.models.seq2seq import Seq2Seq
from regard.nn.cross_entropy import smoothed_cross_entropy
from regard.nn.ragged import Ragged

VOCABULARY = 4000
Sentences = list[Tensor]


class Padded(nn.Module):
    """Luong's model over padded rows: two LSTM layers, bilinear scores, fed or not; or without attention."""

    def __init__(self, width: int, attention: bool, feeding: bool) -> None:
        """Built as a tutorial would."""
        super().__init__()
        self.embed, self.attention, self.feeding = nn.Embedding(VOCABULARY, width), attention, feeding
        self.encoder = nn.LSTM(width, width, 2, batch_first=True)
        self.decoder = nn.LSTM(2 * width if feeding else width, width, 2, batch_first=True)
        self.score, self.combine = nn.Linear(width, width, bias=False), nn.Linear(2 * width, width, bias=False)

    def forward(self, source: Tensor, lengths: Tensor, target: Tensor) -> Tensor:
        """Scores at every place of every row."""
        packed = pack_padded_sequence(self.embed(source), lengths, batch_first=True, enforce_sorted=False)
        read, state = self.encoder(packed)
        memory, _ = pad_packed_sequence(read, batch_first=True)
        hidden = torch.arange(memory.shape[1]) >= lengths[:, None]
        x = self.embed(target)
        if not self.feeding:
            h, _ = self.decoder(x, state)
            return self._scores(self._look(h, memory, hidden) if self.attention else h)
        vector, out = torch.zeros_like(x[:, :1]), []
        for step in range(x.shape[1]):
            h, state = self.decoder(torch.cat([x[:, step : step + 1], vector], -1), state)
            vector = self._look(h, memory, hidden)
            out.append(vector)
        return self._scores(torch.cat(out, 1))

    def _look(self, h: Tensor, memory: Tensor, hidden: Tensor) -> Tensor:
        scores = torch.bmm(self.score(h), memory.transpose(1, 2)).masked_fill(hidden[:, None], -torch.inf)
        return torch.tanh(self.combine(torch.cat([torch.bmm(scores.softmax(-1), memory), h], -1)))

    def _scores(self, x: Tensor) -> Tensor:
        return functional.linear(x, self.embed.weight)


class PaddedConvolutions(nn.Module):
    """ConvS2S over padded rows, by `conv1d`."""

    def __init__(self, width: int, layers: int) -> None:
        """Built as a tutorial would."""
        super().__init__()
        self.embed, self.places = nn.Embedding(VOCABULARY, width), nn.Embedding(1024, width)
        self.enter, self.leave, self.enter2, self.leave2 = (nn.Linear(width, width) for _ in range(4))
        self.read, self.write = (nn.ModuleList(nn.Conv1d(width, 2 * width, 3) for _ in range(layers)) for _ in range(2))
        self.query, self.context = (nn.ModuleList(nn.Linear(width, width) for _ in range(layers)) for _ in range(2))

    def forward(self, source: Tensor, lengths: Tensor, target: Tensor) -> Tensor:
        """Scores at every place of every row."""
        hidden = torch.arange(source.shape[1]) >= lengths[:, None]
        e, g = (self.embed(ids) + self.places(torch.arange(ids.shape[1])) for ids in (source, target))
        x = self.enter(e)
        for layer in self.read:
            y = layer(functional.pad(x.masked_fill(hidden[..., None], 0).transpose(1, 2), (1, 1)))
            x = (x + functional.glu(y, 1).transpose(1, 2)) * 0.5**0.5
        z, h = self.leave(x), self.enter2(g)
        for layer, query, context in zip(self.write, self.query, self.context, strict=True):
            y = layer(functional.pad(h.transpose(1, 2), (2, 0)))
            h = (h + functional.glu(y, 1).transpose(1, 2)) * 0.5**0.5
            scores = torch.bmm(query(h) + g, z.transpose(1, 2)).masked_fill(hidden[:, None], -torch.inf)
            c = torch.bmm(scores.softmax(-1), z + e) * lengths[:, None, None] ** 0.5
            h = (h + context(c)) * 0.5**0.5
        return functional.linear(self.leave2(h), self.embed.weight)


def sentences(tokens: int) -> Sentences:
    """Of 5 to 40 tokens, about as many in all."""
    torch.manual_seed(1)
    lengths = torch.randint(5, 41, (max(1, tokens // 22),)).tolist()
    return [torch.randint(3, VOCABULARY, (length,)) for length in lengths]


def ragged_step(model: Seq2Seq, batch: Sentences) -> Callable[[], None]:
    """Ours, in the order the sentences fall."""
    text = Ragged.from_list(batch)

    def step() -> None:
        torch.autograd.backward(smoothed_cross_entropy(model(text, text), text.values, 0.1))

    return step


def padded_step(model: nn.Module, batch: Sentences, parts: int = 4) -> Callable[[], None]:
    """Theirs, sorted by length and in several batches, as one does to pad little."""
    batch = sorted(batch, key=len)
    many = -(-len(batch) // parts)
    groups = [batch[begin : begin + many] for begin in range(0, len(batch), many)]

    def step() -> None:
        for group in groups:
            rows, lengths = pad_sequence(group, batch_first=True), torch.tensor([len(each) for each in group])
            labels = pad_sequence(group, batch_first=True, padding_value=-100)
            logits = model(rows, lengths, rows).flatten(0, 1)
            loss = functional.cross_entropy(logits, labels.flatten(), label_smoothing=0.1, reduction="sum")
            torch.autograd.backward(loss)

    return step


def contenders(width: int, batch: Sentences) -> dict[str, list[Callable[[], None]]]:
    """By family: ours, and theirs where there is one."""
    v = VOCABULARY
    luong = Luong(width, layers=2, dropout=0.0, tied="all", backwards=False)
    ours = {
        "sutskever": Sutskever(width, layers=2, tied="all", backwards=False).seq2seq(v, v),
        "bahdanau": Bahdanau(width, width, readout_width=width, tied="all").seq2seq(v, v),
        "luong": luong.seq2seq(v, v),
        "luong, not fed": replace(luong, feeding=False).seq2seq(v, v),
        "convs2s": ConvS2S(width, encoder_layers=4, decoder_layers=4, dropout=0.0, tied="all").seq2seq(v, v),
        "transformer": Outline(width, 4 * width, 4, 3, 3, dropout=0.0).seq2seq(v, v),
    }
    theirs = {
        "sutskever": Padded(width, attention=False, feeding=False),
        "luong": Padded(width, attention=True, feeding=True),
        "luong, not fed": Padded(width, attention=True, feeding=False),
        "convs2s": PaddedConvolutions(width, 4),
    }
    return {
        name: [ragged_step(model, batch), *([padded_step(theirs[name], batch)] if name in theirs else [])]
        for name, model in ours.items()
    }


def main() -> None:
    """Take turns, and print one line a family."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--tokens", type=int, default=3000, help="tokens of a batch, on each side")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    told = parser.parse_args()
    batch = sentences(told.tokens)
    tokens = sum(len(each) for each in batch)
    for name, steps in contenders(told.width, batch).items():
        seconds: list[list[float]] = [[] for _ in steps]
        for turn in range(told.turns + 1):
            for taken, step in zip(seconds, steps, strict=True):
                begin = time.process_time()
                step()
                if turn:  # the first is warming up
                    taken.append(time.process_time() - begin)
        medians = [statistics.median(each) for each in seconds]
        row = {"family": name, "tokens_per_second": [round(tokens / each) for each in medians]}
        if told.json:
            print(json.dumps(row), flush=True)
        else:
            ratio = f"  padded {tokens / medians[1]:,.0f}  ours is {medians[1] / medians[0]:.2f}×" if steps[1:] else ""
            print(f"{name:16s} ours {tokens / medians[0]:,.0f} tok/s{ratio}", flush=True)


if __name__ == "__main__":
    main()
