"""On a GPU a search finds the same hypotheses, and its steps do not wait for the device."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from tests.decode.table import assert_same_hypotheses
from tests.decode.test_families import MODELS, PLAIN, SOURCES

from regard.decode import (
    Hypothesis,
    IncrementalSearch,
    LengthLimits,
    SamplingOptions,
    SearchOptions,
    SentenceOptions,
    search,
)
from regard.decode.greedy import GreedySearch
from regard.models.seq2seq import Seq2Seq
from regard.nn.ragged import Ragged

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here"),
    pytest.mark.filterwarnings("ignore:Synchronization debug mode"),
]

SEARCHES = {
    "beam": PLAIN,
    "greedy": replace(PLAIN, beam=1, nbest=1),
    "diverse": replace(PLAIN, beam=4, groups=2, nbest=2, diversity=0.7),
    "samples": replace(PLAIN, nbest=3, sampling=SamplingOptions(top_k=4)),
    "rules": replace(PLAIN, no_repeat=2, banned=(3,)),
    "stops when full": replace(PLAIN, stopping="full"),
}
REQUESTS = [SentenceOptions(seed=i) for i in range(len(SOURCES))]


def hypotheses(options: SearchOptions, requests: list[SentenceOptions], device: str) -> list[list[Hypothesis]]:
    model = MODELS["transformer"].to(device)
    try:
        state = model.start(Ragged.from_list(SOURCES).to(device), options.rows)
        return search(model, state, requests, options, device)
    finally:
        model.to("cpu")


@pytest.mark.parametrize("options", SEARCHES.values(), ids=SEARCHES.keys())
@pytest.mark.parametrize(
    "requested", [SentenceOptions(), SentenceOptions(prefix=(4,), avoid=((2, 2),))], ids=["plain", "requests"]
)
def test_a_gpu_and_a_cpu_find_the_same_hypotheses(options: SearchOptions, requested: SentenceOptions) -> None:
    requests = [replace(requested, seed=i) for i in range(len(SOURCES))]
    on_cpu, on_cuda = hypotheses(options, requests, "cpu"), hypotheses(options, requests, "cuda")
    assert_same_hypotheses(on_cuda, on_cpu)


def test_required_phrases_are_found_on_a_gpu() -> None:
    requests = [SentenceOptions(constraints=((5, 3), (2,))), SentenceOptions(), SentenceOptions(constraints=((4,),))]
    on_cpu, on_cuda = hypotheses(PLAIN, requests, "cpu"), hypotheses(PLAIN, requests, "cuda")
    assert_same_hypotheses(on_cuda, on_cpu)


class TopKModel:
    """A model that returns only the most probable tokens of a step."""

    max_top_k = 99

    def __init__(self, model: Seq2Seq) -> None:
        self.model = model

    def step(self, tokens_R: torch.Tensor, state: Any) -> tuple[torch.Tensor, Any]:
        return self.model.step(tokens_R, state)

    def select(self, state: Any, rows_R: torch.Tensor) -> Any:
        return self.model.select(state, rows_R)

    def top_k(self, tokens_R: torch.Tensor, state: Any, k: int) -> tuple[torch.Tensor, torch.Tensor, Any]:
        logprobs_RV, state = self.model.step(tokens_R, state)
        best_RK, token_RK = logprobs_RV.topk(min(k, logprobs_RV.shape[1]))
        return best_RK, token_RK, state


@pytest.mark.parametrize("name", ["beam", "greedy", "stops when full"])
@pytest.mark.parametrize("banned", [(), (3,)])
def test_a_search_on_the_top_k_tokens_finds_the_same_hypotheses(name: str, banned: tuple[int, ...]) -> None:
    options = replace(SEARCHES[name], banned=banned, limits=LengthLimits(minimum=2, maximum=30))
    requests = (
        [SentenceOptions(source_length=4), SentenceOptions(prefix=(4, 2)), SentenceOptions(source_length=3)]
        if name == "beam"
        else REQUESTS
    )
    on_cpu = hypotheses(options, requests, "cpu")
    model = MODELS["transformer"].to("cuda")
    state = model.start(Ragged.from_list(SOURCES).to("cuda"), options.rows)
    on_cuda = search(TopKModel(model), state, requests, options, "cuda")
    model.to("cpu")
    assert_same_hypotheses(on_cuda, on_cpu)


class ConstantStepper:
    """A stepper without state that always returns the same log-probabilities."""

    def __init__(self, rows: int, device: str) -> None:
        self.logprobs_RV = torch.randn(rows, 5000, device=device).log_softmax(-1)

    def step(self, tokens_R: torch.Tensor, state: None) -> tuple[torch.Tensor, None]:
        return self.logprobs_RV.clone(), state

    def select(self, state: None, rows_R: torch.Tensor) -> None:
        return state


@pytest.mark.parametrize("options", [options for name, options in SEARCHES.items() if name != "greedy"])
def test_no_step_waits_for_the_gpu(options: SearchOptions) -> None:
    running = IncrementalSearch(ConstantStepper(4 * options.rows, "cuda"), options, "cuda")
    running.add(None, [SentenceOptions(seed=i) for i in range(4)])
    running.advance()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(4):
            running.advance()
            assert running.leave() == []
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_no_greedy_step_waits_for_the_gpu() -> None:
    running = GreedySearch(ConstantStepper(4, "cuda"), None, [*REQUESTS, SentenceOptions()], SEARCHES["greedy"], "cuda")
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(5):
            running.advance()
            assert running.leave() == []
    finally:
        torch.cuda.set_sync_debug_mode("default")
