"""A store of a series as windows for forecasting: past and future rows of each point in time.

Window i has `lookback` rows and the `horizon` rows after them; the next window begins one row later. The future of each
window lies within the part of the series that the windows are of. Its past may begin before that part, as is usual in
the literature, so that no row of a validation or test part is left out.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from regard.data.fields import SeriesField
from regard.data.rows import Lengths, Numbers, Rows
from regard.data.series import TimeSeries, corpus_series, part_rows
from regard.data.store import Store
from regard.recipe import SERIES_CORPORA, Corpus, Recipe

FIELD = "series"


class Windows(Store):
    """The rows of a store as overlapping windows, each of which is a record."""

    def __init__(self, store: Store, first: int, last: int, lookback: int, horizon: int) -> None:
        """View the rows from `first` up to `last`, with those before them as past.

        Raises:
            ValueError: If there are not enough rows for one window.
        """
        self.__dict__.update(store.__dict__)
        self.store, self.first, self.last = store, first, last
        self.lookback, self.horizon = lookback, horizon
        self.start = max(first - lookback, 0)
        """Row at which the first window begins."""
        self._records = last - self.start - lookback - horizon + 1
        if self._records < 1:
            raise ValueError(
                f"rows {first:,} to {last:,} are too few: a window has {lookback} rows of the past and {horizon} of "
                "the future; name a longer part, or lower forecasting.lookback or forecasting.horizon"
            )
        self.columns = store.longest[FIELD]
        size = (lookback + horizon) * self.columns
        self.lengths = {FIELD: np.full(self._records, size, np.int32)}
        self.longest = {FIELD: size}

    def __reduce__(self) -> tuple[Callable[..., "Windows"], tuple[Path, int, int, int, int]]:  # type: ignore[override]
        """Pickle as the path of the folder, and the rows."""
        return _reopen_windows, (self.folder, self.first, self.last, self.lookback, self.horizon)

    def tokens(self, name: str) -> int:
        """Return the total number of values, in all windows."""
        return len(self) * self.longest[name]

    def gather(self, indices: Lengths) -> dict[str, Rows]:
        """Return the values of the windows with these indices, row after row."""
        chosen: Numbers = np.asarray(indices, np.int64)
        if chosen.size and not (chosen.min() >= 0 and chosen.max() < len(self)):
            raise IndexError(f"there are windows 0 to {len(self) - 1}, not {chosen.min()} to {chosen.max()}")
        values = self.store.fields[FIELD].ids.reshape(-1, self.columns)
        rows = self.start + chosen[:, None] + np.arange(self.lookback + self.horizon)
        return {FIELD: Rows(values[rows].reshape(-1), np.arange(chosen.size + 1) * self.longest[FIELD])}

    def column(self, name: str) -> Rows:
        """Return the values of all windows."""
        return self.gather(np.arange(len(self)))[name]

    def text(self, indices: Lengths) -> dict[str, list[str]]:
        """Raise a `ValueError`, because a window has no text."""
        raise ValueError("a window of a series has no text of its own")

    def select(self, indices: Numbers) -> "Windows":
        """Raise a `ValueError`: windows are consecutive."""
        raise ValueError("windows of a series are consecutive; make windows of another part of the rows")


def _reopen_windows(folder: Path, first: int, last: int, lookback: int, horizon: int) -> Windows:
    """Open the windows of a store again; for pickle."""
    return Windows(Store.open(folder), first, last, lookback, horizon)


def corpus_part(recipe: Recipe, corpus: Corpus) -> tuple[TimeSeries, int, int]:
    """Return the series of a corpus, the first row of its part, and the first row after it."""
    assert isinstance(corpus, SERIES_CORPORA), "the recipe checks this"
    series = corpus_series(corpus, Path(recipe.data.root), recipe.seed)
    return series, *part_rows(corpus.part, series)


def corpus_windows(recipe: Recipe, corpus: Corpus, store: Store) -> Windows:
    """Return the windows of the part of a series that a corpus is about.

    Raises:
        ValueError: If the part is too short.
    """
    series, first, last = corpus_part(recipe, corpus)
    try:
        return Windows(store, first, last, recipe.forecasting.lookback, recipe.forecasting.horizon)
    except ValueError as error:
        raise ValueError(f"{series.name}: {error}") from None


def learn_series(recipe: Recipe) -> SeriesField:
    """Return the field of the series of a recipe, scaled by the training parts."""
    return SeriesField.learn([corpus_part(recipe, corpus) for corpus in recipe.data.train])
