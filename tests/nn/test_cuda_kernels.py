"""The kernels written for CUDA give the numbers of plain torch; without a GPU, Triton's interpreter runs them.

In a process of its own, because the interpreter is chosen when Triton is imported: this file, a program.
"""

import json
import math
import os
import subprocess
import sys

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from regard.nn.cross_entropy import _losses
from regard.nn.cuda import HAVE_TRITON
from regard.nn.cuda.turns import turns
from regard.nn.ragged import Layout

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
HEADS, SIZE, SCALE, WIDTH = 2, 16, 0.3, 48


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, device=DEVICE, requires_grad=True)


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


def attention(causal: bool, window: int, queries: list[int], keys: list[int], tensors: int = 3) -> float:
    """How far the kernels' output and gradients are from plain torch; what is projected lies in so many tensors."""
    from regard.nn.cuda import attention as kernels

    apart = [drawn(sum(each), HEADS, SIZE) for each in (queries, keys, keys)]
    parts = [torch.split_with_sizes(x, n) for x, n in zip(apart, (queries, keys, keys), strict=True)]
    expected = torch.cat([attended(q, k, v, causal, window) for q, k, v in zip(*parts, strict=True)])
    d_out = torch.randn_like(expected)
    torch.autograd.backward(expected, d_out)
    there, wanted = ([x.flatten(1) for x in side] for side in (apart, [x.grad for x in apart if x.grad is not None]))
    alone = tensors - 1
    given = [*there[:alone], torch.cat(there[alone:], 1)] if tensors < 3 else there
    given = [x.detach().requires_grad_() for x in given]
    wanted = [*wanted[:alone], torch.cat(wanted[alone:], 1)] if tensors < 3 else wanted
    sides = Layout.from_lengths(queries).to(DEVICE), Layout.from_lengths(keys).to(DEVICE)
    turn = turns(*sides)
    where = sides[0].offsets, sides[1].offsets, turn.order_B, turn.ends, turn.longest
    out, _ = kernels.ragged_attention(given, *where, (HEADS, SIZE, SIZE), SCALE, causal, window)
    torch.autograd.backward(out, d_out)
    return furthest([out, *(x.grad for x in given if x.grad is not None)], [expected, *wanted])


def add_norm(dropout: float, biased: bool) -> float:
    """The same of the residual connection; which numbers were dropped is read off the stream."""
    from regard.nn.cuda import residual as kernels

    (x, y), (more, weight, bias) = (drawn(37, WIDTH), drawn(37, WIDTH)), (drawn(WIDTH), drawn(WIDTH), drawn(WIDTH))
    mine = [each.detach().requires_grad_() for each in (x, y, more, weight, bias)]
    given = [each if biased or number != 2 else None for number, each in enumerate(mine)]
    stream, normed, _, _ = kernels.add_norm(*given, torch.tensor([12345], device=DEVICE), 1e-5, dropout)
    kept = ((stream - mine[0]).abs() > 0).float()
    assert abs(float(kept.mean()) - (1 - dropout)) < 0.05
    expected = x + (y + more if biased else y) * kept / (1 - dropout)
    after = functional.layer_norm(expected, (WIDTH,), weight, bias)
    d_stream, d_normed = torch.randn_like(stream), torch.randn_like(stream)
    torch.autograd.backward([expected, after], [d_stream, d_normed])
    torch.autograd.backward([stream, normed], [d_stream, d_normed])
    gradients = [(one.grad, other.grad) for one, other in zip(mine, (x, y, more, weight, bias), strict=True)]
    both = [(one, other) for one, other in gradients if one is not None]
    assert len(both) == 4 + biased
    return furthest([stream, normed, *(one for one, _ in both)], [expected, after, *(other for _, other in both)])


def bias_relu(rows: int, width: int) -> float:
    """The same of a bias and what is cut off behind it."""
    from regard.nn.cuda import bias as kernels

    h, bias, d_out = drawn(rows, width), drawn(width), drawn(rows, width).detach()
    mine = [each.detach().requires_grad_() for each in (h, bias)]
    expected, out = (h + bias).relu(), kernels.bias_relu(*mine)
    for each in (expected, out):
        torch.autograd.backward(each, d_out)
    return furthest([out, *(x.grad for x in mine if x.grad is not None)], [expected, h.grad, bias.grad])


