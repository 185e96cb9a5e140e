"""Forecasting models: windows of the past of a series in, the future of each column out.

    past (B, T, C) -> instance normalisation -> family -> undo the normalisation -> future (B, H, C, O)

The first of the O outputs is the forecast; the others are quantiles, if the recipe names some. Shapes here: T steps of
the past, H steps of the future, C columns, P patches of the past, G groups of steps of the future.
"""

from typing import Protocol

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from regard import recipe
from regard.nn.attention.mask import AttentionMask
from regard.nn.attention.multihead import SelfAttention
from regard.nn.attention.plan import plan_attention
from regard.nn.block import TransformerBlock
from regard.nn.cost import TokenCounts, count_flops
from regard.nn.dropout import Dropout
from regard.nn.feedforward import FeedForward
from regard.nn.instance_norm import InstanceNorm
from regard.nn.ragged import Layout
from regard.nn.recurrent import RecurrentLayers
from regard.nn.tap import Tap


class ForecastFamily(Protocol):
    """The part of a forecasting model that differs between families."""

    def __call__(self, x_BTC: Float[Tensor, "B T C"]) -> Float[Tensor, "B H C O"]:
        """Return the future of normalised windows."""

    def window_flops(self, columns: int) -> int:
        """Return the operations of a forward pass over one window."""


class ForecastingModel(nn.Module):
    """A family between the normalisation of windows and its undoing.

    Example:
        Forecasts of a batch of 2 windows of 336 steps and 7 columns::

            model = build_forecasting_model(recipe.PatchTransformer(), recipe.Forecasting(), columns=7)
            future_BHCO = model(torch.randn(2, 336, 7))    # (2, 96, 7, 1)
    """

    def __init__(self, family: nn.Module, norm: InstanceNorm | None, columns: int) -> None:
        """Put built parts together; without `norm` the family gets windows as they are."""
        super().__init__()
        self.family, self.norm, self.columns = family, norm, columns

    def forward(self, past_BTC: Float[Tensor, "B T C"]) -> Float[Tensor, "B H C O"]:
        """Return forecasts, and quantiles after them, in float32 at least."""
        if self.norm is None:
            y_BHCO: Tensor = self.family(past_BTC)
            return y_BHCO.to(past_BTC.dtype)
        x_BTC, statistics = self.norm(past_BTC)
        y_BHCO = self.family(x_BTC)
        return self.norm.undo(y_BHCO.to(past_BTC.dtype), statistics)

    def forward_flops(self, windows: int) -> float:
        """Return the operations of a forward pass over so many windows."""
        family: ForecastFamily = self.family  # type: ignore[assignment]
        return float(windows * family.window_flops(self.columns))


class _Encoder(nn.Module):
    """Pre-norm Transformer blocks over equally long sequences, with bidirectional attention."""

    def __init__(self, settings: recipe.PatchTransformer | recipe.InvertedTransformer) -> None:
        """Create the layers and the final norm."""
        super().__init__()
        width = settings.width
        self.layers = nn.ModuleList(
            TransformerBlock(
                SelfAttention(width, settings.heads),
                None,
                FeedForward(width, settings.inner, "gelu", settings.dropout),
                width,
                dropout=settings.dropout,
            )
            for _ in range(settings.layers)
        )
        self.norm = nn.LayerNorm(width)

    def forward(self, x_BPD: Float[Tensor, "B P D"]) -> Float[Tensor, "B P D"]:
        """Return the state of each token."""
        sequences, length, _ = x_BPD.shape
        layout = _equal_layout(sequences, length, x_BPD.device)
        plan = plan_attention(AttentionMask(), layout, layout)
        x_ND = x_BPD.flatten(0, 1)
        blocks = [layer for layer in self.layers if isinstance(layer, TransformerBlock)]
        next_norms = [*(block.around_self.norm for block in blocks[1:]), self.norm]
        entered_ND = blocks[0].around_self.sublayer_input(x_ND)
        for block, next_norm in zip(blocks, next_norms, strict=True):
            x_ND, entered_ND = block(x_ND, entered_ND, plan, None, next_norm)
        return entered_ND.view_as(x_BPD)


