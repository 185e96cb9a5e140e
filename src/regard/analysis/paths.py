"""How a layer's work hangs together: products that must wait for each other, and how far influence travels.

Both are found by running layers, not by reasoning about them. `sequential` writes down every operation and counts
the longest chain of products in which each needs the one before. `reached` asks the gradient of the last output which
inputs it depends on after so many operations: layers, or for a recurrence steps of its cell.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.fx import Node
from torch.fx.experimental.proxy_tensor import make_fx

from regard.analysis.layers import KERNEL, Kind, restricted
from regard.nn.attention.multihead import SelfAttention
from regard.nn.attention.plan import plan
from regard.nn.attention.sight import Sight
from regard.nn.convolution import GatedConvolution, Window
from regard.nn.ragged import Layout
from regard.nn.recurrent import Recurrence

WIDTH = 16  # of the layers that are traced: influence does not depend on it
SIGHT = 2  # neighbours to each side that traced restricted self-attention sees
PRODUCTS = {"mm", "addmm", "bmm", "baddbmm"}

Step = Callable[[Tensor], Tensor]


def sequential(kind: Kind, length: int) -> int:
    """Products in one layer over so many tokens that must wait for each other: the longest chain of them."""
    layer = _layer(kind, Layout.from_lengths([length]))
    with torch.no_grad():
        graph = make_fx(layer)(torch.randn(length, WIDTH)).graph
    depth: dict[Node, int] = {}
    for node in graph.nodes:  # an operation stands behind those it needs
        before = max((depth[each] for each in node.all_input_nodes), default=0)
        depth[node] = before + (node.op == "call_function" and _is_product(str(node.target)))
    return max(depth.values())


def _is_product(name: str) -> bool:
    """Whether an operation of torch's is a product of matrices or holds some."""
    return bool(PRODUCTS & set(name.split("."))) or "_scaled_dot_product" in name


def reached(kind: Kind, length: int, operations: int, dilated: bool = False) -> list[bool]:
    """Which inputs the last output depends on after so many operations.

    An operation is a layer; of a recurrence, which is one layer, it is a step: what comes from before the last so many
    steps is cut off. `dilated` lets each convolution look back only, and skip k times as much as the one below, as in
    ByteNet (Kalchbrenner et al. 2016); the paper means these by its logarithm.
    """
    torch.manual_seed(0)
    layout = Layout.from_lengths([length])
    x_ND = torch.randn(length, WIDTH, dtype=torch.float64, requires_grad=True)
    with torch.random.fork_rng(devices=[]):
        if kind == "recurrent":
            made_ND = _recur(_recurrence().double(), x_ND, operations)
        else:
            made_ND = x_ND
            for number in range(operations):
                made_ND = _layer(kind, layout, KERNEL**number if dilated else None)(made_ND)
    (gradient_ND,) = torch.autograd.grad(made_ND[-1].sum(), x_ND)
    return [bool(each) for each in gradient_ND.abs().sum(-1) > 0]


def path_length(kind: Kind, length: int, dilated: bool = False) -> int:
    """Operations until the last output depends on every input: the longest way between two of so many places."""
    below, enough = 0, 1
    while not all(reached(kind, length, enough, dilated)):
        below, enough = enough, 2 * enough
    while enough - below > 1:
        middle = (below + enough) // 2
        below, enough = (below, middle) if all(reached(kind, length, middle, dilated)) else (middle, enough)
    return enough


def _layer(kind: Kind, layout: Layout, apart: int | None = None) -> Step:
    """One layer of a kind, in the number format of what it is given."""
    match kind:
        case "self-attention" | "self-attention layer":
            attention, look = SelfAttention(WIDTH, 1), plan(Sight(), layout, layout)
            return lambda x_ND: _run(attention, x_ND, look)
        case "restricted self-attention":
            near = restricted(layout.tokens, SIGHT)
            return lambda x_ND: near(*[x_ND[None, :, None]] * 3)[0, :, 0]
        case "convolutional":
            convolution, window = GatedConvolution(WIDTH, KERNEL), _window(layout, apart)
            return lambda x_ND: _run(convolution, x_ND, window)
        case "recurrent":
            return lambda x_ND: _recur(_recurrence().to(x_ND.dtype), x_ND, x_ND.shape[0])


def _run(layer: nn.Module, x_ND: Tensor, where: object) -> Tensor:
    made_ND: Tensor = layer.to(x_ND.dtype)(x_ND, where)
    return made_ND


def _window(layout: Layout, apart: int | None) -> Window:
    """The neighbours of a convolution; where they stand apart, those before only."""
    if apart is None:
        return Window.of(layout, KERNEL, causal=False)
    shifts = tuple(-apart * back for back in reversed(range(KERNEL)))
    return Window(shifts, tuple((layout.position_N >= -shift)[:, None] for shift in shifts))


def _recurrence() -> Recurrence:
    return Recurrence("lstm", WIDTH, WIDTH)


def _recur(recurrence: Recurrence, x_ND: Tensor, steps: int) -> Tensor:
    """Step by step over one sequence; before the last so many steps, nothing is passed on."""
    hidden, tops = recurrence.rest(1, x_ND), []
    for place, x_D in enumerate(x_ND):
        if place == x_ND.shape[0] - steps:
            hidden = tuple(each.detach() for each in hidden)
        top_RD, hidden = recurrence.step(x_D[None], hidden)
        tops.append(top_RD)
    return torch.cat(tops)
