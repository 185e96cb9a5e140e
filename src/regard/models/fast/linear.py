"""Linear layers whose weights were laid out for the processor's kernels once, at the precision asked for.

float32 and bfloat16 are packed for oneDNN, which saves it from packing them at each of many small products. int8 is
dynamic: weights are int8 with a scale for each output, inputs are brought to eight bits by the range they happen to
have (Jacob et al. 2018, §2.1). Where a kernel is missing, torch's own linear layer serves.
"""

import warnings
from typing import Literal, Protocol, no_type_check, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

Precision = Literal["float64", "float32", "bfloat16", "int8"]
ROWS = 64  # for how many rows oneDNN is asked to lay a weight out; others run as well with it
SMALL = 1 << 17  # numbers in a float32 weight up to which torch is done before oneDNN has begun
FEW = 4  # rows that oneDNN multiplies by a weight in memory sooner than one, two or three, by up to a quarter
MANY = 64  # rows from which on oneDNN multiplies them by a vocabulary in int8 sooner than FBGEMM, by up to a quarter
CACHE = 1 << 25  # bytes of weights that stay near a processor from step to step


@runtime_checkable
class Linear(Protocol):
    """x Wᵀ + b, on weights laid out beforehand."""

    def __call__(self, x_ND: Float[Tensor, "N D"]) -> Float[Tensor, "N F"]:
        """Project each row."""

    def add(self, x_ND: Float[Tensor, "N D"], y_NF: Float[Tensor, "N F"]) -> Float[Tensor, "N F"]:
        """Project each row and add `y_NF`, which may be written into."""

    def relu(self, x_ND: Float[Tensor, "N D"]) -> Float[Tensor, "N F"]:
        """Project each row and cut off what is negative."""


# These are compiled by TorchScript, which knows no shapes in signatures, and no checks of them.


@no_type_check
class Plain(nn.Module):
    """torch's own linear layer, on any device and in any number format."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        """Keep the weights as they are."""
        super().__init__()
        self.weight, self.bias = weight, bias

    def forward(self, x_ND: Tensor) -> Tensor:
        """Project each row."""
        return functional.linear(x_ND, self.weight, self.bias)

    def add(self, x_ND: Tensor, y_NF: Tensor) -> Tensor:
        """Project each row and add."""
        return functional.linear(x_ND, self.weight, self.bias).add_(y_NF)

    def relu(self, x_ND: Tensor) -> Tensor:
        """Project each row and cut off what is negative."""
        return functional.linear(x_ND, self.weight, self.bias).relu_()


@no_type_check
class Light(nn.Module):
    """A small weight, turned once, so that a product begins without more ado."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        """Turn the weight."""
        super().__init__()
        self.weight, self.bias = weight.t().contiguous(), weight.new_zeros(weight.shape[0]) if bias is None else bias

    def forward(self, x_ND: Tensor) -> Tensor:
        """Project each row."""
        return torch.addmm(self.bias, x_ND, self.weight)

    def add(self, x_ND: Tensor, y_NF: Tensor) -> Tensor:
        """Project each row and add."""
        return torch.addmm(self.bias, x_ND, self.weight).add_(y_NF)

    def relu(self, x_ND: Tensor) -> Tensor:
        """Project each row and cut off what is negative."""
        return torch.addmm(self.bias, x_ND, self.weight).relu_()


@no_type_check
class Packed(nn.Module):
    """A weight in oneDNN's own layout; adding and cutting off happen inside its kernel.

    Very few rows are filled up where the weight comes from memory: all the time goes into reading it then, and at
    fewer rows than four the kernel does not read as fast as it could.
    """

    nothing: list[int | float | complex | None]
    """What a pointwise operation might be told besides."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        """Lay the weight out."""
        super().__init__()
        self.size = weight.numel() * weight.element_size()
        self.weight, self.bias = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), ROWS), bias
        self.nothing, self.few = [], 1

    def forward(self, x_ND: Tensor) -> Tensor:
        """Project each row."""
        return self.bent(x_ND, "none")

    def add(self, x_ND: Tensor, y_NF: Tensor) -> Tensor:
        """Project each row and add."""
        if x_ND.shape[0] < self.few:
            return self.bent(x_ND, "none").add_(y_NF)
        added_NF: Tensor = torch.ops.mkldnn._linear_pointwise(x_ND, y_NF, self.weight, self.bias, "add")
        return added_NF

    def relu(self, x_ND: Tensor) -> Tensor:
        """Project each row and cut off what is negative."""
        return self.bent(x_ND, "relu")

    def bent(self, x_ND: Tensor, bend: str) -> Tensor:
        """Project each row, and what the kernel may do with it at once."""
        rows = x_ND.shape[0]
        if rows < self.few:
            x_ND = functional.pad(x_ND, [0, 0, 0, self.few - rows])
        y_NF: Tensor = torch.ops.mkldnn._linear_pointwise(x_ND, self.weight, self.bias, bend, self.nothing, "")
        return y_NF[:rows]


@no_type_check
class Dynamic(nn.Module):
    """An int8 weight, with inputs quantised as they come."""

    def __init__(self, weight: Tensor, bias: Tensor | None, kernel: str | None = None) -> None:
        """Quantise the weight, each output by its own largest entry; a kernel other than torch's choice may be told."""
        super().__init__()
        weight = weight.float()
        scale = weight.abs().amax(1).clamp_min(torch.finfo(torch.float32).tiny * 2**20) / 127
        zero = torch.zeros(weight.shape[0], dtype=torch.int64)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch says once in a process that it will drop tensors of this kind
            quantised = torch.quantize_per_channel(weight, scale, zero, 0, torch.qint8)
        bias = None if bias is None else bias.float()
        usual = torch.backends.quantized.engine
        try:
            torch.backends.quantized.engine = kernel or usual
            self.packed = torch.ops.quantized.linear_prepack(quantised, bias)
        finally:
            torch.backends.quantized.engine = usual
        # Without VNNI two products are added up in 16 bits, which eight full bits could overflow.
        self.seven_bits = not torch.cpu._is_vnni_supported()

    def forward(self, x_ND: Tensor) -> Tensor:
        """Project each row."""
        y_NF: Tensor = torch.ops.quantized.linear_dynamic(x_ND, self.packed, self.seven_bits)
        return y_NF

    def add(self, x_ND: Tensor, y_NF: Tensor) -> Tensor:
        """Project each row and add."""
        added_NF: Tensor = torch.ops.quantized.linear_dynamic(x_ND, self.packed, self.seven_bits).add_(y_NF)
        return added_NF

    def relu(self, x_ND: Tensor) -> Tensor:
        """Project each row and cut off what is negative."""
        y_NF: Tensor = torch.ops.quantized.linear_relu_dynamic(x_ND, self.packed, self.seven_bits)
        return y_NF


