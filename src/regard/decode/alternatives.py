"""What else could stand at a place: the most probable tokens after a prefix, each with the best way to go on."""

from collections.abc import Sequence
from dataclasses import replace

import torch

from regard.decode.hypothesis import Hypothesis
from regard.decode.options import Options, Wish
from regard.decode.search import search
from regard.decode.stepper import State, Stepper


def branching(options: Options, count: int) -> Options:
    """Options for `count` alternatives, each completed with the beam given; start the state with their `rows`."""
    if options.sampling is not None or options.groups > 1:
        raise ValueError("alternatives are searched for with one plain beam each: no sampling, no groups")
    return replace(options, beam=options.beam * count, groups=count, nbest=count, fork=True)


def alternatives(
    stepper: Stepper[State],
    state: State,
    wishes: Sequence[Wish],
    options: Options,
    device: torch.device | str = "cpu",
) -> list[list[Hypothesis]]:
    """For each sentence the most probable tokens behind its prefix, each completed, the most probable token first.

    The options come from `branching`, and the state has their `rows`. To end there is an alternative too.
    """
    if not options.fork:
        raise ValueError("make the options with branching(options, count)")
    found = search(stepper, state, wishes, options, device)
    return [
        sorted(hypotheses, key=lambda each: -each.token_logprobs[len(wish.prefix)])
        for wish, hypotheses in zip(wishes, found, strict=True)
    ]
