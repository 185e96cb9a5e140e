"""Forecasting models: patches, instance normalisation and families against plain formulas, and their laws."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from regard import recipe
from regard.models.forecasting import (
    DLinearForecaster,
    ForecastingModel,
    InvertedForecaster,
    LstmForecaster,
    NLinearForecaster,
    PatchForecaster,
    build_forecasting_model,
    count_patches,
    window_tokens,
)
from regard.nn.instance_norm import InstanceNorm
from regard.nn.tap import recording

TASK = recipe.Forecasting(lookback=20, horizon=7)
COLUMNS = 3
SETTINGS: dict[str, recipe.Model] = {
    "patch": recipe.PatchTransformer(size="tiny", width=8, inner=12, heads=2, layers=2, patch=6, stride=4),
    "inverted": recipe.InvertedTransformer(size="tiny", width=8, inner=12, heads=2, layers=2),
    "lstm": recipe.LstmAttention(size="tiny", width=6, patch=3),
    "nlinear": recipe.NLinear(),
    "dlinear": recipe.DLinear(kernel=5),
}
INDEPENDENT = ("patch", "nlinear", "dlinear")
"""Families whose forecast of a column depends on this column alone."""


def build(kind: str, task: recipe.Forecasting = TASK, **changes: object) -> ForecastingModel:
    torch.manual_seed(1)
    settings = SETTINGS[kind].model_copy(update=changes)
    model = build_forecasting_model(settings, task, COLUMNS).double().eval()
    for weight in model.parameters():  # also zeros and ones, so that every weight matters
        torch.nn.init.normal_(weight, std=0.3)
    return model


def windows(count: int = 4) -> Tensor:
    return torch.randn(count, TASK.lookback, COLUMNS, generator=torch.Generator().manual_seed(2)).double() * 3 + 5


@pytest.mark.parametrize("kind", SETTINGS)
def test_a_forecast_does_not_depend_on_the_other_windows_of_a_batch(kind: str) -> None:
    model, past = build(kind), windows()
    assert model(past).shape == (4, TASK.horizon, COLUMNS, 1)
    torch.testing.assert_close(model(past)[2:3], model(past[2:3]))


@pytest.mark.parametrize("kind", SETTINGS)
def test_permuting_columns_permutes_the_forecasts_of_models_that_treat_columns_alike(kind: str) -> None:
    model, past, order = build(kind), windows(), [2, 0, 1]
    same = torch.allclose(model(past[..., order]), model(past)[:, :, order])
    assert same == (kind != "lstm")


@pytest.mark.parametrize("kind", SETTINGS)
def test_only_some_families_read_other_columns(kind: str) -> None:
    model, past = build(kind), windows()
    changed = past.clone()
    changed[..., 1] += torch.randn(TASK.lookback, generator=torch.Generator().manual_seed(3)).double()
    first = torch.allclose(model(past)[:, :, 0], model(changed)[:, :, 0])
    assert first == (kind in INDEPENDENT)


@pytest.mark.parametrize("kind", ["patch", "inverted", "lstm", "nlinear"])
def test_shifting_and_scaling_a_window_shifts_and_scales_its_forecast(kind: str) -> None:
    model, past = build(kind), windows()
    scale = 1.0 if kind == "nlinear" else 10.0
    expected = model(past) * scale + 4.0
    # ε keeps the scaling of small deviations from being exact.
    torch.testing.assert_close(model(past * scale + 4.0), expected, rtol=1e-5, atol=1e-4)


def test_every_step_of_the_past_matters() -> None:
    for kind in SETTINGS:
        model, past = build(kind), windows(1).requires_grad_()
        (gradient,) = torch.autograd.grad(model(past).square().sum(), past)
        assert (gradient.abs().sum((0, 2)) > 0).all() or kind == "lstm"


def test_instance_normalisation_is_that_of_the_formulas_and_can_be_undone() -> None:
    norm, past = InstanceNorm(COLUMNS, affine=True).double(), windows()
    assert norm.scale_C is not None
    assert norm.shift_C is not None
    torch.nn.init.uniform_(norm.scale_C, 0.5, 2.0)
    torch.nn.init.uniform_(norm.shift_C)
    x, statistics = norm(past)
    array = past.numpy()
    expected = (array - array.mean(1, keepdims=True)) / np.sqrt(array.var(1, keepdims=True) + 1e-5)
    expected = expected * norm.scale_C.detach().numpy() + norm.shift_C.detach().numpy()
    np.testing.assert_allclose(x.detach().numpy(), expected, rtol=1e-10)
    torch.testing.assert_close(norm.undo(x[..., None], statistics)[..., 0], past, rtol=1e-6, atol=1e-6)


def test_a_constant_window_is_forecast_by_finite_numbers() -> None:
    for kind in SETTINGS:
        model, past = build(kind), torch.full((2, TASK.lookback, COLUMNS), 7.0).double()
        assert torch.isfinite(model(past)).all()


def test_patches_overlap_and_the_last_value_is_repeated() -> None:
    family = build("patch").family
    assert isinstance(family, PatchForecaster)
    past = torch.arange(20.0)[None, :, None].double()
    cut = family.cut(past)[0, 0].tolist()
    padded = [*range(20), 19, 19, 19, 19]
    assert cut == [padded[start : start + 6] for start in range(0, 24 - 6 + 1, 4)]
    assert len(cut) == family.patches == count_patches(recipe.PatchTransformer(patch=6, stride=4), 20)
    assert count_patches(recipe.PatchTransformer(), 336) == 42  # as in the paper
    assert count_patches(recipe.PatchTransformer(), 512) == 64


def attended(x: Tensor, layer: Any, heads: int) -> Tensor:
    """Return self-attention of dense sequences, computed with torch's own functions."""
    parts = functional.linear(x, layer.qkv.weight, layer.qkv.bias).chunk(3, -1)
    q, k, v = (part.reshape(*x.shape[:2], heads, -1).transpose(1, 2) for part in parts)
    weights = (q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])).softmax(-1)
    mixed: Tensor = layer.out((weights @ v).transpose(1, 2).flatten(2))
    return mixed


