"""The families before the Transformer give the numbers of the CPU on CUDA, with cuDNN's recurrences.

Also a program, for machines with CUDA but without pytest: it prints the differences.
"""

import json

import pytest
import torch
from torch import Tensor

from regard.models.build import build
from regard.models.seq2seq import Seq2Seq
from regard.nn.cross_entropy import smoothed_cross_entropy
from regard.nn.ragged import Layout, Ragged
from regard.recipe import Bahdanau, ConvS2S, Luong, Model, Sutskever

SETTINGS: dict[str, Model] = {
    "sutskever": Sutskever(width=32, layers=2, tied="none", dropout=0.0),
    "sutskever, gru": Sutskever(width=32, layers=2, cell="gru", tied="none", dropout=0.0),
    "bahdanau": Bahdanau(width=32, embedding=24, readout_width=16, tied="none", dropout=0.0),
    "luong": Luong(width=32, layers=2, dropout=0.0, tied="none"),
    "luong, dot, not fed": Luong(width=32, layers=2, score="dot", feeding=False, dropout=0.0, tied="none"),
    "luong, local": Luong(width=32, layers=1, reach=2, dropout=0.0, tied="none"),
    "convs2s": ConvS2S(width=32, encoder_layers=2, decoder_layers=2, positions=50, dropout=0.0, tied="none"),
    "convs2s, wide": ConvS2S(
        width=32, embedding=320, encoder_layers=1, decoder_layers=1, positions=50, dropout=0.0, tied="none"
    ),
}
SOURCES, TARGETS = [5, 0, 10, 40], [3, 4, 1, 9]


def drawn(lengths: list[int]) -> Ragged:
    return Ragged(torch.randint(50, (sum(lengths),)), Layout.from_lengths(lengths))


def results(model: Seq2Seq, source: Ragged, target: Ragged) -> list[Tensor]:
    """Return a loss, its gradients, and the log-probabilities of the second step of a search."""
    loss = smoothed_cross_entropy(model(source, target), target.values, 0.1)
    gradients = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)
    tokens = torch.arange(8, device=target.values.device)
    with torch.no_grad():
        _, state = model.step(tokens, model.start(source, 2))
        logprobs, _ = model.step(tokens, model.select(state, tokens.view(4, 2).flip(1).flatten()))
    return [loss.detach(), logprobs, *(gradient for gradient in gradients if gradient is not None)]


def largest_difference(mine: list[Tensor], expected: list[Tensor]) -> float:
    """Return the largest difference, relative to the largest value of the tensor."""
    pairs = zip(mine, expected, strict=True)
    return max(
        float((one.cpu().double() - two.cpu()).abs().max() / two.abs().max().clamp(min=1e-3)) for one, two in pairs
    )


def differences(name: str) -> tuple[float, float]:
    """Return the differences of CUDA to float64 on the CPU: in float32, and of the loss alone in half precision."""
    torch.manual_seed(0)
    exact = build(SETTINGS[name], 50, 50).double()
    model = build(SETTINGS[name], 50, 50).cuda()
    model.load_state_dict(exact.state_dict())
    source, target = drawn(SOURCES), drawn(TARGETS)
    expected = results(exact, source, target)
    source, target = source.to("cuda"), target.to("cuda")
    single = largest_difference(results(model, source, target), expected)
    with torch.autocast("cuda", torch.bfloat16):
        half = largest_difference(results(model, source, target)[:1], expected[:1])
    return single, half


@pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no CUDA")
@pytest.mark.parametrize("name", SETTINGS)
def test_a_family_on_cuda_gives_the_numbers_of_the_cpu(name: str) -> None:
    torch.backends.cudnn.allow_tf32 = False
    single, half = differences(name)
    assert single < 1e-4
    assert half < 0.01


if __name__ == "__main__":
    torch.backends.cudnn.allow_tf32 = False
    for family in SETTINGS:
        print(json.dumps({family: differences(family)}), flush=True)
