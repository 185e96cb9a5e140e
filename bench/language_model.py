"""Train a language model on characters: ours beside a training loop after nanoGPT, in one run.

    python bench/language_model.py                               # the CPU setting: 4 layers, 2,000 steps
    python bench/language_model.py --device cuda --out lm.json   # the GPU setting: 6 layers, 5,000 steps
    python bench/language_model.py --minutes 3 --only peer,recipe

The text is Tiny Shakespeare, and the settings are those that nanoGPT publishes for it.

peer    a loop written from nanoGPT's description in plain torch: pre-norm blocks without biases,
        `scaled_dot_product_attention`, AdamW, cosine decay with warm-up, gradient clipping, and random blocks of the
        token array; on CUDA with bfloat16 autocast and `torch.compile`
regard  the product's own training loop with the model size, batches and steps of the peer
recipe  the product's own training loop with `recipes/shakespeare.toml`, or on CUDA `recipes/shakespeare-gpu.toml`,
        which make other choices

All are evaluated by the same code on the same windows: the mean cross-entropy in nats per character over the whole
validation text, in windows of the block size that do not overlap, for the weights of the best validation. The curves of
`regard` and `recipe` are the product's own validation losses, which also count the end of the text. Time counts
training alone: without validation, and without the first steps, in which the model is compiled; `start` has these.
"""

import argparse
import gc
import gzip
import json
import math
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from measure import log, synchronize
from regard.nn.ragged import Ragged
from regard.recipe import Recipe, load
from regard.tasks import load_bundle
from regard.train.events import Progress, Started, Validated
from regard.train.loop import train

ROOT = Path(__file__).resolve().parents[1]
TEXT = ROOT.parent / "shared" / "data" / "shakespeare"
SEED = 1337


@dataclass(frozen=True)
class Setting:
    """A model and how it is trained."""

    layers: int
    heads: int
    width: int
    block: int
    batch: int
    steps: int
    dropout: float
    rate: float = 1e-3
    final_rate: float = 1e-4
    warmup: int = 100
    betas: tuple[float, float] = (0.9, 0.99)
    weight_decay: float = 0.1
    clip: float = 1.0
    every: int = 250


SETTINGS = {
    "cpu": Setting(layers=4, heads=4, width=128, block=64, batch=12, steps=2000, dropout=0.0),
    "cuda": Setting(layers=6, heads=6, width=384, block=256, batch=64, steps=5000, dropout=0.2),
}

RECIPES = {"cpu": "shakespeare.toml", "cuda": "shakespeare-gpu.toml"}


@dataclass
class Result:
    """The measurements of a contender.

    Attributes:
        loss: The validation loss of the best weights, in nats per character.
        steps: The number of updates.
        seconds: The training time, without the start.
        start: The seconds of the first steps, compiling included.
        tokens_per_second: The speed of training, without the start.
        parameters: The number of weights.
        curve: After how many steps, and the validation loss then.
    """

    loss: float = math.inf
    steps: int = 0
    seconds: float = 0.0
    start: float = 0.0
    tokens_per_second: float = 0.0
    parameters: int = 0
    curve: list[tuple[int, float]] = field(default_factory=list)


class Block(nn.Module):
    """Causal self-attention and a feed-forward layer, each behind a layer norm (Radford et al. 2019, §2.3)."""

    def __init__(self, setting: Setting) -> None:
        """Create the weights."""
        super().__init__()
        width = setting.width
        self.heads, self.dropout = setting.heads, setting.dropout
        self.norm_1, self.norm_2 = nn.LayerNorm(width, bias=False), nn.LayerNorm(width, bias=False)
        self.project_in, self.project_out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.inner, self.outer = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

    def forward(self, x_BTD: Tensor) -> Tensor:
        """Add what attention and then the feed-forward layer compute."""
        x_BTD = x_BTD + self._drop(self.project_out(self._attend(self.norm_1(x_BTD))))
        return x_BTD + self._drop(self.outer(functional.gelu(self.inner(self.norm_2(x_BTD)))))

    def _attend(self, x_BTD: Tensor) -> Tensor:
        query, key, value = self.project_in(x_BTD).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        dropout = self.dropout if self.training else 0.0
        y_BHTE = functional.scaled_dot_product_attention(query, key, value, dropout_p=dropout, is_causal=True)
        return y_BHTE.transpose(1, 2).flatten(2)

    def _drop(self, x_BTD: Tensor) -> Tensor:
        return functional.dropout(x_BTD, self.dropout, self.training)