def encoded(x: Tensor, encoder: Any, heads: int) -> Tensor:
    """Return the states of a pre-norm encoder of dense sequences."""
    for block in encoder.layers:
        x = x + attended(block.around_self.norm(x), block.self, heads)
        feedforward = block.feedforward
        x = x + feedforward.narrow(functional.gelu(feedforward.widen(block.around_feedforward.norm(x))))
    states: Tensor = encoder.norm(x)
    return states


def normalised(past: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    mean, deviation = past.mean(1, keepdim=True), (past.var(1, correction=0, keepdim=True) + 1e-5).sqrt()
    return (past - mean) / deviation, mean[..., None], deviation[..., None]


def test_the_patch_transformer_is_that_of_a_plain_loop_over_windows_and_columns() -> None:
    model, past = build("patch"), windows(2)
    family = model.family
    assert isinstance(family, PatchForecaster)
    x, mean, deviation = normalised(past)
    expected = torch.zeros(2, TASK.horizon, COLUMNS, 1).double()
    for window in range(2):
        for column in range(COLUMNS):
            values = x[window, :, column]
            padded = torch.cat([values, values[-1:].repeat(4)])
            patches = torch.stack([padded[start : start + 6] for start in range(0, 19, 4)])
            states = encoded((family.embedding(patches) + family.positions_PD)[None], family.encoder, 2)
            expected[window, :, column, 0] = family.output(states.flatten(1))[0]
    torch.testing.assert_close(model(past), expected * deviation + mean)


def test_the_inverted_transformer_is_that_of_torch() -> None:
    model, past = build("inverted"), windows()
    family = model.family
    assert isinstance(family, InvertedForecaster)
    x, mean, deviation = normalised(past)
    states = encoded(family.embedding(x.transpose(1, 2)), family.encoder, 2)
    expected = family.output(states).transpose(1, 2)[..., None]
    torch.testing.assert_close(model(past), expected * deviation + mean)


def test_the_lstm_with_attention_is_that_of_torch() -> None:
    model, past = build("lstm"), windows(2)
    family = model.family
    assert isinstance(family, LstmForecaster)
    x, mean, deviation = normalised(past)
    expected = torch.zeros(2, TASK.horizon, COLUMNS).double()
    for window in range(2):
        patches = x[window, 2:].reshape(6, 3 * COLUMNS)  # two steps are left over
        inputs = family.embedding(patches)
        states = inputs + family.lstm.cells(inputs[:, None])[0][:, 0]
        for column in range(COLUMNS):
            parts = []
            for group in range(3):
                query = family.query(states[-1]) + family.targets_GCD[group, column]
                weights = ((family.key(states) + family.positions_PD) @ query / math.sqrt(6)).softmax(0)
                hidden = torch.tanh(family.hidden(torch.cat([weights @ states, query])))
                parts.append(family.output(hidden))
            linear = family.regression(x[window, :, column])
            expected[window, :, column] = torch.cat(parts)[: TASK.horizon] + linear
    torch.testing.assert_close(model(past), expected[..., None] * deviation + mean, rtol=1e-6, atol=1e-6)


def test_nlinear_and_dlinear_are_those_of_numpy() -> None:
    past = windows()
    array = past.numpy()
    model = build("nlinear")
    assert isinstance(model.family, NLinearForecaster)
    weight, bias = (part.detach().numpy() for part in (model.family.linear.weight, model.family.linear.bias))
    last = array[:, -1:]
    expected = np.einsum("ht,btc->bhc", weight, array - last) + bias[:, None] + last
    np.testing.assert_allclose(model(past)[..., 0].detach().numpy(), expected, rtol=1e-9)
    model = build("dlinear")
    family = model.family
    assert isinstance(family, DLinearForecaster)
    padded = np.concatenate([array[:, :1]] * 2 + [array] + [array[:, -1:]] * 2, 1)
    trend = np.stack([padded[:, step : step + 5].mean(1) for step in range(20)], 1)
    expected = sum(
        np.einsum("ht,btc->bhc", layer.weight.detach().numpy(), part) + layer.bias.detach().numpy()[:, None]
        for layer, part in ((family.trend, trend), (family.rest, array - trend))
    )
    np.testing.assert_allclose(model(past)[..., 0].detach().numpy(), expected, rtol=1e-9)


@pytest.mark.parametrize("kind", SETTINGS)
def test_quantiles_are_further_outputs(kind: str) -> None:
    task = TASK.model_copy(update={"quantiles": (0.1, 0.5, 0.9)})
    assert build(kind, task)(windows()).shape == (4, TASK.horizon, COLUMNS, 4)


@pytest.mark.parametrize("kind", ["patch", "inverted", "lstm"])
def test_recording_attention_does_not_change_a_forecast_and_weights_sum_to_one(kind: str) -> None:
    model, past = build(kind), windows()
    with recording(model, "*weights") as recorded:
        watched = model(past)
    torch.testing.assert_close(watched, model(past))
    for tensors in recorded.values():
        torch.testing.assert_close(tensors[0].sum(-1), torch.ones_like(tensors[0].sum(-1)))


def test_the_tokens_of_a_window_are_those_that_the_model_makes() -> None:
    tokens = {kind: window_tokens(settings, TASK.lookback, COLUMNS) for kind, settings in SETTINGS.items()}
    assert tokens == {"patch": 15, "inverted": 3, "lstm": 6, "nlinear": 1, "dlinear": 1}
    for kind in SETTINGS:
        assert build(kind).forward_flops(4) == 4 * build(kind).forward_flops(1) > 0


def test_a_patch_longer_than_the_past_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"model.patch = 16 is longer than forecasting.lookback = 10"):
        build_forecasting_model(recipe.PatchTransformer(), recipe.Forecasting(lookback=10), 2)
    with pytest.raises(ValueError, match="does not forecast"):
        build_forecasting_model(recipe.Transformer(), TASK, 2)
