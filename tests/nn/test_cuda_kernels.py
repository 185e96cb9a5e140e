"""The kernels written for CUDA give the numbers of plain torch; without a GPU, Triton's interpreter runs them.

In a process of its own, because the interpreter is chosen when Triton is imported: this file, a program.
"""

import json
import math
import os
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from regard.nn.cross_entropy import _losses
from regard.nn.cuda import HAVE_TRITON

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
HEADS, SIZE, SCALE, WIDTH = 2, 16, 0.3, 48


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, device=DEVICE, requires_grad=True)


def offsets(lengths: list[int]) -> Tensor:
    return torch.tensor([0, *lengths], device=DEVICE).cumsum(0).int()


def attended(q: Tensor, k: Tensor, v: Tensor, causal: bool, window: int) -> Tensor:
    """One sequence, in plain words."""
    if k.shape[0] == 0:
        return torch.zeros_like(q) * q
    query, key = torch.arange(q.shape[0], device=DEVICE)[:, None], torch.arange(k.shape[0], device=DEVICE)
    seen = torch.ones(q.shape[0], k.shape[0], dtype=torch.bool, device=DEVICE)
    seen &= (key <= query) if causal else seen
    seen &= ((query - key).abs() <= window) if window >= 0 else seen
    scores = torch.einsum("qhe,khe->hqk", q, k) * SCALE
    return torch.einsum("hqk,khe->qhe", scores.masked_fill(~seen, -math.inf).softmax(-1), v)


def attention(causal: bool, window: int, queries: list[int], keys: list[int]) -> float:
    """How far the kernel's output and gradients are from plain torch."""
    from regard.nn.cuda import attention as kernels

    q_offsets, k_offsets = offsets(queries), offsets(keys)
    q, k, v = (drawn(sum(each), HEADS, SIZE) for each in (queries, keys, keys))
    of_q, of_k, of_v = (torch.split_with_sizes(x, n) for x, n in ((q, queries), (k, keys), (v, keys)))
    each = zip(of_q, of_k, of_v, strict=True)
    expected = torch.cat([attended(one_q, one_k, one_v, causal, window) for one_q, one_k, one_v in each])
    d_out = torch.randn_like(expected)
    torch.autograd.backward(expected, d_out)
    there = [each.detach() for each in (q, k, v)]
    out, lse = torch.empty_like(there[0]), torch.empty(HEADS, sum(queries), device=DEVICE)
    gradients = [torch.empty_like(each) for each in there]
    strides = [each.stride(number) for each in there for number in (0, 1)]
    sizes: dict[str, Any] = {"SCALE": SCALE, "HEADS": HEADS, "E": SIZE, "E2": SIZE, "EXACT": "ieee"}
    told = {**sizes, "CAUSAL": causal, "WINDOW": window, "TILE": 32}
    grid, where = (len(queries), HEADS), (q_offsets, k_offsets, sum(queries), *strides)
    kernels._attend[grid](*there, out, lse, *where, **told)
    kernels._attend_backward[grid](*there, out, d_out, lse, *gradients, *where, **told)
    return furthest([out, *gradients], [expected, q.grad, k.grad, v.grad])


def add_norm(dropout: float) -> float:
    """The same of the residual connection; which numbers were dropped is read off the stream."""
    from regard.nn.cuda import residual as kernels

    (x, y), (weight, bias) = (drawn(37, WIDTH), drawn(37, WIDTH)), (drawn(WIDTH), drawn(WIDTH))
    there = [each.detach() for each in (x, y, weight, bias)]
    seed, shape = torch.tensor([12345], device=DEVICE), kernels._shape(WIDTH, dropout)
    stream, normed, dx, dy = (torch.empty_like(there[0]) for _ in range(4))
    mean, inverse, (dw, db) = *torch.empty(2, 37, device=DEVICE), torch.empty(2, 5, WIDTH, device=DEVICE)
    grid = (-(-37 // int(shape["ROWS"])),)
    kernels._add_norm[grid](*there, seed, stream, normed, mean, inverse, 37, EPS=1e-5, **shape)
    kept = ((stream - there[0]).abs() > 0).float()
    assert abs(float(kept.mean()) - (1 - dropout)) < 0.05
    expected = x + y * kept / (1 - dropout)
    after = functional.layer_norm(expected, (WIDTH,), weight, bias)
    d_stream, d_normed = torch.randn_like(stream), torch.randn_like(stream)
    torch.autograd.backward([expected, after], [d_stream, d_normed])
    kernels._add_norm_backward[(5,)](
        d_stream, d_normed, stream, there[2], seed, mean, inverse, dx, dy, dw, db, 37, FLOWS=True, **shape
    )
    wanted = [expected, after, x.grad, y.grad, weight.grad, bias.grad]
    return furthest([stream, normed, dx, dy, dw.sum(0), db.sum(0)], wanted)


def loss() -> float:
    """The same of the loss."""
    from regard.nn.cuda import loss as kernels

    scores, labels = drawn(7, 531), torch.tensor([5, 0, -1, 530, 7, 8, -1], device=DEVICE)
    expected, _ = _losses(scores, labels, 0.1)
    torch.autograd.backward(expected.sum() * 0.5)
    (losses, totals), gradient = torch.empty(2, 7, device=DEVICE), torch.empty(7, 531, device=DEVICE)
    told = {"SMOOTHING": 0.1, "V": 531, "BLOCK": 128}
    kernels._losses[(7,)](scores.detach(), labels, losses, totals, 531, **told)
    half = torch.tensor(0.5, device=DEVICE)
    kernels._gradient[(7, 5)](scores.detach(), labels, totals, half, gradient, 531, **told)
    return furthest([losses, gradient], [expected, scores.grad])


def furthest(mine: list[Tensor], theirs: list[Tensor | None]) -> float:
    return max(float((one - other).abs().max()) for one, other in zip(mine, theirs, strict=True) if other is not None)


def everything() -> dict[str, float]:
    torch.manual_seed(0)
    same, other = [3, 0, 40, 70, 1, 5], [4, 2, 33, 0, 65, 70]
    return {
        "self": attention(False, -1, same, same),
        "causal": attention(True, -1, same, same),
        "window": attention(False, 5, same, same),
        "causal window": attention(True, 3, same, same),
        "cross": attention(False, -1, same, other),
        "sum and norm": add_norm(0.0),
        "sum and norm with dropout": add_norm(0.3),
        "loss": loss(),
    }


@pytest.mark.skipif(not HAVE_TRITON, reason="Triton is not installed; on CUDA it comes with torch")
def test_every_kernel_gives_the_numbers_of_plain_torch() -> None:
    mode = {"TRITON_INTERPRET": "1"} if DEVICE == "cpu" else {}
    done = subprocess.run([sys.executable, __file__], env={**os.environ, **mode}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert max(said.values()) < 2e-5, said


if __name__ == "__main__":
    print(json.dumps(everything()))
