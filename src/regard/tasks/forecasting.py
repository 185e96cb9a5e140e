"""Forecasting: predict the next values of all columns of a series from those before."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from regard.bundle import Bundle
from regard.data.batch import Batch, example_index, per_sequence
from regard.data.blocks import Blocks
from regard.data.fields import Fields, SeriesField
from regard.data.rows import Lengths, Numbers, Rows
from regard.data.store import Store
from regard.data.windows import FIELD, Windows
from regard.models.forecasting import ForecastingModel, build_forecasting_model, window_tokens
from regard.predict.forecast_evaluation import model_errors, recipe_baselines, window_errors
from regard.predict.forecaster import Forecaster
from regard.recipe import Corpus, Filter
from regard.score import Score
from regard.tasks.task import ProcessGroup, Task


@dataclass(frozen=True, eq=False)
class WindowBatch(Batch):
    """Windows of a series, scaled by the training data."""

    past_BTC: Float[Tensor, "B T C"] = per_sequence(fill=0.0)
    future_BHC: Float[Tensor, "B H C"] = per_sequence(fill=0.0)
    counted_B: Float[Tensor, " B"] = per_sequence(fill=0.0)
    """1 for each window; 0 for those that fill up a batch."""
    index_B: Int64[Tensor, " B"] = example_index()

    @property
    def units(self) -> int:
        """The number of values to forecast."""
        return self.future_BHC[0].numel() * int(self.counted_B.sum())


@dataclass(frozen=True)
class ForecastingTask(Task):
    """Forecasts of the field `series`."""

    @property
    def unit(self) -> str:
        """The loss is averaged over values: windows, steps and columns."""
        return "values"

    @property
    def filters(self) -> Collection[Filter]:
        """Rows of a series are never dropped."""
        return ()

    @property
    def sums(self) -> Sequence[str]:
        """The loss that is trained, squared and absolute errors."""
        return ("loss", "mse", "mae")

    def sequence_lengths(self, lengths: Mapping[str, Lengths]) -> tuple[Numbers, ...]:
        """Return the tokens of the model for each window: patches, columns, or 1 for a linear model."""
        settings = self.recipe.forecasting
        columns = lengths[FIELD] // (settings.lookback + settings.horizon)
        one = window_tokens(self.recipe.model, settings.lookback, max(int(columns.max(initial=1)), 1))
        return (np.full(columns.size, one, np.int64),)

    def collate(self, rows: Mapping[str, Rows], index: Numbers) -> WindowBatch:
        """Cut each window into past and future."""
        windows, settings = rows[FIELD], self.recipe.forecasting
        steps = settings.lookback + settings.horizon
        columns = windows.ids.size // (len(windows) * steps)
        values_BTC = windows.to_tensor(steps, columns)
        past_BTC, future_BHC = values_BTC[:, : settings.lookback], values_BTC[:, settings.lookback :]
        return WindowBatch(past_BTC, future_BHC, torch.ones(len(windows)), torch.from_numpy(index))

    def build(self, sizes: Mapping[str, int]) -> ForecastingModel:
        """Build the model of the recipe's family."""
        return build_forecasting_model(self.recipe.model, self.recipe.forecasting, sizes[FIELD])

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return the squared or absolute error and, of quantiles, the mean pinball loss, summed over all values."""
        assert isinstance(model, ForecastingModel)
        assert isinstance(batch, WindowBatch)
        return self._loss(model(batch.past_BTC), batch)

    def evaluate(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return the summed loss, and the summed squared and absolute errors."""
        assert isinstance(model, ForecastingModel)
        assert isinstance(batch, WindowBatch)
        with torch.no_grad():
            y_BHCO = model(batch.past_BTC)
            error_BHC = (y_BHCO[..., 0] - batch.future_BHC).double() * batch.counted_B[:, None, None]
            return torch.stack([self._loss(y_BHCO, batch).double(), (error_BHC**2).sum(), error_BHC.abs().sum()])

    def quality(self, sums: Sequence[float], units: int) -> dict[str, float]:
        """Return the mean loss, and the mean squared and absolute error."""
        return {name: total / units for name, total in zip(self.sums, sums, strict=True)}

    def units(self, lengths: Mapping[str, Lengths]) -> int:
        """Return the number of values to forecast."""
        settings = self.recipe.forecasting
        return int(lengths[FIELD].astype(np.int64).sum()) // (settings.lookback + settings.horizon) * settings.horizon

    def flops(self, model: nn.Module, lengths: Mapping[str, Lengths]) -> float:
        """Return the operations of the model."""
        assert isinstance(model, ForecastingModel)
        return model.forward_flops(len(lengths[FIELD]))

    def final_scores(
        self, model: nn.Module, fields: Fields, store: Store | Blocks, corpus: Corpus, group: ProcessGroup
    ) -> tuple[Score, ...]:
        """Return MSE and MAE of the model and of the baselines, on scaled data."""
        assert isinstance(model, ForecastingModel)
        field = fields[FIELD]
        assert isinstance(field, SeriesField)
        assert isinstance(store, Windows)
        scores = [*model_errors(model, store, self.recipe.forecasting.quantiles).scores()]
        for baseline in recipe_baselines(self.recipe, field):
            scores += window_errors(baseline.forecast, store).scores(baseline.name)
        return tuple(scores)

    def predictor(self, bundle: Bundle, precision: str = "auto") -> Forecaster:
        """Return a forecaster."""
        return Forecaster.from_bundle(bundle, precision)

    def _loss(self, y_BHCO: Float[Tensor, "B H C O"], batch: WindowBatch) -> Tensor:
        """Return the loss of forecasts, summed over all values of a batch."""
        settings, truth_BHC = self.recipe.forecasting, batch.future_BHC
        error_BHC = y_BHCO[..., 0] - truth_BHC
        losses_BHC = error_BHC**2 if settings.loss == "mse" else error_BHC.abs()
        if settings.quantiles:
            # Filled on the device: a copy from the host could not be captured in a CUDA graph.
            level_Q = torch.cat([y_BHCO.new_full((1,), level) for level in settings.quantiles])
            below_BHCQ = truth_BHC[..., None] - y_BHCO[..., 1:]
            losses_BHC = losses_BHC + torch.maximum(level_Q * below_BHCQ, (level_Q - 1) * below_BHCQ).mean(-1)
        return (losses_BHC * batch.counted_B[:, None, None]).sum()
