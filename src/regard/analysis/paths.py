"""Sequential operations and path lengths of layers, found by running them.

`sequential_operations` traces a layer and counts the longest chain of dependent matrix products. `inputs_reached` uses
the gradient of the last output to find the inputs that it depends on after a number of layers (of a recurrence: steps).
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.fx import Node
from torch.fx.experimental.proxy_tensor import make_fx

from regard.analysis.layers import KERNEL, LayerKind, restricted_attention
from regard.nn.attention.mask import AttentionMask
from regard.nn.attention.multihead import SelfAttention
from regard.nn.attention.plan import plan_attention
from regard.nn.convolution import ConvolutionWindow, GatedConvolution
from regard.nn.ragged import Layout
from regard.nn.recurrent import RecurrentLayers

WIDTH = 16  # of the traced layers; the results do not depend on it
TRACED_REACH = 2  # neighbours on each side in traced restricted self-attention
MATMULS = {"mm", "addmm", "bmm", "baddbmm"}

LayerFunction = Callable[[Tensor], Tensor]


def sequential_operations(kind: LayerKind, length: int) -> int:
    """Return the length of the longest chain of dependent matrix products in one layer."""
    layer = _layer(kind, Layout.from_lengths([length]))
    with torch.no_grad():
        graph = make_fx(layer)(torch.randn(length, WIDTH)).graph
    depth: dict[Node, int] = {}
    for node in graph.nodes:  # in topological order
        before = max((depth[source] for source in node.all_input_nodes), default=0)
        depth[node] = before + (node.op == "call_function" and _is_matmul(str(node.target)))
    return max(depth.values())


def _is_matmul(name: str) -> bool:
    """Return whether a torch operation is or contains a matrix product."""
    return bool(MATMULS & set(name.split("."))) or "_scaled_dot_product" in name


def inputs_reached(kind: LayerKind, length: int, operations: int, dilated: bool = False) -> list[bool]:
    """Return for each input whether the last output depends on it after a number of operations.

    Args:
        kind: The layer.
        length: Tokens of the sequence.
        operations: Number of layers. For a recurrence, number of steps: the state before the last steps is detached.
        dilated: Use causal convolutions whose dilation grows by the factor k per layer, as in ByteNet (Kalchbrenner et
            al. 2016). The logarithmic path length of the paper is that of these.
    """
    torch.manual_seed(0)
    layout = Layout.from_lengths([length])
    x_ND = torch.randn(length, WIDTH, dtype=torch.float64, requires_grad=True)
    with torch.random.fork_rng(devices=[]):
        if kind == "recurrent":
            output_ND = _run_recurrence(_lstm().double(), x_ND, operations)
        else:
            output_ND = x_ND
            for number in range(operations):
                output_ND = _layer(kind, layout, KERNEL**number if dilated else None)(output_ND)
    (gradient_ND,) = torch.autograd.grad(output_ND[-1].sum(), x_ND)
    return [bool(reached) for reached in gradient_ND.abs().sum(-1) > 0]


def path_length(kind: LayerKind, length: int, dilated: bool = False) -> int:
    """Return the number of operations after which the last output depends on every input (binary search)."""
    below, enough = 0, 1
    while not all(inputs_reached(kind, length, enough, dilated)):
        below, enough = enough, 2 * enough
    while enough - below > 1:
        middle = (below + enough) // 2
        below, enough = (below, middle) if all(inputs_reached(kind, length, middle, dilated)) else (middle, enough)
    return enough


def _layer(kind: LayerKind, layout: Layout, dilation: int | None = None) -> LayerFunction:
    """Return a layer with random weights, in the dtype of its input."""
    match kind:
        case "self-attention" | "self-attention layer":
            attention, plan = SelfAttention(WIDTH, 1), plan_attention(AttentionMask(), layout, layout)
            return lambda x_ND: _run(attention, x_ND, plan)
        case "restricted self-attention":
            attend = restricted_attention(layout.tokens, TRACED_REACH)
            return lambda x_ND: attend(*[x_ND[None, :, None]] * 3)[0, :, 0]
        case "convolutional":
            convolution, window = GatedConvolution(WIDTH, KERNEL), _window(layout, dilation)
            return lambda x_ND: _run(convolution, x_ND, window)
        case "recurrent":
            return lambda x_ND: _run_recurrence(_lstm().to(x_ND.dtype), x_ND, x_ND.shape[0])


def _run(layer: nn.Module, x_ND: Tensor, context: object) -> Tensor:
    output_ND: Tensor = layer.to(x_ND.dtype)(x_ND, context)
    return output_ND


def _window(layout: Layout, dilation: int | None) -> ConvolutionWindow:
    """Return a symmetric window, or a causal one with the given dilation."""
    if dilation is None:
        return ConvolutionWindow.from_layout(layout, KERNEL, causal=False)
    shifts = tuple(-dilation * back for back in reversed(range(KERNEL)))
    return ConvolutionWindow(shifts, tuple((layout.position_N >= -shift)[:, None] for shift in shifts))


def _lstm() -> RecurrentLayers:
    return RecurrentLayers("lstm", WIDTH, WIDTH)


def _run_recurrence(recurrence: RecurrentLayers, x_ND: Tensor, steps: int) -> Tensor:
    """Run a recurrence step by step; the state before the last `steps` steps is detached."""
    hidden, tops = recurrence.initial_state(1, x_ND), []
    for position, x_D in enumerate(x_ND):
        if position == x_ND.shape[0] - steps:
            hidden = tuple(state.detach() for state in hidden)
        top_RD, hidden = recurrence.step(x_D[None], hidden)
        tops.append(top_RD)
    return torch.cat(tops)
