"""Cross-entropy with label smoothing (Szegedy et al. 2016, §7; Vaswani et al. 2017, §5.4), summed over tokens.

For logits z over V tokens, label y and smoothing ε:

    loss = log Σ exp z - (1 - ε) z_y - ε mean(z)
    d loss / dz = softmax(z) - (1 - ε) onehot(y) - ε / V

The logits are by far the largest tensor of a training step. They are processed in chunks of rows, so that they never
exist in float32 all at once; `fused_cross_entropy` never stores the logits of all tokens at all.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from regard.nn.cuda import HAVE_TRITON, supports

if HAVE_TRITON:
    from regard.nn.cuda import loss as kernels

IGNORED = -1  # the label of a token that is not predicted
CPU_CHUNK = 2**20  # logits processed at a time on a CPU, so that they stay in its cache
DEVICE_CHUNK = 2**28  # logits processed at a time on other devices: few launches, yet bounded memory
ROW_MULTIPLE = 64  # chunks are multiples of it, because oneDNN compiles half-precision products for each row count


def smoothed_cross_entropy(
    logits_NV: Float[Tensor, "N V"], labels_N: Int[Tensor, " N"], smoothing: float = 0.0
) -> Float[Tensor, ""]:
    """Return the cross-entropy of logits, summed over the tokens whose label is not `IGNORED`."""
    return _from_logits(logits_NV, labels_N, smoothing)


def fused_cross_entropy(
    states_ND: Float[Tensor, "N D"],
    weight_VD: Float[Tensor, "V D"],
    bias_V: Float[Tensor, " V"] | None,
    labels_N: Int[Tensor, " N"],
    smoothing: float = 0.0,
) -> Float[Tensor, ""]:
    """Return the summed cross-entropy of hidden states projected to the vocabulary.

    In eager mode, logits and gradients are computed chunk by chunk, and the logits of all tokens never exist at once.
    Compiled code has no chunks: there the logits exist, in the precision of the product. With Triton, their gradient is
    computed together with the loss, while the logits are in the cache.

    Args:
        states_ND: The last hidden states.
        weight_VD: The output projection.
        bias_V: Its bias, if any.
        labels_N: The token to predict at each position, or `IGNORED`.
        smoothing: The label smoothing ε.
    """
    device = states_ND.device.type
    with_gradient = supports(states_ND) and torch.is_grad_enabled()
    if torch.compiler.is_compiling() and not with_gradient:
        return smoothed_cross_entropy(functional.linear(states_ND, weight_VD, bias_V), labels_N, smoothing)
    if torch.is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)
        states_ND, weight_VD = states_ND.to(dtype), weight_VD.to(dtype)
        bias_V = None if bias_V is None else bias_V.to(dtype)
    with torch.autocast(device, enabled=False):
        loss = _from_product if torch.compiler.is_compiling() else _from_states
        return loss(states_ND, weight_VD, bias_V, labels_N, smoothing)


def _losses(logits_NV: Tensor, labels_N: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    """Return the loss of each token and its log-sum-exp."""
    z_NV = logits_NV.to(_at_least_float32(logits_NV))
    lse_N = z_NV.logsumexp(-1)
    label_N = z_NV.gather(1, labels_N.clamp(min=0)[:, None])[:, 0]
    losses_N = lse_N - (1 - smoothing) * label_N - smoothing * z_NV.mean(-1)
    return losses_N.where(labels_N != IGNORED, 0), lse_N


def _gradient(logits_NV: Tensor, lse_N: Tensor, labels_N: Tensor, smoothing: float) -> Tensor:
    """Return the gradient of the summed loss to the logits, at least in float32."""
    z_NV = (logits_NV.to(lse_N.dtype) - lse_N[:, None]).exp()
    if torch.compiler.is_compiling():
        # Out-of-place operations, which the compiler fuses into one pass.
        token_V = torch.arange(z_NV.shape[1], device=z_NV.device)
        onehot_NV = (token_V == labels_N[:, None]).to(z_NV.dtype)
        z_NV = z_NV - smoothing / z_NV.shape[1] - (1 - smoothing) * onehot_NV
        return z_NV * (labels_N != IGNORED)[:, None]
    z_NV.sub_(smoothing / z_NV.shape[1])
    z_NV[torch.arange(z_NV.shape[0], device=z_NV.device), labels_N.clamp(min=0)] -= 1 - smoothing
    return z_NV.mul_((labels_N != IGNORED)[:, None])


def _loss_and_gradient(logits_NV: Tensor, labels_N: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    """Return the summed loss and its gradient to the logits, at least in float32, computing exponentials once."""
    z_NV = logits_NV.to(_at_least_float32(logits_NV), copy=True)
    max_N = z_NV.amax(-1)
    z_NV.sub_(max_N[:, None])
    row_N, counted_N = torch.arange(z_NV.shape[0], device=z_NV.device), labels_N != IGNORED
    label_N = z_NV[row_N, labels_N.clamp(min=0)]
    mean_N = z_NV.mean(-1) if smoothing else 0.0
    sum_N = z_NV.exp_().sum(-1)
    # Subtracting the maximum from all logits changes neither loss nor gradient.
    losses_N = sum_N.log() - (1 - smoothing) * label_N - smoothing * mean_N
    # z holds the exponentials: divided by their sum they are the softmax, and ignored tokens become zero.
    z_NV.mul_((counted_N / sum_N)[:, None])
    if smoothing:
        z_NV.sub_((counted_N * (smoothing / z_NV.shape[1]))[:, None])
    z_NV[row_N, labels_N.clamp(min=0)] -= (1 - smoothing) * counted_N
    return losses_N.where(counted_N, 0).sum(), z_NV


def _triton_loss_and_gradient(logits_NV: Tensor, labels_N: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    """Return the summed loss and its gradient by a Triton kernel, the gradient in the precision of the logits."""
    losses_N, d_logits_NV = kernels.losses_and_gradient(logits_NV, labels_N, smoothing)
    return losses_N.sum(), d_logits_NV


class _FromLogits(torch.autograd.Function):
    """The loss of logits, chunk by chunk; the gradient is written once, in the precision of the logits."""

    @staticmethod
    def forward(ctx: Any, logits_NV: Tensor, labels_N: Tensor, smoothing: float) -> Tensor:
        ctx.smoothing = smoothing
        if supports(logits_NV):
            parts = [kernels.losses(logits_NV, labels_N, smoothing)]
        else:
            parts = [_losses(logits_NV[rows], labels_N[rows], smoothing) for rows in _chunks_of(logits_NV)]
        losses_N, lse_N = (torch.cat(part) if len(parts) > 1 else part[0] for part in zip(*parts, strict=True))
        ctx.save_for_backward(logits_NV, labels_N, lse_N)
        return losses_N.sum()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        logits_NV, labels_N, lse_N = ctx.saved_tensors
        if supports(logits_NV):
            return kernels.gradient(logits_NV, labels_N, lse_N, gradients[0], ctx.smoothing), None, None
        if torch.compiler.is_compiling():
            gradient_NV = _gradient(logits_NV, lse_N, labels_N, ctx.smoothing) * gradients[0]
            return gradient_NV.to(logits_NV.dtype), None, None
        gradient_NV = torch.empty_like(logits_NV)
        for rows in _chunks_of(logits_NV):
            part_NV = _gradient(logits_NV[rows], lse_N[rows], labels_N[rows], ctx.smoothing)
            gradient_NV[rows] = part_NV.mul_(gradients[0])
        return gradient_NV, None, None


class _FromProduct(torch.autograd.Function):
    """The loss of states from all logits at once, with their gradient computed in the forward pass.

    The incoming gradient, a scalar, multiplies the products with `d_logits_NV`, which are smaller than it.
    """

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
    """The loss of states, chunk by chunk, with gradients made in the forward pass: no logits outlive their chunk."""

    @staticmethod
    def forward(
        ctx: Any, states_ND: Tensor, weight_VD: Tensor, bias_V: Tensor | None, labels_N: Tensor, smoothing: float
    ) -> Tensor:
        dtype, differentiable = _at_least_float32(states_ND), any(ctx.needs_input_grad[:3])
        loss = torch.zeros((), dtype=dtype, device=states_ND.device)
        d_states_ND = torch.empty_like(states_ND) if differentiable else states_ND
        d_weight_VD = torch.zeros_like(weight_VD, dtype=dtype) if differentiable else weight_VD
        d_bias_V = torch.zeros_like(bias_V, dtype=dtype) if differentiable and bias_V is not None else None
        for rows in _chunks(states_ND.shape[0], weight_VD.shape[0], states_ND.device):
            logits_NV = functional.linear(states_ND[rows], weight_VD, bias_V)
            if not differentiable:
                loss += _losses(logits_NV, labels_N[rows], smoothing)[0].sum()
                continue
            compute = _triton_loss_and_gradient if supports(logits_NV) else _loss_and_gradient
            part, d_logits_NV = compute(logits_NV, labels_N[rows], smoothing)
            loss += part
            if d_bias_V is not None:
                d_bias_V += d_logits_NV.sum(0, dtype=dtype)
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


def _at_least_float32(x: Tensor) -> torch.dtype:
    return torch.promote_types(x.dtype, torch.float32)


def _chunks_of(logits_NV: Tensor) -> Iterator[slice]:
    """Return the chunks of rows to process at a time; one for all rows while compiling."""
    if torch.compiler.is_compiling():
        return iter([slice(None)])
    return _chunks(logits_NV.shape[0], logits_NV.shape[1], logits_NV.device)


def _chunks(tokens: int, vocabulary: int, device: torch.device) -> Iterator[slice]:
    """Return slices of as many rows as are processed at a time."""
    rows = max(1, (CPU_CHUNK if device.type == "cpu" else DEVICE_CHUNK) // max(1, vocabulary))
    rows = rows // ROW_MULTIPLE * ROW_MULTIPLE or rows
    return (slice(begin, begin + rows) for begin in range(0, max(1, tokens), rows))


_from_logits: Callable[[Tensor, Tensor, float], Tensor] = _FromLogits.apply
_from_product: Callable[[Tensor, Tensor, Tensor | None, Tensor, float], Tensor] = _FromProduct.apply
_from_states: Callable[[Tensor, Tensor, Tensor | None, Tensor, float], Tensor] = _FromStates.apply
