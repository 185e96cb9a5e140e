"""The Triton kernels agree with plain torch; without a GPU, Triton's interpreter runs them.

They run in a separate process (this file, as a program), because the interpreter is chosen when Triton is imported.
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
from regard.nn.cuda.length_classes import classify_lengths
from regard.nn.ragged import Layout

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
HEADS, SIZE, SCALE, WIDTH = 2, 16, 0.3, 48


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, device=DEVICE, requires_grad=True)


def plain_attention(q: Tensor, k: Tensor, v: Tensor, causal: bool, window: int) -> Tensor:
    """Attention within one sequence, in plain torch."""
    if k.shape[0] == 0:
        return torch.zeros_like(q) * q
    query, key = torch.arange(q.shape[0], device=DEVICE)[:, None], torch.arange(k.shape[0], device=DEVICE)
    allowed = torch.ones(q.shape[0], k.shape[0], dtype=torch.bool, device=DEVICE)
    allowed &= (key <= query) if causal else allowed
    allowed &= ((query - key).abs() <= window) if window >= 0 else allowed
    scores = torch.einsum("qhe,khe->hqk", q, k) * SCALE
    return torch.einsum("hqk,khe->qhe", scores.masked_fill(~allowed, -math.inf).softmax(-1), v)


def attention(causal: bool, window: int, queries: list[int], keys: list[int], tensors: int = 3) -> float:
    """Compare attention and its gradients, with queries, keys and values in 1, 2 or 3 tensors."""
    from regard.nn.cuda import attention as kernels

    apart = [random(sum(lengths), HEADS, SIZE) for lengths in (queries, keys, keys)]
    parts = [torch.split_with_sizes(x, n) for x, n in zip(apart, (queries, keys, keys), strict=True)]
    expected = torch.cat([plain_attention(q, k, v, causal, window) for q, k, v in zip(*parts, strict=True)])
    d_out = torch.randn_like(expected)
    torch.autograd.backward(expected, d_out)
    there, wanted = ([x.flatten(1) for x in side] for side in (apart, [x.grad for x in apart if x.grad is not None]))
    alone = tensors - 1
    given = [*there[:alone], torch.cat(there[alone:], 1)] if tensors < 3 else there
    given = [x.detach().requires_grad_() for x in given]
    wanted = [*wanted[:alone], torch.cat(wanted[alone:], 1)] if tensors < 3 else wanted
    sides = Layout.from_lengths(queries).to(DEVICE), Layout.from_lengths(keys).to(DEVICE)
    classes = classify_lengths(*sides)
    where = sides[0].offsets, sides[1].offsets, classes.order_B, classes.bounds, classes.longest
    out, _ = kernels.ragged_attention(given, *where, (HEADS, SIZE, SIZE), SCALE, causal, window)
    torch.autograd.backward(out, d_out)
    return largest_difference([out, *(x.grad for x in given if x.grad is not None)], [expected, *wanted])


def add_norm(dropout: float, biased: bool) -> float:
    """Compare the residual connection; the mask of the dropout is read off the stream."""
    from regard.nn.cuda import residual as kernels

    (x, y), (more, weight, bias) = (random(37, WIDTH), random(37, WIDTH)), (random(WIDTH), random(WIDTH), random(WIDTH))
    mine = [tensor.detach().requires_grad_() for tensor in (x, y, more, weight, bias)]
    given = [tensor if biased or number != 2 else None for number, tensor in enumerate(mine)]
    stream, normed, _, _ = kernels.add_norm(*given, torch.tensor([12345], device=DEVICE), 1e-5, dropout)
    kept = ((stream - mine[0]).abs() > 0).float()
    assert abs(float(kept.mean()) - (1 - dropout)) < 0.05
    expected = x + (y + more if biased else y) * kept / (1 - dropout)
    after = functional.layer_norm(expected, (WIDTH,), weight, bias)
    d_stream, d_normed = torch.randn_like(stream), torch.randn_like(stream)
    torch.autograd.backward([expected, after], [d_stream, d_normed])
    torch.autograd.backward([stream, normed], [d_stream, d_normed])
    gradients = [(one.grad, other.grad) for one, other in zip(mine, (x, y, more, weight, bias), strict=True)]
    pairs = [(one, other) for one, other in gradients if one is not None]
    assert len(pairs) == 4 + biased
    return largest_difference(
        [stream, normed, *(one for one, _ in pairs)], [expected, after, *(other for _, other in pairs)]
    )


def bias_relu(rows: int, width: int) -> float:
    """Compare a bias followed by ReLU."""
    from regard.nn.cuda import bias as kernels

    h, bias, d_out = random(rows, width), random(width), random(rows, width).detach()
    mine = [tensor.detach().requires_grad_() for tensor in (h, bias)]
    expected, out = (h + bias).relu(), kernels.bias_relu(*mine)
    for value in (expected, out):
        torch.autograd.backward(value, d_out)
    return largest_difference([out, *(x.grad for x in mine if x.grad is not None)], [expected, h.grad, bias.grad])


def loss() -> float:
    """Compare the loss, with its gradient computed later or together with it."""
    from regard.nn.cuda import loss as kernels

    scores, labels = random(7, 8531), torch.tensor([5, 0, -1, 8530, 4100, 2047, -1], device=DEVICE)
    expected, _ = _losses(scores, labels, 0.1)
    torch.autograd.backward(expected.sum() * 0.5)
    losses, totals = kernels.losses(scores.detach(), labels, 0.1)
    apart = kernels.gradient(scores.detach(), labels, totals, torch.tensor(0.5, device=DEVICE), 0.1)
    same, whole = kernels.losses_and_gradient(scores.detach(), labels, 0.1)
    return largest_difference([losses, apart, same, whole / 2], [expected, scores.grad, expected, scores.grad])


def loss_of_a_product(biased: bool) -> float:
    """Compare the loss of states projected to logits."""
    from regard.nn.cross_entropy import _from_product

    states, weight, bias, labels = random(7, WIDTH), random(531, WIDTH), random(531), torch.arange(-1, 6, device=DEVICE)
    mine = [tensor.detach().requires_grad_() for tensor in (states, weight, bias)]
    expected = _losses(functional.linear(states, weight, bias if biased else None), labels, 0.1)[0].sum()
    computed = _from_product(mine[0], mine[1], mine[2] if biased else None, labels, 0.1)
    for loss in (expected, computed):
        torch.autograd.backward(loss * 0.1)
    wanted = [states.grad, weight.grad, bias.grad][: 2 + biased]
    difference = largest_difference([x.grad for x in mine if x.grad is not None], wanted)
    return max(difference, float((expected - computed).abs() / expected))


def self_attention_step(beams: int, older: int) -> float:
    """Compare one decoding step of self-attention: its output, and the keys and values that it caches."""
    from regard.nn.cuda import decode_step

    lines, places = 3, (older + 2) * beams
    qkv = random(lines * beams, 3 * HEADS * SIZE).detach()
    keys, values = (random(lines, HEADS, places, SIZE).detach() for _ in range(2))
    mask = torch.where(torch.rand(lines, beams, places, device=DEVICE) < 0.5, 0.0, -math.inf)
    new_keys = torch.arange(older * beams, (older + 1) * beams, device=DEVICE)
    wanted = [keys.clone(), values.clone()]
    q, k, v = (projection.view(lines, beams, HEADS, SIZE).transpose(1, 2) for projection in qkv.chunk(3, 1))
    wanted[0][:, :, new_keys], wanted[1][:, :, new_keys] = k, v
    seen = mask.clone()
    seen[:, :, older * beams :] = -math.inf
    seen[:, torch.arange(beams), new_keys] = 0.0
    mixed = functional.scaled_dot_product_attention(q, wanted[0], wanted[1], attn_mask=seen[:, None], scale=SCALE)
    out = decode_step.attend_self(qkv, (keys, values), mask, new_keys, HEADS, SCALE)
    return largest_difference([out, keys, values], [mixed.transpose(1, 2).flatten(2).flatten(0, 1), *wanted])


def cross_attention_step(beams: int, places: int) -> float:
    """Compare one decoding step of cross-attention."""
    from regard.nn.cuda import decode_step

    q, keys, values = random(3 * beams, HEADS * SIZE), random(3, HEADS, places, SIZE), random(3, HEADS, places, SIZE)
    mask = torch.where(torch.rand(3, places, device=DEVICE) < 0.3, -math.inf, 0.0)
    mask[:, 0] = 0.0
    queries = q.view(3, beams, HEADS, SIZE).transpose(1, 2)
    mixed = functional.scaled_dot_product_attention(queries, keys, values, attn_mask=mask[:, None, None], scale=SCALE)
    out = decode_step.attend_cross(q.detach(), (keys.detach(), values.detach()), mask, HEADS, beams, SCALE)
    return largest_difference([out], [mixed.transpose(1, 2).flatten(2).flatten(0, 1)])


def few_rows(rows: int, width: int, outputs: int, relu: bool) -> float:
    """Compare a linear layer with few rows."""
    from regard.nn.cuda import decode_step

    x, weight, bias = (
        random(rows, width).detach(),
        random(outputs, width).detach() / width**0.5,
        random(outputs).detach(),
    )
    expected = functional.linear(x, weight, bias)
    return largest_difference(
        [decode_step.linear_few_rows(x, weight, bias, relu)], [expected.relu() if relu else expected]
    )


def decoder_step(pre: bool, beams: int) -> float:
    """Compare a whole decoder over some steps of a search that reorders its rows."""
    from regard.engines.parts import transformer_parts
    from regard.engines.static_engine import StaticEngine
    from regard.engines.triton_decoder import TritonDecoder
    from regard.models.build import build
    from regard.nn.ragged import Ragged
    from regard.recipe import Transformer

    settings = Transformer(width=32, inner=64, heads=2, encoder_layers=2, decoder_layers=2, norm_first=pre)
    model = build(settings, 70, 70).eval().requires_grad_(False)
    parts, sources = transformer_parts(model), Ragged.from_list([[3, 4, 5], [6], [9] * 17, []])
    assert parts is not None
    plain, fast = StaticEngine(parts, DEVICE, "float32"), StaticEngine(parts, DEVICE, "float32")
    plain.triton, fast.triton = None, TritonDecoder(parts, fast.decoder, fast.target)
    states, apart = [engine.start(sources, beams) for engine in (plain, fast)], 0.0
    for _ in range(5):
        tokens, rows = torch.randint(70, (4 * beams,)).to(DEVICE), torch.randint(beams, (4 * beams,))
        results = [engine.step(tokens, state) for engine, state in zip((plain, fast), states, strict=True)]
        apart = max(apart, largest_difference([results[0][0]], [results[1][0]]))
        rows = (torch.arange(4 * beams) // beams * beams + rows).to(DEVICE)
        states = [engine.select(state, rows) for engine, (_, state) in zip((plain, fast), results, strict=True)]
    return apart


def best_token(banned: list[int]) -> float:
    """Compare the choice of the most probable token."""
    from regard.nn.cuda import decode_step

    scores, short = random(7, 9003).detach(), torch.tensor([1, 0, 0, 1, 0, 1, 1], device=DEVICE).bool()
    scores[:3, 8] = 9.0
    scores[2:5, 5] = 10.0
    logprobs = scores[:, :9000].log_softmax(-1)
    ends = logprobs[:, 8].clone()
    logprobs[short, 8] = -math.inf
    logprobs[:, banned] = -math.inf
    ids = torch.tensor(banned, device=DEVICE) if banned else None
    token, logprob, end = decode_step.pick_best_token(scores, 9000, ids, 8, short)
    best = logprobs.max(1)
    assert token.tolist() == best.indices.tolist()
    return largest_difference([logprob, end], [best.values, ends])


def largest_difference(mine: list[Tensor], theirs: list[Tensor | None]) -> float:
    return max(
        float((x - expected).abs().max()) for x, expected in zip(mine, theirs, strict=True) if expected is not None
    )


def all_differences() -> dict[str, float]:
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
        "bias and ReLU": bias_relu(37, WIDTH),
        "bias and ReLU, wide": bias_relu(50, 300),
        "loss": loss(),
        "loss of a product": loss_of_a_product(False),
        "loss of a product with a bias": loss_of_a_product(True),
        "a first step": self_attention_step(1, 0),
        "a step": self_attention_step(1, 5),
        "a step of beams": self_attention_step(5, 30),
        "cross-attention step": cross_attention_step(1, 12),
        "cross-attention step of beams": cross_attention_step(5, 70),
        "a decoder's step": decoder_step(True, 1),
        "a decoder's step of beams, post-norm": decoder_step(False, 3),
        "the best token": best_token([]),
        "the best token that is allowed": best_token([5, 7]),
        "one row": few_rows(1, 48, 530, False),
        "few rows": few_rows(5, 1030, 300, True),
    }


@pytest.mark.skipif(not HAVE_TRITON, reason="Triton is not installed; on CUDA it comes with torch")
def test_every_kernel_agrees_with_plain_torch() -> None:
    mode = {"TRITON_INTERPRET": "1"} if DEVICE == "cpu" else {}
    done = subprocess.run([sys.executable, __file__], env={**os.environ, **mode}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    differences = json.loads(done.stdout)
    assert max(differences.values()) < 2e-5, differences


if __name__ == "__main__":
    print(json.dumps(all_differences()))
