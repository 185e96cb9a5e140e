"""Series fields: the numbers of a point in time, scaled by the mean and standard deviation of the training data."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.data.rows import Rows
from regard.data.series import TimeSeries, TimeStep
from regard.files import read_inside, write_atomically
from regard.recipe import FieldKind

SERIES = "series.json"
_LONGEST = 1 << 24  # bytes


@dataclass(frozen=True)
class SeriesField:
    """The numbers of a row of a table, encoded as standard deviations from the mean of the training data.

    A raw value has the numbers as text, separated by tabs.
    """

    date: str
    """Name of the column with the dates."""
    columns: tuple[str, ...]
    """Names of the columns with numbers."""
    means: tuple[float, ...]
    scales: tuple[float, ...]
    """Standard deviation of each column; 1 for a constant one."""
    step: TimeStep
    """Time from one row to the next."""

    @classmethod
    def learn(cls, parts: Sequence[tuple[TimeSeries, int, int]]) -> "SeriesField":
        """Return the field of training data, given as series with their first row and the first row after them.

        Raises:
            ValueError: If the series have different columns or steps.
        """
        first = parts[0][0]
        for series, _, _ in parts:
            if (series.columns, series.step) != (first.columns, first.step):
                raise ValueError(
                    f"{series.name} has the columns {', '.join(series.columns)} at steps of {series.step}, and "
                    f"{first.name} has {', '.join(first.columns)} at steps of {first.step}; both must be equal"
                )
        values = np.concatenate([series.values[begin:end] for series, begin, end in parts])
        means, deviations = values.mean(0), values.std(0)
        # A constant column may differ from its mean by rounding.
        constant = deviations <= 1e-12 * np.maximum(np.abs(means), 1e-300)
        scales = np.where(constant, 1.0, deviations)
        return cls(first.date, first.columns, tuple(means.tolist()), tuple(scales.tolist()), first.step)

    @property
    def kind(self) -> FieldKind:
        """The kind of field."""
        return "series"

    @property
    def fingerprint(self) -> str:
        """A hash of names and scales."""
        return hashlib.blake2b(json.dumps(asdict(self), sort_keys=True).encode(), digest_size=16).hexdigest()

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of scaled numbers."""
        return np.dtype("f4")

    def __len__(self) -> int:
        """Return the number of columns."""
        return len(self.columns)

    def encode(self, values: Sequence[str]) -> Rows:
        """Scale the numbers of rows."""
        numbers = np.array([value.split("\t") for value in values], np.float64).reshape(len(values), len(self))
        return Rows(self.scaled(numbers).reshape(-1), np.arange(len(values) + 1) * len(self))

    def decode(self, ids: Sequence[int]) -> str:
        """Return the numbers of a row in their own units."""
        return "\t".join(map(repr, self.unscaled(np.asarray(ids, np.float64)).tolist()))

    def scaled(self, values: NDArray[np.float64]) -> NDArray[np.float32]:
        """Return values, whose last dimension is the columns, in standard deviations from the mean."""
        scaled: NDArray[np.float32] = ((values - np.array(self.means)) / np.array(self.scales)).astype(np.float32)
        return scaled

    def unscaled(self, values: NDArray[Any]) -> NDArray[np.float64]:
        """Return scaled values in their own units."""
        unscaled: NDArray[np.float64] = values.astype(np.float64) * np.array(self.scales) + np.array(self.means)
        return unscaled

    def save(self, name: str, folder: Path) -> None:
        """Write the field into the folder of a run."""
        write_atomically(folder / SERIES, (json.dumps({name: asdict(self)}, indent=1) + "\n").encode())

    @classmethod
    def load(cls, name: str, folder: Path) -> "SeriesField":
        """Read the field from the folder of a run.

        Raises:
            ValueError: If the file is missing or damaged.
        """
        path = folder / SERIES
        try:
            saved = json.loads(read_inside(folder, SERIES, _LONGEST))[name]
            numbers = {key: tuple(float(value) for value in saved[key]) for key in ("means", "scales")}
            step = TimeStep(str(saved["step"]["unit"]), int(saved["step"]["count"]))  # type: ignore[arg-type]
            field = cls(str(saved["date"]), tuple(map(str, saved["columns"])), **numbers, step=step)
        except FileNotFoundError:
            raise ValueError(f"{path} does not exist; restore it from a copy, or train again") from None
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise ValueError(f"{path} is damaged ({error}); restore it from a copy, or train again") from error
        finite = np.isfinite(field.means).all() and np.isfinite(field.scales).all() and min(field.scales, default=0) > 0
        known = step.unit in ("seconds", "months", "weekdays") and step.count > 0
        if not (len(field.columns) == len(field.means) == len(field.scales) and finite and known):
            raise ValueError(f"{path} is damaged: it needs a mean and a scale for each column")
        return field
