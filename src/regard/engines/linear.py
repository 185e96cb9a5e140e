"""Linear layers whose weights are laid out for the processor's kernels once, at the precision asked for.

float32 and bfloat16 are packed for oneDNN, which otherwise packs them again at each of many small products. int8 is
dynamic quantisation: weights are int8 with a scale for each output, inputs are quantised by the range they happen to
have (Jacob et al. 2018, §2.1). Where a kernel is missing, torch's own linear layer serves.
"""

import warnings
from typing import Literal, no_type_check

import torch
from torch import Tensor, nn
from torch.nn import functional

Precision = Literal["float64", "float32", "bfloat16", "int8"]
PACKED_ROWS = 64  # rows of inputs for which oneDNN is asked to lay a weight out; other numbers run as well with it
SMALL = 1 << 17  # entries of a float32 weight up to which torch is faster than oneDNN
FEW = 4  # rows that oneDNN multiplies by a weight in memory faster than one, two or three, by up to a quarter
MANY = 64  # rows from which on oneDNN's int8 output layer is faster than FBGEMM's, by up to a quarter
CACHE = 1 << 25  # bytes of weights that stay in the processor's cache from step to step


# TorchScript compiles these classes. It does not know shapes in signatures, or checks of them.


@no_type_check
class PlainLinear(nn.Module):
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
        """Project each row and apply ReLU."""
        return functional.linear(x_ND, self.weight, self.bias).relu_()


@no_type_check
class TransposedLinear(nn.Module):
    """A small weight, stored transposed, which one `addmm` multiplies with the least overhead."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        """Transpose the weight."""
        super().__init__()
        self.weight, self.bias = weight.t().contiguous(), weight.new_zeros(weight.shape[0]) if bias is None else bias

    def forward(self, x_ND: Tensor) -> Tensor:
        """Project each row."""
        return torch.addmm(self.bias, x_ND, self.weight)

    def add(self, x_ND: Tensor, y_NF: Tensor) -> Tensor:
        """Project each row and add."""
        return torch.addmm(self.bias, x_ND, self.weight).add_(y_NF)

    def relu(self, x_ND: Tensor) -> Tensor:
        """Project each row and apply ReLU."""
        return torch.addmm(self.bias, x_ND, self.weight).relu_()


@no_type_check
class OneDNNLinear(nn.Module):
    """A weight in oneDNN's own layout. Its kernel adds and applies ReLU as well.

    Very few rows are padded where the weight comes from memory: the product then takes as long as reading the weight,
    and for fewer than four rows the kernel does not read as fast as it could.
    """

    no_arguments: list[int | float | complex | None]
    """Arguments of a pointwise operation; the ones used here have none."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        """Lay the weight out."""
        super().__init__()
        self.size = weight.numel() * weight.element_size()
        self.weight, self.bias = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), PACKED_ROWS), bias
        self.no_arguments, self.min_rows = [], 1

    def forward(self, x_ND: Tensor) -> Tensor:
        """Project each row."""
        return self.pointwise(x_ND, "none")

    def add(self, x_ND: Tensor, y_NF: Tensor) -> Tensor:
        """Project each row and add."""
        if x_ND.shape[0] < self.min_rows:
            return self.pointwise(x_ND, "none").add_(y_NF)
        added_NF: Tensor = torch.ops.mkldnn._linear_pointwise(x_ND, y_NF, self.weight, self.bias, "add")
        return added_NF

    def relu(self, x_ND: Tensor) -> Tensor:
        """Project each row and apply ReLU."""
        return self.pointwise(x_ND, "relu")

    def pointwise(self, x_ND: Tensor, operation: str) -> Tensor:
        """Project each row and apply an operation of oneDNN to the result."""
        rows = x_ND.shape[0]
        if rows < self.min_rows:
            x_ND = functional.pad(x_ND, [0, 0, 0, self.min_rows - rows])
        y_NF: Tensor = torch.ops.mkldnn._linear_pointwise(
            x_ND, self.weight, self.bias, operation, self.no_arguments, ""
        )
        return y_NF[:rows]


@no_type_check
class Int8Linear(nn.Module):
    """An int8 weight, whose inputs are quantised at each call."""

    def __init__(self, weight: Tensor, bias: Tensor | None, backend: str | None = None) -> None:
        """Quantise the weight, each output by its own largest entry, for torch's default backend or another."""
        super().__init__()
        weight = weight.float()
        # A positive minimum, because an output whose weights are all zero would have the scale zero.
        scale = weight.abs().amax(1).clamp_min(torch.finfo(torch.float32).tiny * 2**20) / 127
        zero = torch.zeros(weight.shape[0], dtype=torch.int64)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns once in a process that quantised tensors are deprecated
            quantised = torch.quantize_per_channel(weight, scale, zero, 0, torch.qint8)
        bias = None if bias is None else bias.float()
        default = torch.backends.quantized.engine
        try:
            torch.backends.quantized.engine = backend or default
            self.packed = torch.ops.quantized.linear_prepack(quantised, bias)
        finally:
            torch.backends.quantized.engine = default
        # Without VNNI the kernel adds two products in 16 bits, which inputs of eight full bits could overflow.
        self.reduce_range = not torch.cpu._is_vnni_supported()

    def forward(self, x_ND: Tensor) -> Tensor:
        """Project each row."""
        y_NF: Tensor = torch.ops.quantized.linear_dynamic(x_ND, self.packed, self.reduce_range)
        return y_NF

    def add(self, x_ND: Tensor, y_NF: Tensor) -> Tensor:
        """Project each row and add."""
        added_NF: Tensor = torch.ops.quantized.linear_dynamic(x_ND, self.packed, self.reduce_range).add_(y_NF)
        return added_NF

    def relu(self, x_ND: Tensor) -> Tensor:
        """Project each row and apply ReLU."""
        y_NF: Tensor = torch.ops.quantized.linear_relu_dynamic(x_ND, self.packed, self.reduce_range)
        return y_NF


