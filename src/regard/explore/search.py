"""Search for an output token by token: with the predictor's engine, or with the model itself if it is changed."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from regard import decode
from regard.decode import Hypothesis
from regard.decode.tree import SearchNode, TreeRecorder
from regard.explore.adapters import Ids, TaskAdapter
from regard.explore.attention import DECODER_PARTS, AttentionLayers
from regard.explore.changes import HeadMeans, applied
from regard.explore.passes import EncoderPass, IsStale, StaleQuestionError
from regard.explore.questions import Change
from regard.predict.teacher_forcing import evaluating

Result = TypeVar("Result")


@dataclass(frozen=True, eq=False)
class SearchRequest:
    """One search: the input, its encoding, the beam, the beginning of the output, and the changes that act."""

    ids: Ids
    encoded: EncoderPass
    beam: int = 1
    nbest: int = 1
    prefix: Ids = ()
    changes: Sequence[Change] = ()
    means: HeadMeans | None = None


def run_search(
    adapter: TaskAdapter,
    layers: AttentionLayers,
    request: SearchRequest,
    is_stale: IsStale,
    recorder: TreeRecorder | None = None,
) -> Generator[Ids, None, list[Hypothesis]]:
    """Search step by step, from the prompt on if the model has one.

    A recorder gets every candidate of the search.

    Yields:
        The final tokens after each step; nothing final is known before the end with several beams.

    Returns:
        The hypotheses, the best first.
    """
    model, beginning = adapter.model, adapter.beginning(request.ids, request.prefix)
    options = adapter.search_options(request.beam, request.nbest, beginning)
    prompt = beginning[: adapter.prompt_length(beginning)]
    hypotheses: list[Hypothesis] = []
    with applied(layers, request.changes, DECODER_PARTS, request.means or {}) as decoding:
        # Only the changes stay active between two steps. Global torch modes must not leak to the caller, which runs
        # between the yields.
        with evaluating(model):
            changed = decoding if request.changes else None
            stepper, state = adapter.start(request.ids, beginning, request.encoded.memory, options, changed)
            device = next(model.parameters()).device
            running: decode.IncrementalSearch[Any] = decode.IncrementalSearch(stepper, options, device, recorder)
            running.add(state, [adapter.sentence_options(request.ids, beginning)])
        while running.sentences:
            if is_stale():
                raise StaleQuestionError
            with evaluating(model):
                running.advance()
                settled = running.settled(0) if request.beam == 1 else ()
                finished = running.leave()
            hypotheses = finished[0][1] if finished else hypotheses
            yield (*prompt, *settled)
    if not hypotheses:
        raise ValueError("no token can follow the given beginning; change or shorten it")
    return [replace(hypothesis, tokens=(*prompt, *hypothesis.tokens)) for hypothesis in hypotheses]


def run_recorded_search(
    adapter: TaskAdapter, layers: AttentionLayers, request: SearchRequest, is_stale: IsStale
) -> tuple[list[SearchNode], Ids, list[Hypothesis]]:
    """Search, and return all candidates as a tree, the prompt that the tree starts from, and the hypotheses."""
    recorder, beginning = TreeRecorder(1, request.beam), adapter.beginning(request.ids, request.prefix)
    hypotheses = final_result(run_search(adapter, layers, request, is_stale, recorder))
    nodes, options = recorder.tree(0).nodes, adapter.search_options(request.beam, request.nbest, beginning)
    longest = options.limits.bounds(adapter.sentence_options(request.ids, beginning))[1]
    # A text that is cut at the maximum length has no end symbol: its last token is the one that ends it.
    cuts = {node.parent: node for node in nodes if options.free_cut and node.position == longest}
    tree = [
        replace(node, fate=cuts[index].fate, score=cuts[index].score) if index in cuts else node
        for index, node in enumerate(nodes)
        if not options.free_cut or node.position < longest
    ]
    return tree, beginning[: adapter.prompt_length(beginning)], hypotheses


def final_result(search: Generator[Ids, None, Result]) -> Result:
    """Run a search to its end, and return its result."""
    while True:
        try:
            next(search)
        except StopIteration as stop:
            result: Result = stop.value
            return result
