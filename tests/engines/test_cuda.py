"""On CUDA, captured steps give the log-probabilities of the model on a CPU."""

import pytest
import torch

from regard import engines
from regard.decode import LengthLimits, MultiStepper, SearchOptions, SentenceOptions, search
from regard.engines.static_engine import StaticEngine
from regard.models.build import build
from regard.models.seq2seq import Seq2Seq
from regard.nn.ragged import Ragged
from regard.recipe import Transformer

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here"),
    pytest.mark.filterwarnings("ignore:Synchronization debug mode"),
]

SOURCES = [[3, 4, 5], [6], [9] * 17, []]


def transformer(**overrides: object) -> Seq2Seq:
    torch.manual_seed(0)
    sizes: dict[str, object] = {"width": 32, "inner": 64, "heads": 2, "encoder_layers": 2, "decoder_layers": 2}
    settings = Transformer(**sizes | overrides)  # type: ignore[arg-type]
    return build(settings, 70, 70).eval().requires_grad_(False)


@pytest.mark.parametrize("position", ["sinusoidal", "learned", "rotary", "alibi"])
@pytest.mark.parametrize(("precision", "tolerance"), [("float32", 1e-3), ("bfloat16", 0.2)])
def test_captured_steps_give_the_log_probabilities_of_the_model(
    position: str, precision: engines.Precision, tolerance: float
) -> None:
    model = transformer(position=position)
    engine = engines.engine(model, "cuda", precision)
    assert isinstance(engine, StaticEngine)
    state, theirs = engine.start(Ragged.from_list(SOURCES), 2), model.start(Ragged.from_list(SOURCES), 2)
    generator = torch.Generator().manual_seed(1)
    for _ in range(40):
        tokens = torch.randint(70, (8,), generator=generator)
        logprobs, state = engine.step(tokens.cuda(), state)
        expected, theirs = model.step(tokens, theirs)
        assert float((logprobs.cpu() - expected).abs().max()) < tolerance
        rows = torch.arange(8) // 2 * 2 + torch.randint(2, (8,), generator=generator)
        state, theirs = engine.select(state, rows.cuda()), model.select(theirs, rows)
    assert state.work.graphs


def test_sentences_leave_and_join_on_the_device() -> None:
    model = transformer()
    engine = engines.engine(model, "cuda", "float32")
    state = engine.start(Ragged.from_list(SOURCES))
    for _ in range(3):
        _, state = engine.step(torch.tensor([7, 7, 7, 7]).cuda(), state)
    state = engine.select(state, torch.tensor([0, 2]).cuda())
    state = engine.join([state, engine.start(Ragged.from_list([[8] * 5]))])
    logprobs, _ = engine.step(torch.tensor([7, 7, 7]).cuda(), state)
    sources, histories = [SOURCES[0], SOURCES[2], [8] * 5], [[7] * 4, [7] * 4, [7]]
    target = Ragged.from_list(histories)
    expected = model(Ragged.from_list(sources), target).log_softmax(-1)[target.offsets[1:].long() - 1]
    assert float((logprobs.cpu() - expected).abs().max()) < 1e-3


@pytest.mark.parametrize("beam", [1, 4])
def test_a_captured_search_finds_the_hypotheses_of_the_model(beam: int) -> None:
    model = transformer()
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(1.5)
    engine = engines.engine(model, "cuda", "float32")
    assert isinstance(engine, MultiStepper)
    requests = [SentenceOptions(source_length=len(source)) for source in SOURCES]
    options = SearchOptions(
        begin=2, end=69, beam=beam, limits=LengthLimits(max_ratio=3.0, max_extra=20, minimum=3), banned=(0, 1)
    )
    expected = search(model, model.start(Ragged.from_list(SOURCES), beam), requests, options)
    for _ in range(3):  # after the first time everything is captured already
        found = search(engine, engine.start(Ragged.from_list(SOURCES), beam), requests, options, "cuda")
        assert [hypotheses[0].tokens for hypotheses in found] == [hypotheses[0].tokens for hypotheses in expected]
        scores = [hypotheses[0].score for hypotheses in expected]
        assert [hypotheses[0].score for hypotheses in found] == pytest.approx(scores, rel=1e-3, abs=1e-3)


@pytest.mark.parametrize("beam", [1, 4])
def test_captured_steps_of_a_search_do_not_wait_for_the_device(beam: int) -> None:
    engine = engines.engine(transformer(), "cuda", "bfloat16")
    assert isinstance(engine, StaticEngine)
    options = SearchOptions(begin=2, end=69, beam=beam, limits=LengthLimits(30, 30))
    requests = [SentenceOptions(source_length=len(source)) for source in SOURCES]
    search(engine, engine.start(Ragged.from_list(SOURCES), beam), requests, options, "cuda")
    state = engine.start(Ragged.from_list(SOURCES), beam)
    (static_search,) = state.work.searches.values()
    torch.cuda.set_sync_debug_mode("error")
    try:
        engine.run_steps(engine.reserve(state, 30), static_search, 30)
    finally:
        torch.cuda.set_sync_debug_mode("default")