def loss() -> float:
    """The same of the loss, apart from its gradient and together with it."""
    from regard.nn.cuda import loss as kernels

    scores, labels = drawn(7, 8531), torch.tensor([5, 0, -1, 8530, 4100, 2047, -1], device=DEVICE)
    expected, _ = _losses(scores, labels, 0.1)
    torch.autograd.backward(expected.sum() * 0.5)
    losses, totals = kernels.losses(scores.detach(), labels, 0.1)
    apart = kernels.gradient(scores.detach(), labels, totals, torch.tensor(0.5, device=DEVICE), 0.1)
    same, whole = kernels.losses_and_gradient(scores.detach(), labels, 0.1)
    return furthest([losses, apart, same, whole / 2], [expected, scores.grad, expected, scores.grad])


def loss_of_a_product(biased: bool) -> float:
    """The same of the loss of states, by way of scores."""
    from regard.nn.cross_entropy import _from_product

    states, weight, bias, labels = drawn(7, WIDTH), drawn(531, WIDTH), drawn(531), torch.arange(-1, 6, device=DEVICE)
    mine = [each.detach().requires_grad_() for each in (states, weight, bias)]
    expected = _losses(functional.linear(states, weight, bias if biased else None), labels, 0.1)[0].sum()
    got = _from_product(mine[0], mine[1], mine[2] if biased else None, labels, 0.1)
    for each in (expected, got):
        torch.autograd.backward(each * 0.1)
    wanted = [states.grad, weight.grad, bias.grad][: 2 + biased]
    off = furthest([x.grad for x in mine if x.grad is not None], wanted)
    return max(off, float((expected - got).abs() / expected))


def own_step(beams: int, older: int) -> float:
    """One step of a search: what it mixes, and what it keeps."""
    from regard.nn.cuda import step

    lines, places = 3, (older + 2) * beams
    qkv = drawn(lines * beams, 3 * HEADS * SIZE).detach()
    keys, values = (drawn(lines, HEADS, places, SIZE).detach() for _ in range(2))
    shade = torch.where(torch.rand(lines, beams, places, device=DEVICE) < 0.5, 0.0, -math.inf)
    place = torch.arange(older * beams, (older + 1) * beams, device=DEVICE)
    wanted = [keys.clone(), values.clone()]
    q, k, v = (each.view(lines, beams, HEADS, SIZE).transpose(1, 2) for each in qkv.chunk(3, 1))
    wanted[0][:, :, place], wanted[1][:, :, place] = k, v
    seen = shade.clone()
    seen[:, :, older * beams :] = -math.inf
    seen[:, torch.arange(beams), place] = 0.0
    mixed = functional.scaled_dot_product_attention(q, wanted[0], wanted[1], attn_mask=seen[:, None], scale=SCALE)
    out = step.attend_own(qkv, (keys, values), shade, place, HEADS, SCALE)
    return furthest([out, keys, values], [mixed.transpose(1, 2).flatten(2).flatten(0, 1), *wanted])


def memory_step(beams: int, places: int) -> float:
    """The same of the look at a memory."""
    from regard.nn.cuda import step

    q, keys, values = drawn(3 * beams, HEADS * SIZE), drawn(3, HEADS, places, SIZE), drawn(3, HEADS, places, SIZE)
    shade = torch.where(torch.rand(3, places, device=DEVICE) < 0.3, -math.inf, 0.0)
    shade[:, 0] = 0.0
    queries = q.view(3, beams, HEADS, SIZE).transpose(1, 2)
    mixed = functional.scaled_dot_product_attention(queries, keys, values, attn_mask=shade[:, None, None], scale=SCALE)
    out = step.attend_memory(q.detach(), (keys.detach(), values.detach()), shade, HEADS, beams, SCALE)
    return furthest([out], [mixed.transpose(1, 2).flatten(2).flatten(0, 1)])


def few_rows(rows: int, width: int, outputs: int, relu: bool) -> float:
    """The same of a product of few rows."""
    from regard.nn.cuda import step

    x, weight, bias = drawn(rows, width).detach(), drawn(outputs, width).detach() / width**0.5, drawn(outputs).detach()
    expected = functional.linear(x, weight, bias)
    return furthest([step.few_rows(x, weight, bias, relu)], [expected.relu() if relu else expected])


