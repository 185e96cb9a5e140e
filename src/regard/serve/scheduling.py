"""Which of a worker's lines are searched for, and which of them make the next step.

Lines are narrow or wide. Each class has its own batches, so that a narrow line does not wait for every step of many
rows, and its own memory, so that it does not wait for wide lines to finish. Both classes get the same number of
row-steps while both have work (deficit round robin; Shreedhar & Varghese 1995).

Within a class, lines start in fair order (`fair_queue.py`). A request that is already in progress may hold as many rows
as are left free (a dynamic threshold; Choudhury & Hahne 1998), so that the line of another request starts at once.
"""

import math
from collections import Counter, deque

from regard.decode import Hypothesis
from regard.serve.fair_queue import FairQueue
from regard.serve.queue import PendingResponse, QueuedJob
from regard.serve.service import SearchBatch, Segment

MAX_CELLS = 8192
"""Source tokens times rows in progress per worker and class, which bounds its memory whatever clients ask for."""
MAX_ROWS = (640, 320)
"""Rows of narrow and of wide lines in progress per worker: each needs a log-probability for every token of the
vocabulary. A step of more wide rows would take longer, but not be more efficient."""
MAX_READY = 64
"""Segments that wait in a worker; of other requests, their first one besides."""
MIN_STEP_ROWS = 16
"""A step costs at least as much as one of so many rows."""


class SchedulingClass:
    """The narrow or the wide lines of a worker."""

    def __init__(self, max_rows: int) -> None:
        """Create a class that may have this many rows in progress."""
        self.max_rows = max_rows
        self.ready = FairQueue[Segment]()
        """Segments that do not fit into memory yet."""
        self.batches: list[SearchBatch] = []
        self.completing: deque[tuple[Segment, list[Hypothesis]]] = deque()
        """Wide segments whose search is finished, and whose alignments or risks are not computed yet."""

    @property
    def rows(self) -> int:
        """Rows in progress."""
        return sum(segment.rows for batch in self.batches for segment in batch.segments.values())

    @property
    def has_work(self) -> bool:
        """Whether anything is in progress."""
        return bool(self.batches or self.completing)

    def accepts(self, job: QueuedJob) -> bool:
        """Return whether one more job may wait here."""
        return len(self.ready) < MAX_READY or job.response not in self.ready

    def admit(self) -> list[Segment]:
        """Remove the ready segments that may start now, in fair order, and return them."""
        if not self.ready:
            return []
        held: Counter[PendingResponse] = Counter()
        for batch in self.batches:
            for segment in batch.segments.values():
                held[segment.response] += self._parts(segment)
        used, is_full = held.total(), False

        def fits(segment: Segment) -> bool:
            nonlocal is_full
            own, parts = held[segment.response], self._parts(segment)
            if not used:
                return True
            if not own and used + parts > _PARTS:
                is_full = True  # it is the next to start, so no other may take its place
            return not is_full and used + parts + (own + parts if own else 0) <= _PARTS

        admitted: list[Segment] = []
        while (ready := self.ready.pop(fits)) is not None:
            held[ready.response] += self._parts(ready)
            used += self._parts(ready)
            admitted.append(ready)
        return admitted

    @property
    def next_cost(self) -> int:
        """Cost of what is next, in rows: to complete a segment, or a step."""
        return self.completing[0][0].completion_cost if self.completing else self.rows

    def next_completing(self) -> list[tuple[Segment, list[Hypothesis]]]:
        """Remove and return one segment that is to be completed, if there is one whose response is open."""
        while self.completing:
            segment, hypotheses = self.completing.popleft()
            if not segment.response.closed:
                return [(segment, hypotheses)]
        return []

    def _parts(self, segment: Segment) -> int:
        """Return how much of the memory of the class a segment takes, in parts of `_PARTS`."""
        return math.ceil(_PARTS * max(segment.rows / self.max_rows, segment.cells / MAX_CELLS))


_PARTS = 1 << 20  # counted as integers, so that sums are exact


class StepShares:
    """Decides when it is the turn of wide lines, so that narrow and wide lines get the same number of row-steps."""

    def __init__(self) -> None:
        """Begin with nothing owed."""
        self.owed = 0
        """Row-steps that narrow lines have had since the last step of the wide ones."""

    def is_turn_of_wide(self, narrow_rows: int, wide_cost: int) -> bool:
        """Return whether wide lines are next, after a step of so many narrow rows; at once if there are none."""
        cost = max(wide_cost, MIN_STEP_ROWS)
        self.owed = cost if not narrow_rows else min(self.owed, cost) + max(narrow_rows, MIN_STEP_ROWS)
        if self.owed < cost:
            return False
        self.owed -= cost
        return True