class GPT(nn.Module):
    """A GPT-2-style decoder with learned positions and an output layer tied to the embedding."""

    def __init__(self, setting: Setting, vocabulary: int) -> None:
        """Create the weights, drawn as in GPT-2: deviation 0.02, less where a block adds to the residual stream."""
        super().__init__()
        self.dropout = setting.dropout
        self.tokens = nn.Embedding(vocabulary, setting.width)
        self.positions = nn.Embedding(setting.block, setting.width)
        self.blocks = nn.ModuleList(Block(setting) for _ in range(setting.layers))
        self.norm = nn.LayerNorm(setting.width, bias=False)
        for name, weight in self.named_parameters():
            if weight.dim() == 2:
                residual = name.endswith(("project_out.weight", "outer.weight"))
                nn.init.normal_(weight, std=0.02 / math.sqrt(2 * setting.layers) if residual else 0.02)

    def forward(self, ids_BT: Tensor) -> Tensor:
        """Return the logits of the next token at every position."""
        x_BTD = self.tokens(ids_BT) + self.positions.weight[: ids_BT.shape[1]]
        x_BTD = functional.dropout(x_BTD, self.dropout, self.training)
        for block in self.blocks:
            x_BTD = block(x_BTD)
        return functional.linear(self.norm(x_BTD), self.tokens.weight)


def read_text(folder: Path) -> tuple[str, str]:
    """Read the training and the validation text."""
    texts = []
    for name in ("train", "valid"):
        file = folder / f"{name}.txt.gz"
        if not file.is_file():
            raise SystemExit(f"{file} does not exist: name a folder with train.txt.gz and valid.txt.gz with --data")
        texts.append(gzip.decompress(file.read_bytes()).decode())
    return texts[0], texts[1]


