"""Cross-entropy with label smoothing (Szegedy et al. 2016, §7; Vaswani et al. 2017, §5.4), summed over tokens.

With scores z over V tokens, the right one y and smoothing ε, loss = log Σ exp z - (1 - ε) z_y - ε mean(z), and its
gradient is softmax(z) - (1 - ε) onehot(y) - ε / V. Half-precision scores are never copied whole to single precision.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from regard.nn.cuda import HAVE_TRITON, serves

if HAVE_TRITON:
    from regard.nn.cuda import loss as kernels

IGNORED = -1  # the label of a token that is not to be predicted
CHUNK = 2**20  # scores worked on at a time on a CPU, so that they stay in the cache
ROWS = 64  # worked on at a time, or a multiple: a CPU's half-precision products are compiled for each number of rows
LARGE_CHUNK = 2**28  # and elsewhere, so that few steps do and memory is spared


def smoothed_cross_entropy(
    logits_NV: Float[Tensor, "N V"], labels_N: Int[Tensor, " N"], smoothing: float = 0.0
) -> Float[Tensor, ""]:
    """The loss summed over all tokens but the ignored ones."""
    return _from_scores(logits_NV, labels_N, smoothing)


def fused_cross_entropy(
    states_ND: Float[Tensor, "N D"],
    weight_VD: Float[Tensor, "V D"],
    bias_V: Float[Tensor, " V"] | None,
    labels_N: Int[Tensor, " N"],
    smoothing: float = 0.0,
) -> Float[Tensor, ""]:
    """The loss of states scored against a vocabulary, summed; the scores of all tokens never exist at once.

    What is compiled does without the chunks: there the scores exist, in the precision of the products. With Triton
    their gradient is made with the loss, while they are at hand.
    """
    device = states_ND.device.type
    at_once = serves(states_ND) and torch.is_grad_enabled()
    if torch.compiler.is_compiling() and not at_once:
        return smoothed_cross_entropy(functional.linear(states_ND, weight_VD, bias_V), labels_N, smoothing)
    if torch.is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)
        states_ND, weight_VD = states_ND.to(dtype), weight_VD.to(dtype)
        bias_V = None if bias_V is None else bias_V.to(dtype)
    with torch.autocast(device, enabled=False):
        made = _from_product if torch.compiler.is_compiling() else _from_states
        return made(states_ND, weight_VD, bias_V, labels_N, smoothing)


def _losses(logits_NV: Tensor, labels_N: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    """Each token's loss, and the logarithm of its sum of exponentials."""
    z_NV = logits_NV.to(_exact(logits_NV))
    total_N = z_NV.logsumexp(-1)
    right_N = z_NV.gather(1, labels_N.clamp(min=0)[:, None])[:, 0]
    losses_N = total_N - (1 - smoothing) * right_N - smoothing * z_NV.mean(-1)
    return losses_N.where(labels_N != IGNORED, 0), total_N


def _gradient(logits_NV: Tensor, total_N: Tensor, labels_N: Tensor, smoothing: float) -> Tensor:
    """Of the summed loss to the scores, in single precision at least; one pass where it is compiled."""
    z_NV = (logits_NV.to(total_N.dtype) - total_N[:, None]).exp()
    if torch.compiler.is_compiling():
        token_V = torch.arange(z_NV.shape[1], device=z_NV.device)
        right_NV = (token_V == labels_N[:, None]).to(z_NV.dtype)
        z_NV = z_NV - smoothing / z_NV.shape[1] - (1 - smoothing) * right_NV
        return z_NV * (labels_N != IGNORED)[:, None]
    z_NV.sub_(smoothing / z_NV.shape[1])
    z_NV[torch.arange(z_NV.shape[0], device=z_NV.device), labels_N.clamp(min=0)] -= 1 - smoothing
    return z_NV.mul_((labels_N != IGNORED)[:, None])


