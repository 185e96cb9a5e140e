"""Continuous batching: sentences that are done leave, and others take their place."""

from collections.abc import Iterable, Iterator, Sequence

import torch

from regard.decode.hypothesis import Hypothesis
from regard.decode.options import Options, Wish
from regard.decode.search import Search
from regard.decode.stepper import Joiner, State, Stepper


def stream(
    stepper: Stepper[State],
    arrivals: Iterable[tuple[State, Sequence[Wish]]],
    options: Options,
    room: int = 64,
    device: torch.device | str = "cpu",
) -> Iterator[tuple[int, list[Hypothesis]]]:
    """The hypotheses of each sentence as soon as it is done, with its number, counted in the order of arrival.

    Arrivals are started states, with their wishes; the next is asked for when up to `room` sentences would be on their
    way with it, so it may be made then. Small arrivals fill the room best. A stepper that is no `Joiner` searches one
    arrival after the other.
    """
    running = Search(stepper, options, device)
    coming = iter(arrivals)
    waiting = next(coming, None)
    while running.wishes or waiting is not None:
        while waiting is not None and _fits(running, len(waiting[1]), room):
            if waiting[1]:
                running.add(*waiting)
            waiting = next(coming, None)
        if running.wishes:
            running.advance()
            yield from running.leave()


def _fits(running: Search[State], count: int, room: int) -> bool:
    """Whether so many more sentences may come: into an empty search always, or none ever would."""
    if not running.wishes:
        return True
    return isinstance(running.stepper, Joiner) and len(running.wishes) + count <= room