@no_type_check
class Int8OutputLinear(nn.Module):
    """An int8 weight with very many outputs, packed twice: oneDNN is faster for many rows, FBGEMM for few."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        """Quantise the weight."""
        super().__init__()
        self.few, self.many = Int8Linear(weight, bias), Int8Linear(weight, bias, "onednn")
        self.most_few = MANY - 1

    def forward(self, x_ND: Tensor) -> Tensor:
        """Project each row."""
        y_NF: Tensor = self.few(x_ND) if x_ND.shape[0] <= self.most_few else self.many(x_ND)
        return y_NF


def pad_few_rows(model: nn.Module) -> None:
    """Let the linear layers of a model pad few rows, if its weights are too large to stay in the processor's cache."""
    packed = [layer for layer in model.modules() if isinstance(layer, OneDNNLinear)]
    if sum(layer.size for layer in packed) > CACHE:
        for layer in packed:
            layer.min_rows = FEW


def stream_dtype(precision: Precision) -> torch.dtype:
    """Return the number format of the residual stream between layers."""
    match precision:
        case "float64":
            return torch.float64
        case "bfloat16":
            return torch.bfloat16
        case "float32" | "int8":
            return torch.float32
    raise ValueError(f"unknown precision '{precision}'; choose float64, float32, bfloat16 or int8")


def attention_dtype(precision: Precision) -> torch.dtype:
    """Return the number format of attention and of the KV cache on a CPU, which has fast kernels for these only."""
    return torch.float64 if precision == "float64" else torch.float32


def pack(
    weight: Tensor, bias: Tensor | None, precision: Precision
) -> PlainLinear | TransposedLinear | OneDNNLinear | Int8Linear:
    """Return a linear layer at this precision, on a CPU, with the fastest kernel this build of torch has."""
    if precision == "int8":
        if not {"x86", "fbgemm", "onednn", "qnnpack"} & set(torch.backends.quantized.supported_engines):
            raise ValueError("this build of torch has no int8 kernels; choose precision float32 or bfloat16")
        return Int8Linear(weight.detach(), None if bias is None else bias.detach())
    dtype = stream_dtype(precision)
    weight, bias = weight.detach().to(dtype), None if bias is None else bias.detach().to(dtype)
    packs = torch._C._has_mkldnn and (dtype == torch.bfloat16 or (dtype == torch.float32 and weight.numel() > SMALL))
    if dtype == torch.bfloat16 and packs:
        packs = torch.ops.mkldnn._is_mkldnn_bf16_supported()
    if packs:
        return OneDNNLinear(weight, bias)
    return TransposedLinear(weight, bias) if dtype == torch.float32 else PlainLinear(weight, bias)


def pack_output(
    weight: Tensor, bias: Tensor | None, precision: Precision
) -> PlainLinear | TransposedLinear | OneDNNLinear | Int8Linear | Int8OutputLinear:
    """Return the linear layer before a vocabulary, which is only called, never asked to `add` or `relu`."""
    # Without VNNI inputs have seven bits, which oneDNN does not support.
    packs_twice = "onednn" in torch.backends.quantized.supported_engines and torch.cpu._is_vnni_supported()
    if precision == "int8" and packs_twice:
        return Int8OutputLinear(weight.detach(), None if bias is None else bias.detach())
    return pack(weight, bias, precision)