def decoder_step(pre: bool, beams: int) -> float:
    """The same of a whole decoder, some steps of a search in which rows change places."""
    from regard.models.fast.parts import stacks_of
    from regard.models.fast.quick import QuickDecoder
    from regard.models.fast.static import StaticEngine
    from regard.models.outline import Outline
    from regard.nn.ragged import Ragged

    model = Outline(32, 64, 2, 2, 2, norm_first=pre).seq2seq(70, 70).eval().requires_grad_(False)
    stacks, sources = stacks_of(model), Ragged.from_list([[3, 4, 5], [6], [9] * 17, []])
    assert stacks is not None
    plain, quick = StaticEngine(stacks, DEVICE, "float32"), StaticEngine(stacks, DEVICE, "float32")
    plain.quick, quick.quick = None, QuickDecoder(stacks, quick.decoder, quick.kind)
    states, apart = [each.start(sources, beams) for each in (plain, quick)], 0.0
    for _ in range(5):
        tokens, rows = torch.randint(70, (4 * beams,)).to(DEVICE), torch.randint(beams, (4 * beams,))
        said = [each.step(tokens, state) for each, state in zip((plain, quick), states, strict=True)]
        apart = max(apart, furthest([said[0][0]], [said[1][0]]))
        rows = (torch.arange(4 * beams) // beams * beams + rows).to(DEVICE)
        states = [each.select(state, rows) for each, (_, state) in zip((plain, quick), said, strict=True)]
    return apart


def picked(banned: list[int]) -> float:
    """The same of the most probable token."""
    from regard.nn.cuda import step

    scores, short = drawn(7, 9003).detach(), torch.tensor([1, 0, 0, 1, 0, 1, 1], device=DEVICE).bool()
    scores[:3, 8] = 9.0
    scores[2:5, 5] = 10.0
    logprobs = scores[:, :9000].log_softmax(-1)
    ends = logprobs[:, 8].clone()
    logprobs[short, 8] = -math.inf
    logprobs[:, banned] = -math.inf
    told = torch.tensor(banned, device=DEVICE) if banned else None
    token, logprob, end = step.pick(scores, 9000, told, 8, short)
    best = logprobs.max(1)
    assert token.tolist() == best.indices.tolist()
    return furthest([logprob, end], [best.values, ends])


def furthest(mine: list[Tensor], theirs: list[Tensor | None]) -> float:
    return max(float((one - other).abs().max()) for one, other in zip(mine, theirs, strict=True) if other is not None)


def everything() -> dict[str, float]:
    torch.manual_seed(0)
    same, other = [3, 0, 40, 150, 1, 5, 64, 32], [4, 2, 33, 0, 65, 70, 0, 0]
    return {
        "self": attention(False, -1, same, same),
        "causal": attention(True, -1, same, same),
        "window": attention(False, 5, same, same),
        "causal window": attention(True, 3, same, same),
        "cross": attention(False, -1, same, other),
        "short": attention(True, -1, [3, 0, 32], [3, 0, 32]),
        "merged": attention(True, -1, same, same, tensors=1),
        "keys and values merged": attention(False, -1, same, other, tensors=2),
        "sum and norm": add_norm(0.0, False),
        "sum and norm with dropout": add_norm(0.3, False),
        "sum with a bias and norm": add_norm(0.3, True),
        "bias and cut": bias_relu(37, WIDTH),
        "bias and cut, wide": bias_relu(50, 300),
        "loss": loss(),
        "loss of a product": loss_of_a_product(False),
        "loss of a product with a bias": loss_of_a_product(True),
        "a first step": own_step(1, 0),
        "a step": own_step(1, 5),
        "a step of beams": own_step(5, 30),
        "a look at a memory": memory_step(1, 12),
        "beams look at a memory": memory_step(5, 70),
        "a decoder's step": decoder_step(True, 1),
        "a decoder's step of beams, norms behind": decoder_step(False, 3),
        "the best token": picked([]),
        "the best token that is allowed": picked([5, 7]),
        "one row": few_rows(1, 48, 530, False),
        "few rows": few_rows(5, 1030, 300, True),
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
