"""A compiled model gives the numbers of the plain one, and is compiled once for batches of every size.

It runs in a separate process (this file, as a program), because the type checks of the tests cannot be compiled.
"""

import json
import subprocess
import sys

import pytest
import torch
import torch._dynamo
from torch import Tensor, nn

from regard.models.build import build
from regard.models.seq2seq import Seq2Seq
from regard.nn.cross_entropy import smoothed_cross_entropy
from regard.nn.ragged import Layout, Ragged
from regard.recipe import Transformer, parse
from regard.tasks.classification import ClassificationBatch, ClassificationTask

LENGTHS = [([5, 0, 10, 40], [3, 4, 1, 9]), ([30, 2], [4, 40]), ([7] * 20, [6] * 20)]
KINDS = {
    "paper": Transformer(width=64, inner=128, heads=2, encoder_layers=1, decoder_layers=1, norm_first=False),
    "rotary, window": Transformer(
        width=64, inner=128, heads=2, encoder_layers=2, decoder_layers=2, position="rotary", window=6
    ),
    "alibi, swiglu": Transformer(
        width=64,
        inner=128,
        heads=2,
        encoder_layers=2,
        decoder_layers=2,
        position="alibi",
        activation="swiglu",
        norm="rms",
    ),
}


def drawn(lengths: list[int], device: str) -> Ragged:
    return Ragged(torch.randint(50, (sum(lengths),)), Layout.from_lengths(lengths)).to(device)


def loss(model: Seq2Seq, source: Ragged, target: Ragged) -> Tensor:
    return smoothed_cross_entropy(model(source, target), target.values, 0.1)


def results(model: nn.Module, value: Tensor) -> list[Tensor]:
    """Return a loss and its gradients."""
    return [value.detach(), *torch.autograd.grad(value, list(model.parameters()))]


def largest_difference(mine: list[Tensor], expected: list[Tensor]) -> float:
    """Return the largest difference, relative to the largest value of the tensor."""
    pairs = zip(mine, expected, strict=True)
    return max(
        float((one.cpu().double() - two.cpu()).abs().max() / two.abs().max().clamp(min=1e-3)) for one, two in pairs
    )


def on_this_cpu() -> dict[str, float]:
    """Return the largest differences between compiled and plain, and the number of graphs of the encoder-decoder."""
    torch.manual_seed(0)
    model = build(KINDS["paper"], 50, 50).double().eval()
    compiled = torch.compile(loss, backend="aot_eager", fullgraph=True, dynamic=True)
    difference = 0.0
    for source, target in ((drawn(one, "cpu"), drawn(other, "cpu")) for one, other in LENGTHS):
        plain = results(model, loss(model, source, target))
        difference = max(difference, largest_difference(results(model, compiled(model, source, target)), plain))
    graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    return {"difference": difference, "graphs": graphs, **classifiers()}


def classifiers() -> dict[str, float]:
    """Return the largest difference between compiled and plain losses of classifiers, filled up as for a CUDA graph."""
    differences = {}
    data = "task = 'classification'\n[data]\ntrain = [{ path = 'train.tsv' }]\n"
    small = "model={ width = 16, inner = 32, heads = 2, encoder_layers = 1 }"
    for pooling, several, ngrams in (("first", "false", 0), ("attention", "true", 2)):
        chosen = [f"classification.{name}" for name in (f"pooling={pooling}", f"several={several}", f"ngrams={ngrams}")]
        task = ClassificationTask(parse(data, [small, *chosen]))
        torch.manual_seed(0)
        model = task.build({"text": 50, "label": 4}).double().eval()
        labels = Ragged(torch.tensor([0, 3, 1, 2]), Layout.from_lengths([1, 1, 1, 1]))
        texts = drawn([5, 2, 10, 40], "cpu")
        batch = ClassificationBatch(labels, torch.ones(4), torch.arange(4), texts).filled(128, 8, 64)
        plain = results(model, task.loss(model, batch))
        compiled = torch.compile(task.loss, backend="aot_eager", fullgraph=True, dynamic=False)
        differences[pooling] = largest_difference(results(model, compiled(model, batch)), plain)
    return differences


def on_cuda() -> dict[str, float]:
    """Return the difference of every kernel on CUDA to float64 on the CPU; in half precision, of the loss alone.

    Gradients in half precision differ much: a rounded activation may fall on the other side of the ReLU.
    """
    differences = {}
    for name, settings in KINDS.items():
        torch.manual_seed(0)
        exact = build(settings, 50, 50).double().eval()
        model = build(settings, 50, 50).cuda().eval()
        model.load_state_dict(exact.state_dict())
        compiled = torch.compile(loss, dynamic=False)
        source, target = (drawn(lengths, "cpu") for lengths in LENGTHS[0])
        expected = results(exact, loss(exact, source, target))
        on_device = source.to("cuda"), target.to("cuda")
        differences[f"{name}, padded"] = largest_difference(results(model, loss(model, *on_device)), expected)
        differences[f"{name}, packed"] = largest_difference(results(model, compiled(model, *on_device)), expected)
        with torch.autocast("cuda", torch.bfloat16):
            varlen = loss(model, *on_device)
        differences[f"{name}, half"] = largest_difference([varlen.detach()], expected[:1])
    return differences


def run_in_process(python: str, what: str) -> dict[str, float]:
    done = subprocess.run([python, __file__, what], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@pytest.fixture(scope="module")
def compiled_on_cpu(python: str) -> dict[str, float]:
    """Compile all models in one process, which starts slowly."""
    return run_in_process(python, "on_this_cpu")


def test_batches_of_every_size_run_through_one_compiled_model(compiled_on_cpu: dict[str, float]) -> None:
    assert compiled_on_cpu["graphs"] == 1
    assert compiled_on_cpu["difference"] < 1e-12


@pytest.mark.parametrize("pooling", ["first", "attention"])
def test_a_compiled_classifier_has_the_loss_and_the_gradients_of_a_plain_one(
    compiled_on_cpu: dict[str, float], pooling: str
) -> None:
    assert compiled_on_cpu[pooling] < 1e-12


@pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no CUDA")
def test_every_kernel_on_cuda_gives_the_numbers_of_the_cpu() -> None:
    differences = run_in_process(sys.executable, "on_cuda")
    assert max(value for name, value in differences.items() if not name.endswith("half")) < 1e-4, differences
    assert max(differences.values()) < 0.01, differences


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps({"on_this_cpu": on_this_cpu, "on_cuda": on_cuda}[sys.argv[1]]()))