class PatchForecaster(nn.Module):
    """PatchTST (Nie et al. 2023): patches of a column are the tokens, and all columns share the weights.

    The last value is repeated `stride` times at the end, so that the last patch is whole (§3.1). The states of all
    patches are joined, and a linear layer makes the forecast of them. The paper normalises batches; here each token is
    normalised by itself (LayerNorm), before each sub-layer, so that a forecast does not depend on other windows.
    """

    def __init__(self, settings: recipe.PatchTransformer, task: recipe.Forecasting) -> None:
        """Create the layers for windows of a look-back."""
        super().__init__()
        self.patch, self.stride, self.horizon = settings.patch, settings.stride, task.horizon
        self.patches = count_patches(settings, task.lookback)
        self.embedding = nn.Linear(settings.patch, settings.width)
        self.positions_PD = nn.Parameter(torch.empty(self.patches, settings.width).uniform_(-0.02, 0.02))
        self.drop, self.drop_output = Dropout(settings.dropout), Dropout(settings.dropout)
        self.encoder = _Encoder(settings)
        self.output = nn.Linear(self.patches * settings.width, task.horizon * (1 + len(task.quantiles)))

    def cut(self, x_BTC: Float[Tensor, "B T C"]) -> Float[Tensor, "B C P S"]:
        """Return the patches of each column."""
        x_BCT = x_BTC.transpose(1, 2)
        x_BCT = torch.cat([x_BCT, x_BCT[..., -1:].expand(-1, -1, self.stride)], -1)
        return x_BCT.unfold(-1, self.patch, self.stride)

    def forward(self, x_BTC: Float[Tensor, "B T C"]) -> Float[Tensor, "B H C O"]:
        """Return the future of each column."""
        windows, _, columns = x_BTC.shape
        x_BPD = self.drop(self.embedding(self.cut(x_BTC).flatten(0, 1)) + self.positions_PD)
        states_BF = self.drop_output(self.encoder(x_BPD).flatten(1))
        y_BCHO: Tensor = self.output(states_BF).view(windows, columns, self.horizon, -1)
        return y_BCHO.transpose(1, 2)

    def window_flops(self, columns: int) -> int:
        """Return the operations of a forward pass over one window."""
        counts = TokenCounts(columns, columns * self.patches, columns * self.patches**2)
        per_token = count_flops(self.embedding, counts) + count_flops(self.encoder, counts)
        return per_token + 2 * columns * self.output.weight.numel()


class InvertedForecaster(nn.Module):
    """iTransformer (Liu et al. 2024): the whole past of a column is a token, and attention mixes columns (§3)."""

    def __init__(self, settings: recipe.InvertedTransformer, task: recipe.Forecasting) -> None:
        """Create the layers for windows of a look-back."""
        super().__init__()
        self.horizon = task.horizon
        self.embedding = nn.Linear(task.lookback, settings.width)
        self.drop, self.encoder = Dropout(settings.dropout), _Encoder(settings)
        self.output = nn.Linear(settings.width, task.horizon * (1 + len(task.quantiles)))

    def forward(self, x_BTC: Float[Tensor, "B T C"]) -> Float[Tensor, "B H C O"]:
        """Return the future of each column."""
        windows, _, columns = x_BTC.shape
        states_BCD = self.encoder(self.drop(self.embedding(x_BTC.transpose(1, 2))))
        y_BCHO: Tensor = self.output(states_BCD).view(windows, columns, self.horizon, -1)
        return y_BCHO.transpose(1, 2)

    def window_flops(self, columns: int) -> int:
        """Return the operations of a forward pass over one window."""
        counts = TokenCounts(1, columns, columns**2)
        return sum(count_flops(part, counts) for part in (self.embedding, self.encoder, self.output))