def windows(ids: NDArray[np.int64], block: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield inputs and labels of batches of windows that do not overlap; the last batch is what remains."""
    whole = (len(ids) - 1) // block
    inputs, labels = (torch.from_numpy(ids[shift : shift + whole * block]).view(whole, block) for shift in (0, 1))
    yield from zip(torch.split(inputs, 256), torch.split(labels, 256), strict=True)
    if whole * block < len(ids) - 1:
        yield torch.from_numpy(ids[whole * block : -1])[None], torch.from_numpy(ids[whole * block + 1 :])[None]


@torch.inference_mode()
def validation_loss(
    logits: Callable[[Tensor], Tensor], ids: NDArray[np.int64], block: int, device: torch.device
) -> float:
    """Return the mean cross-entropy in nats per character over a text."""
    total = 0.0
    for inputs, labels in windows(ids, block):
        logits_BTV = logits(inputs.to(device)).float()
        total += functional.cross_entropy(logits_BTV.flatten(0, 1), labels.to(device).flatten(), reduction="sum").item()
    return total / (len(ids) - 1)


def learning_rate(setting: Setting, step: int) -> float:
    """Return the rate of a step: linear warm-up, then cosine decay."""
    if step < setting.warmup:
        return setting.rate * (step + 1) / (setting.warmup + 1)
    progress = (step - setting.warmup) / max(1, setting.steps - setting.warmup)
    return setting.final_rate + 0.5 * (1 + math.cos(math.pi * progress)) * (setting.rate - setting.final_rate)


class Peer:
    """A training loop after nanoGPT."""

    def __init__(self, setting: Setting, texts: tuple[str, str], device: torch.device) -> None:
        """Number the characters, and create the model and its optimiser."""
        torch.manual_seed(SEED)
        self.setting, self.device, self.draw = setting, device, np.random.default_rng(SEED)
        characters = sorted(set("".join(texts)))
        number = {character: at for at, character in enumerate(characters)}
        self.train_ids, self.valid_ids = (
            np.array([number[character] for character in text], dtype=np.int64) for text in texts
        )
        self.model = GPT(setting, len(characters)).to(device)
        weights = list(self.model.parameters())
        groups = [
            {"params": [weight for weight in weights if weight.dim() >= 2], "weight_decay": setting.weight_decay},
            {"params": [weight for weight in weights if weight.dim() < 2], "weight_decay": 0.0},
        ]
        self.optimiser = torch.optim.AdamW(groups, lr=setting.rate, betas=setting.betas, fused=device.type == "cuda")
        self.forward: Callable[[Tensor], Tensor] = torch.compile(self.model) if device.type == "cuda" else self.model
        self.autocast = torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda")

    def batch(self) -> tuple[Tensor, Tensor]:
        """Draw blocks from random places of the text; the labels are the inputs, one position later."""
        starts = self.draw.integers(0, len(self.train_ids) - self.setting.block, self.setting.batch)
        rows = torch.from_numpy(self.train_ids[starts[:, None] + np.arange(self.setting.block + 1)])
        if self.device.type == "cuda":
            rows = rows.pin_memory().to(self.device, non_blocking=True)
        return rows[:, :-1], rows[:, 1:]

    def step(self, number: int) -> None:
        """Update the weights once."""
        for group in self.optimiser.param_groups:
            group["lr"] = learning_rate(self.setting, number)
        inputs, labels = self.batch()
        with self.autocast:
            loss = functional.cross_entropy(self.forward(inputs).flatten(0, 1), labels.flatten())
        torch.autograd.backward(loss)
        nn.utils.clip_grad_norm_(self.model.parameters(), self.setting.clip)
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)

    def validate(self) -> float:
        """Return the validation loss."""
        self.model.eval()
        with self.autocast:
            loss = validation_loss(self.model, self.valid_ids, self.setting.block, self.device)
        self.model.train()
        return loss

    def train(self, minutes: float) -> Result:
        """Train for all steps of the setting, or until the time is up."""
        result = Result(parameters=sum(weight.numel() for weight in self.model.parameters()))
        start = time.perf_counter()
        self.step(0)
        synchronize(self.device)
        result.start = time.perf_counter() - start
        done = 1
        while done < self.setting.steps and result.start + result.seconds < 60 * minutes:
            start = time.perf_counter()
            until = min(self.setting.steps, (done // self.setting.every + 1) * self.setting.every)
            allowed = 60 * minutes - result.start - result.seconds
            while done < until and time.perf_counter() - start < allowed:
                self.step(done)
                done += 1
            synchronize(self.device)
            result.seconds += time.perf_counter() - start
            result.curve.append((done, self.validate()))
            log(f"peer: step {done}, validation loss {result.curve[-1][1]:.4f}, {result.seconds:.0f} s")
        result.steps = done
        result.loss = min((loss for _, loss in result.curve), default=math.inf)
        result.tokens_per_second = (done - 1) * self.setting.batch * self.setting.block / max(result.seconds, 1e-9)
        return result


def our_recipe(setting: Setting, folder: Path, device: str, minutes: float) -> Recipe:
    """Return a recipe with the model size, batches and steps of the peer."""
    settings: dict[str, Any] = {
        "task": "language_model",
        "data": {
            "root": str(folder),
            "train": [{"text": "train.txt.gz"}],
            "valid": {"text": "valid.txt.gz"},
            "documents": "file",
            "block": setting.block,
            "stride": 1,
            "drop": [],
        },
        "text": {"kind": "char", "normalise": "identity", "bytes": False},
        "model": {
            "width": setting.width,
            "inner": 4 * setting.width,
            "heads": setting.heads,
            "decoder_layers": setting.layers,
            "position": "learned",
            "positions": setting.block,
            "activation": "gelu",
            "scale_embedding": False,
            "init_std": 0.02,
            "dropout": setting.dropout,
            "attention_dropout": setting.dropout,
        },
        "train": {
            "steps": setting.steps,
            "minutes": None if math.isinf(minutes) else minutes,
            "tokens": setting.batch * setting.block,
            "rate": setting.rate,
            "schedule": "cosine",
            "warmup": setting.warmup,
            "decay": setting.weight_decay,
            "clip": setting.clip,
            "smoothing": 0.0,
            "precision": "bfloat16" if device == "cuda" else "float32",
            "every": setting.every,
        },
    }
    return Recipe.model_validate(settings)


def train_ours(name: str, recipe: Recipe, text: str, device: str, block: int) -> Result:
    """Train a recipe with the product's own loop, and evaluate the best weights on the windows of the peer."""
    result, tokens, first_tokens = Result(), 0, 0
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        start = time.perf_counter()
        for event in train(recipe, run, device):
            now = time.perf_counter()
            match event:
                case Started():
                    result.parameters = event.parameters
                case Progress():
                    # Between a `Progress` event and the event before it, the loop does nothing but train.
                    result.steps, tokens = event.step, event.tokens
                    if first_tokens:
                        result.seconds += now - start
                    else:
                        result.start, first_tokens = now - start, tokens
                case Validated():
                    result.curve.append((event.step, event.loss))
                    log(f"{name}: step {event.step}, validation loss {event.loss:.4f}, {result.seconds:.0f} s")
            start = time.perf_counter()
        bundle = load_bundle(run, device)
    ids = np.array(bundle.tokenizers["text"].encode(text), dtype=np.int64)

    def logits(ids_BT: Tensor) -> Tensor:
        offsets = np.arange(len(ids_BT) + 1) * ids_BT.shape[1]
        logits_NV: Tensor = bundle.model(Ragged.from_arrays(ids_BT.flatten().cpu(), offsets).to(device))
        return logits_NV.view(*ids_BT.shape, -1)

    with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
        result.loss = validation_loss(logits, ids, block, torch.device(device))
    result.tokens_per_second = (tokens - first_tokens) / max(result.seconds, 1e-9)
    return result


def table(results: dict[str, Result]) -> str:
    """Return the results as a table; ratios are to the first contender."""
    columns = ("nats/char", "ratio", "tok/s", "ratio", "seconds", "start", "steps", "weights")
    lines = [f"{'':8}" + "".join(f"{column:>11}" for column in columns)]
    first = next(iter(results.values()))
    for name, result in results.items():
        speed = result.tokens_per_second
        lines.append(
            f"{name:8}{result.loss:11.4f}{result.loss / first.loss:11.3f}{speed:11,.0f}"
            f"{speed / first.tokens_per_second:11.2f}{result.seconds:11.1f}{result.start:11.1f}"
            f"{result.steps:11,}{result.parameters:11,}"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=SETTINGS)
    parser.add_argument("--steps", type=int, help="updates; default: 2,000 on a CPU, 5,000 on CUDA")
    parser.add_argument("--minutes", type=float, default=math.inf, help="stop each contender after this training time")
    parser.add_argument("--only", default="peer,regard", help="of peer,regard,recipe; ratios are to the first")
    parser.add_argument("--data", type=Path, default=TEXT, help="folder with train.txt.gz and valid.txt.gz")
    parser.add_argument("--out", type=Path, help="also write JSON to this file")
    options = parser.parse_args()
    setting = SETTINGS[options.device]
    setting = replace(setting, steps=options.steps or setting.steps)
    texts = read_text(options.data)
    results: dict[str, Result] = {}
    for name in options.only.split(","):
        if name == "peer":
            results[name] = Peer(setting, texts, torch.device(options.device)).train(options.minutes)
        else:
            recipe = our_recipe(setting, options.data, options.device, options.minutes)
            if name == "recipe":
                overrides = [f"data.root={options.data}"]
                overrides += [f"train.steps={options.steps}"] if options.steps else []
                overrides += [] if math.isinf(options.minutes) else [f"train.minutes={options.minutes}"]
                recipe = load(ROOT / "recipes" / RECIPES[options.device], overrides)
            results[name] = train_ours(name, recipe, texts[1], options.device, setting.block)
        gc.collect()
    print(table(results))
    if options.out:
        report = {"device": options.device, "torch": torch.__version__, **asdict(setting)}
        report["results"] = {name: asdict(result) for name, result in results.items()}
        options.out.write_text(json.dumps(report, indent=2), encoding="utf-8")


if __name__ == "__main__":
    main()