def _loss_and_gradient(logits_NV: Tensor, labels_N: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    """The summed loss and its gradient to the scores, in single precision at least, with one look at exponentials."""
    z_NV = logits_NV.to(_exact(logits_NV), copy=True)
    most_N = z_NV.amax(-1)
    z_NV.sub_(most_N[:, None])
    row_N, known_N = torch.arange(z_NV.shape[0], device=z_NV.device), labels_N != IGNORED
    right_N = z_NV[row_N, labels_N.clamp(min=0)]
    mean_N = z_NV.mean(-1) if smoothing else 0.0
    sum_N = z_NV.exp_().sum(-1)
    losses_N = sum_N.log() - (1 - smoothing) * right_N - smoothing * mean_N
    z_NV.mul_((known_N / sum_N)[:, None])
    if smoothing:
        z_NV.sub_((known_N * (smoothing / z_NV.shape[1]))[:, None])
    z_NV[row_N, labels_N.clamp(min=0)] -= (1 - smoothing) * known_N
    return losses_N.where(known_N, 0).sum(), z_NV


def _by_kernel(logits_NV: Tensor, labels_N: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    """The same with Triton, the gradient in the precision of the scores."""
    losses_N, d_logits_NV = kernels.losses_and_gradient(logits_NV, labels_N, smoothing)
    return losses_N.sum(), d_logits_NV


class _FromScores(torch.autograd.Function):
    """Some rows at a time, and the gradient written once, in the scores' own precision."""

    @staticmethod
    def forward(ctx: Any, logits_NV: Tensor, labels_N: Tensor, smoothing: float) -> Tensor:
        ctx.smoothing = smoothing
        if serves(logits_NV):
            parts = [kernels.losses(logits_NV, labels_N, smoothing)]
        else:
            parts = [_losses(logits_NV[rows], labels_N[rows], smoothing) for rows in _rows(logits_NV)]
        losses_N, total_N = (torch.cat(each) if len(parts) > 1 else each[0] for each in zip(*parts, strict=True))
        ctx.save_for_backward(logits_NV, labels_N, total_N)
        return losses_N.sum()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        logits_NV, labels_N, total_N = ctx.saved_tensors
        if serves(logits_NV):
            return kernels.gradient(logits_NV, labels_N, total_N, gradients[0], ctx.smoothing), None, None
        if torch.compiler.is_compiling():
            whole_NV = _gradient(logits_NV, total_N, labels_N, ctx.smoothing) * gradients[0]
            return whole_NV.to(logits_NV.dtype), None, None
        gradient_NV = torch.empty_like(logits_NV)
        for rows in _rows(logits_NV):
            part_NV = _gradient(logits_NV[rows], total_N[rows], labels_N[rows], ctx.smoothing)
            gradient_NV[rows] = part_NV.mul_(gradients[0])
        return gradient_NV, None, None


class _FromProduct(torch.autograd.Function):
    """All scores at once, and their gradient with the loss; what that is multiplied by is left for smaller tensors."""

    @staticmethod
    def forward(
        ctx: Any, states_ND: Tensor, weight_VD: Tensor, bias_V: Tensor | None, labels_N: Tensor, smoothing: float
    ) -> Tensor:
        logits_NV = functional.linear(states_ND, weight_VD, bias_V)
        losses_N, d_logits_NV = kernels.losses_and_gradient(logits_NV, labels_N, smoothing)
        ctx.save_for_backward(states_ND, weight_VD, d_logits_NV)
        ctx.bias = None if bias_V is None else bias_V.dtype
        loss: Tensor = losses_N.sum()
        return loss

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor | None, None, None]:
        (states_ND, weight_VD, d_logits_NV), scale = ctx.saved_tensors, gradients[0]
        d_bias_V = None if ctx.bias is None else (d_logits_NV.sum(0, dtype=torch.float32) * scale).to(ctx.bias)
        return (d_logits_NV @ weight_VD) * scale, (d_logits_NV.t() @ states_ND) * scale, d_bias_V, None, None


class _FromStates(torch.autograd.Function):
    """Some rows at a time: scores, loss, and at once the gradients, so that no score outlives its rows."""

    @staticmethod
    def forward(
        ctx: Any, states_ND: Tensor, weight_VD: Tensor, bias_V: Tensor | None, labels_N: Tensor, smoothing: float
    ) -> Tensor:
        exact, wanted = _exact(states_ND), any(ctx.needs_input_grad[:3])
        loss = torch.zeros((), dtype=exact, device=states_ND.device)
        d_states_ND = torch.empty_like(states_ND) if wanted else states_ND
        d_weight_VD = torch.zeros_like(weight_VD, dtype=exact) if wanted else weight_VD
        d_bias_V = torch.zeros_like(bias_V, dtype=exact) if wanted and bias_V is not None else None
        for rows in _rows_of(states_ND.shape[0], weight_VD.shape[0], states_ND.device):
            logits_NV = functional.linear(states_ND[rows], weight_VD, bias_V)
            if not wanted:
                loss += _losses(logits_NV, labels_N[rows], smoothing)[0].sum()
                continue
            made = _by_kernel if serves(logits_NV) else _loss_and_gradient
            part, d_logits_NV = made(logits_NV, labels_N[rows], smoothing)
            loss += part
            if d_bias_V is not None:
                d_bias_V += d_logits_NV.sum(0, dtype=exact)
            d_logits_NV = d_logits_NV.to(states_ND.dtype)
            d_states_ND[rows] = d_logits_NV @ weight_VD
            d_weight_VD += d_logits_NV.t() @ states_ND[rows]
        ctx.save_for_backward(d_states_ND, d_weight_VD, d_bias_V)
        ctx.dtypes = weight_VD.dtype, None if bias_V is None else bias_V.dtype
        return loss

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor | None, None, None]:
        d_states_ND, d_weight_VD, d_bias_V = ctx.saved_tensors
        scale = gradients[0]
        d_bias_V = None if d_bias_V is None else (d_bias_V * scale).to(ctx.dtypes[1])
        return d_states_ND * scale, (d_weight_VD * scale).to(ctx.dtypes[0]), d_bias_V, None, None


def _exact(x: Tensor) -> torch.dtype:
    """Single precision at least."""
    return torch.promote_types(x.dtype, torch.float32)


def _rows(logits_NV: Tensor) -> Iterator[slice]:
    """Slices of rows to work on at a time; all of them where it is compiled."""
    if torch.compiler.is_compiling():
        return iter([slice(None)])
    return _rows_of(logits_NV.shape[0], logits_NV.shape[1], logits_NV.device)


def _rows_of(tokens: int, vocabulary: int, device: torch.device) -> Iterator[slice]:
    """Slices of as many rows as are worked on at a time."""
    many = max(1, (CHUNK if device.type == "cpu" else LARGE_CHUNK) // max(1, vocabulary))
    many = many // ROWS * ROWS or many
    return (slice(begin, begin + many) for begin in range(0, max(1, tokens), many))


_from_scores: Callable[[Tensor, Tensor, float], Tensor] = _FromScores.apply
_from_product: Callable[[Tensor, Tensor, Tensor | None, Tensor, float], Tensor] = _FromProduct.apply
_from_states: Callable[[Tensor, Tensor, Tensor | None, Tensor, float], Tensor] = _FromStates.apply