class LstmForecaster(nn.Module):
    """An LSTM reads the past of all columns; each column attends to its states for each part of the future.

    The past is cut into patches of equal size without overlap, and the oldest steps that fill no patch are not read.
    What is attended to is the state plus the input of a patch (a residual connection, Wu et al. 2016, §3.1). The query
    of a column and a group of future steps is the last state plus a learned vector of both; a key is a state
    plus a learned vector of its position. An autoregressive part, one linear layer for all columns, is added (LSTNet,
    Lai et al. 2018, §3.6), so that attention is left with what is not linear or comes from another column.
    """

    def __init__(self, settings: recipe.LstmAttention, task: recipe.Forecasting, columns: int) -> None:
        """Create the layers for windows of a look-back and so many columns."""
        super().__init__()
        width, self.horizon = settings.width, task.horizon
        self.patch = min(settings.patch, task.lookback)
        self.patches, self.groups = task.lookback // self.patch, -(-task.horizon // self.patch)
        outputs = 1 + len(task.quantiles)
        self.embedding = nn.Linear(self.patch * columns, width)
        self.drop, self.drop_output = Dropout(settings.dropout), Dropout(settings.dropout)
        self.lstm = RecurrentLayers("lstm", width, width, settings.layers, dropout=settings.dropout)
        self.query, self.key = nn.Linear(width, width), nn.Linear(width, width)
        self.targets_GCD = nn.Parameter(0.1 * torch.randn(self.groups, columns, width))
        self.positions_PD = nn.Parameter(0.1 * torch.randn(self.patches, width))
        self.weights = Tap()
        self.hidden = nn.Linear(2 * width, width)
        self.output = nn.Linear(width, self.patch * outputs)
        self.regression = nn.Linear(task.lookback, task.horizon * outputs)

    def forward(self, x_BTC: Float[Tensor, "B T C"]) -> Float[Tensor, "B H C O"]:
        """Return the future of each column; the weights over patches pass the tap `weights`."""
        windows, steps, _ = x_BTC.shape
        patches = x_BTC[:, steps - self.patches * self.patch :].reshape(windows * self.patches, -1)
        x_ND = self.drop(self.embedding(patches))
        layout = _equal_layout(windows, self.patches, x_BTC.device)
        start = self.lstm.initial_state(windows, x_ND)
        # Without its input beside it, a state says as much about the patches before as about its own.
        states_BPD = (x_ND + self.lstm.all_states(x_ND, layout, start)).view(windows, self.patches, -1)
        last_BD = states_BPD[:, -1]
        query_BGCD = self.query(last_BD)[:, None, None] + self.targets_GCD
        key_BPD = self.key(states_BPD) + self.positions_PD
        scores_BQP = query_BGCD.flatten(1, 2) @ key_BPD.transpose(1, 2) * key_BPD.shape[-1] ** -0.5
        weights_BQP = self.weights(scores_BQP.float().softmax(-1).to(states_BPD.dtype))
        context_BGCD = (weights_BQP @ states_BPD).view_as(query_BGCD)
        hidden_BGCD = torch.tanh(self.hidden(torch.cat([context_BGCD, query_BGCD], -1)))
        y_BGCSO = self.output(self.drop_output(hidden_BGCD)).unflatten(-1, (self.patch, -1))
        y_BHCO = y_BGCSO.transpose(2, 3).flatten(1, 2)[:, : self.horizon]
        linear_BCHO = self.regression(x_BTC.transpose(1, 2)).unflatten(-1, (self.horizon, -1))
        summed_BHCO: Tensor = y_BHCO + linear_BCHO.transpose(1, 2)
        return summed_BHCO

    def window_flops(self, columns: int) -> int:
        """Return the operations of a forward pass over one window."""
        queries, width = self.groups * columns, self.key.out_features
        past = TokenCounts(1, self.patches, 0)
        future = TokenCounts(1, queries, 0)
        read = sum(count_flops(part, past) for part in (self.embedding, self.lstm, self.key))
        written = sum(count_flops(part, future) for part in (self.hidden, self.output))
        linear = count_flops(self.regression, TokenCounts(columns, columns, 0))
        return read + written + linear + 4 * queries * self.patches * width


class NLinearForecaster(nn.Module):
    """NLinear (Zeng et al. 2023, §3.4): the last value is subtracted, and added to the output of a linear layer."""

    def __init__(self, task: recipe.Forecasting) -> None:
        """Create the layer; it begins as the mean of the past."""
        super().__init__()
        self.horizon = task.horizon
        self.linear = _mean_layer(task)

    def forward(self, x_BTC: Float[Tensor, "B T C"]) -> Float[Tensor, "B H C O"]:
        """Return the future of each column."""
        last_B1C = x_BTC[:, -1:]
        y_BCF = self.linear((x_BTC - last_B1C).transpose(1, 2))
        y_BHCO: Tensor = y_BCF.unflatten(-1, (self.horizon, -1)).transpose(1, 2)
        return y_BHCO + last_B1C[..., None]

    def window_flops(self, columns: int) -> int:
        """Return the operations of a forward pass over one window."""
        return count_flops(self.linear, TokenCounts(columns, columns, 0))