@no_type_check
class Wide(nn.Module):
    """An int8 weight with very many outputs, laid out twice: for many rows oneDNN is quicker, for few FBGEMM."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        """Quantise the weight."""
        super().__init__()
        self.few, self.many = Dynamic(weight, bias), Dynamic(weight, bias, "onednn")
        self.most = MANY - 1

    def forward(self, x_ND: Tensor) -> Tensor:
        """Project each row."""
        y_NF: Tensor = self.few(x_ND) if x_ND.shape[0] <= self.most else self.many(x_ND)
        return y_NF


def fill_up(model: nn.Module) -> None:
    """Let the linears of a model fill few rows up, if its weights are too many to stay near the processor."""
    packed = [each for each in model.modules() if isinstance(each, Packed)]
    if sum(each.size for each in packed) > CACHE:
        for each in packed:
            each.few = FEW


def dtype_of(precision: Precision) -> torch.dtype:
    """The number format in which vectors travel between layers."""
    match precision:
        case "float64":
            return torch.float64
        case "bfloat16":
            return torch.bfloat16
        case "float32" | "int8":
            return torch.float32
    raise ValueError(f"there is no precision '{precision}'; it may be float32, bfloat16 or int8")


def pack(weight: Tensor, bias: Tensor | None, precision: Precision) -> Plain | Light | Packed | Dynamic:
    """A linear layer at this precision, on a CPU, by the best kernel there is."""
    if precision == "int8":
        if not {"x86", "fbgemm", "onednn", "qnnpack"} & set(torch.backends.quantized.supported_engines):
            raise ValueError("this build of torch has no int8 kernels; take float32 or bfloat16")
        return Dynamic(weight.detach(), None if bias is None else bias.detach())
    dtype = dtype_of(precision)
    weight, bias = weight.detach().to(dtype), None if bias is None else bias.detach().to(dtype)
    packs = torch._C._has_mkldnn and (dtype == torch.bfloat16 or (dtype == torch.float32 and weight.numel() > SMALL))
    if dtype == torch.bfloat16 and packs:
        packs = torch.ops.mkldnn._is_mkldnn_bf16_supported()
    if packs:
        return Packed(weight, bias)
    return Light(weight, bias) if dtype == torch.float32 else Plain(weight, bias)


def pack_output(weight: Tensor, bias: Tensor | None, precision: Precision) -> Plain | Light | Packed | Dynamic | Wide:
    """The linear layer before a vocabulary, of which only products are asked."""
    # Without VNNI inputs have seven bits, of which oneDNN knows nothing.
    twice = "onednn" in torch.backends.quantized.supported_engines and torch.cpu._is_vnni_supported()
    if precision == "int8" and twice:
        return Wide(weight.detach(), None if bias is None else bias.detach())
    return pack(weight, bias, precision)
