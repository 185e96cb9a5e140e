"""Searches of a whole batch, and what is built on them: search trees, alternatives and continuous batching."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import torch

from regard.decode.candidates import GreedySelector
from regard.decode.greedy import GreedySearch
from regard.decode.hypothesis import Hypothesis
from regard.decode.incremental import IncrementalSearch
from regard.decode.options import SearchOptions, SentenceOptions
from regard.decode.rules import RuleSet
from regard.decode.search_group import make_selector
from regard.decode.static_search import search_statically
from regard.decode.stepper import JoinableStepper, MultiStepper, State, Stepper
from regard.decode.tree import SearchTree, TreeRecorder


def search(
    stepper: Stepper[State],
    state: State,
    sentences: Sequence[SentenceOptions],
    options: SearchOptions,
    device: torch.device | str = "cpu",
) -> list[list[Hypothesis]]:
    """Return the best hypotheses of each sentence, best first, in the order of the sentences.

    Args:
        stepper: What is searched.
        state: Its state, with `options.rows` rows for each sentence: `model.start(source, options.rows)`.
        sentences: Options of each sentence.
        options: Options that hold for all sentences.
        device: Where the stepper's tensors are.

    Returns:
        A list for each sentence. It is empty if nothing satisfies the sentence's options; without such options it never
        is.
    """
    for sentence in sentences:
        options.check(sentence)
    if not sentences:
        return []
    if not options.coverage_penalty and options.groups == 1:
        searches = [options] * len(sentences)
        selector = make_selector(sentences, searches, "cpu")
        rules = RuleSet(sentences, [0] * len(sentences), searches, "cpu")
        if isinstance(stepper, MultiStepper) and selector.static and rules.static:
            return search_statically(stepper, state, sentences, options, device)
        if isinstance(selector, GreedySelector):
            return _finish(GreedySearch(stepper, state, sentences, options, device), len(sentences))
    running = IncrementalSearch(stepper, options, device)
    running.add(state, sentences)
    return _finish(running, len(sentences))


def explore(
    stepper: Stepper[State],
    state: State,
    sentences: Sequence[SentenceOptions],
    options: SearchOptions,
    device: torch.device | str = "cpu",
) -> list[tuple[list[Hypothesis], SearchTree]]:
    """Search as `search` does, and return also the tree of all candidates; slower, since the host reads each step."""
    recorder = TreeRecorder(options.groups, options.rows // options.groups)
    running = IncrementalSearch(stepper, options, device, recorder)
    if sentences:
        running.add(state, sentences)
    results = _finish(running, len(sentences))
    return [(hypotheses, recorder.tree(number)) for number, hypotheses in enumerate(results)]


def branching(options: SearchOptions, count: int) -> SearchOptions:
    """Return the options to search for `count` alternatives, each completed with the given beam size."""
    if options.sampling is not None or options.groups > 1:
        raise ValueError("alternatives need plain beam search; turn sampling and groups off")
    return replace(options, beam=options.beam * count, groups=count, nbest=count, fork=True)


def alternatives(
    stepper: Stepper[State],
    state: State,
    sentences: Sequence[SentenceOptions],
    options: SearchOptions,
    device: torch.device | str = "cpu",
) -> list[list[Hypothesis]]:
    """Return the most probable tokens after the prefix of each sentence, each completed; most probable token first.

    The end symbol may be one of these tokens. The options come from `branching`, and the state has `options.rows` rows
    for each sentence.
    """
    if not options.fork:
        raise ValueError("alternatives need options from branching(options, count)")
    results = search(stepper, state, sentences, options, device)
    return [
        sorted(hypotheses, key=lambda hypothesis: -hypothesis.token_logprobs[len(sentence.prefix)])
        for sentence, hypotheses in zip(sentences, results, strict=True)
    ]


def stream(
    stepper: Stepper[State],
    arrivals: Iterable[tuple[State, Sequence[SentenceOptions]]],
    options: SearchOptions,
    room: int = 64,
    device: torch.device | str = "cpu",
) -> Iterator[tuple[int, list[Hypothesis]]]:
    """Search with continuous batching: finished sentences leave, and others take their place.

    Args:
        stepper: What is searched. One that is no `JoinableStepper` searches one arrival after the other.
        arrivals: Started states with the options of their sentences. The next one is asked for when it may join; small
            ones fill the batch best.
        options: Options that hold for all sentences.
        room: Largest number of sentences at a time.
        device: Where the stepper's tensors are.

    Yields:
        The number of each sentence, counted in the order of arrival, and its hypotheses, as soon as it is finished.
    """
    running = IncrementalSearch(stepper, options, device)
    coming = iter(arrivals)
    waiting = next(coming, None)
    while running.sentences or waiting is not None:
        while waiting is not None and _fits(running, len(waiting[1]), room):
            if waiting[1]:
                running.add(*waiting)
            waiting = next(coming, None)
        if running.sentences:
            running.advance()
            yield from running.leave()


def _fits(running: IncrementalSearch[State], count: int, room: int) -> bool:
    """Return whether so many more sentences may join; an empty search takes any number, or none ever would."""
    if not running.sentences:
        return True
    return isinstance(running.stepper, JoinableStepper) and len(running.sentences) + count <= room


def _finish(running: IncrementalSearch[State] | GreedySearch[State], count: int) -> list[list[Hypothesis]]:
    """Advance a search until every sentence is finished."""
    results: list[list[Hypothesis]] = [[] for _ in range(count)]
    while running.numbers:
        running.advance()
        for number, hypotheses in running.leave():
            results[number] = hypotheses
    return results