class DLinearForecaster(nn.Module):
    """DLinear (Zeng et al. 2023, §3.4): a linear layer for a moving average, and one for the rest."""

    def __init__(self, settings: recipe.DLinear, task: recipe.Forecasting) -> None:
        """Create the layers; they begin as the mean of the past."""
        super().__init__()
        self.horizon, self.kernel = task.horizon, settings.kernel
        self.trend, self.rest = _mean_layer(task), _mean_layer(task)

    def split(self, x_BTC: Float[Tensor, "B T C"]) -> tuple[Float[Tensor, "B C T"], Float[Tensor, "B C T"]]:
        """Return the moving average of each column, whose ends are repeated for it, and the rest."""
        x_BCT, reach = x_BTC.transpose(1, 2), self.kernel // 2
        padded = torch.cat([x_BCT[..., :1].expand(-1, -1, reach), x_BCT, x_BCT[..., -1:].expand(-1, -1, reach)], -1)
        trend_BCT = functional.avg_pool1d(padded, self.kernel, 1)
        return trend_BCT, x_BCT - trend_BCT

    def forward(self, x_BTC: Float[Tensor, "B T C"]) -> Float[Tensor, "B H C O"]:
        """Return the future of each column."""
        trend_BCT, rest_BCT = self.split(x_BTC)
        y_BCF = self.trend(trend_BCT) + self.rest(rest_BCT)
        y_BHCO: Tensor = y_BCF.unflatten(-1, (self.horizon, -1)).transpose(1, 2)
        return y_BHCO

    def window_flops(self, columns: int) -> int:
        """Return the operations of a forward pass over one window."""
        return 2 * count_flops(self.trend, TokenCounts(columns, columns, 0))


def count_patches(settings: recipe.PatchTransformer, lookback: int) -> int:
    """Return the number of patches of a window, whose last value is repeated `stride` times.

    Raises:
        ValueError: If a patch is longer than the look-back.
    """
    if settings.patch > lookback:
        raise ValueError(
            f"model.patch = {settings.patch} is longer than forecasting.lookback = {lookback}; use a shorter patch, or "
            "look further back"
        )
    return (lookback + settings.stride - settings.patch) // settings.stride + 1


def window_tokens(settings: recipe.Model, lookback: int, columns: int) -> int:
    """Return the number of tokens of one window, by which batches are limited."""
    match settings:
        case recipe.PatchTransformer():
            return columns * count_patches(settings, lookback)
        case recipe.LstmAttention():
            return lookback // min(settings.patch, lookback)
        case recipe.InvertedTransformer():
            return columns
        case _:
            return 1


def build_forecasting_model(settings: recipe.Model, task: recipe.Forecasting, columns: int) -> ForecastingModel:
    """Build the untrained model that a recipe asks for.

    Args:
        settings: The `[model]` section.
        task: The `[forecasting]` section.
        columns: Number of columns of the series.

    Raises:
        ValueError: If the family does not forecast.
    """
    family: nn.Module
    match settings:
        case recipe.PatchTransformer():
            family = PatchForecaster(settings, task)
        case recipe.InvertedTransformer():
            family = InvertedForecaster(settings, task)
        case recipe.LstmAttention():
            family = LstmForecaster(settings, task, columns)
        case recipe.NLinear():
            return ForecastingModel(NLinearForecaster(task), None, columns)
        case recipe.DLinear():
            return ForecastingModel(DLinearForecaster(settings, task), None, columns)
        case _:
            raise ValueError(
                f"kind = '{settings.kind}' does not forecast; choose patch, inverted, lstm or a linear one"
            )
    norm = None if settings.normalise == "none" else InstanceNorm(columns, settings.normalise == "affine")
    return ForecastingModel(family, norm, columns)


def _mean_layer(task: recipe.Forecasting) -> nn.Linear:
    """Return a linear layer whose outputs are the mean of its inputs, as in the authors' code."""
    layer = nn.Linear(task.lookback, task.horizon * (1 + len(task.quantiles)))
    nn.init.constant_(layer.weight, 1.0 / task.lookback)
    nn.init.zeros_(layer.bias)
    return layer


def _equal_layout(sequences: int, length: int, device: torch.device) -> Layout:
    """Return the layout of sequences of one length, made on their device."""
    offsets = torch.arange(0, (sequences + 1) * length, length, dtype=torch.int32, device=device)
    return Layout.from_device_offsets(offsets, sequences * length, length)
