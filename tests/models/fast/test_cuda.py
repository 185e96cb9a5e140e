"""On CUDA, captured steps say what the model says on a CPU."""

import pytest
import torch

from regard.models import fast
from regard.models.fast.static import StaticEngine
from regard.models.outline import Outline
from regard.models.seq2seq import Seq2Seq
from regard.nn.ragged import Ragged

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here")

SOURCES = [[3, 4, 5], [6], [9] * 17, []]


def transformer(**told: object) -> Seq2Seq:
    torch.manual_seed(0)
    sizes: dict[str, object] = {"width": 32, "inner": 64, "heads": 2, "encoder_layers": 2, "decoder_layers": 2}
    outline = Outline(**(sizes | told))  # type: ignore[arg-type]
    return outline.seq2seq(70, 70).eval().requires_grad_(False)


@pytest.mark.parametrize("position", ["sinusoidal", "learned", "rotary", "alibi"])
@pytest.mark.parametrize(("precision", "near"), [("float32", 1e-3), ("bfloat16", 0.2)])
def test_captured_steps_say_what_the_model_says(position: str, precision: fast.Precision, near: float) -> None:
    model = transformer(position=position)
    engine = fast.engine(model, "cuda", precision)
    assert isinstance(engine, StaticEngine)
    state, theirs = engine.start(Ragged.from_list(SOURCES), 2), model.start(Ragged.from_list(SOURCES), 2)
    dice = torch.Generator().manual_seed(1)
    for _ in range(40):
        tokens = torch.randint(70, (8,), generator=dice)
        said, state = engine.step(tokens.cuda(), state)
        expected, theirs = model.step(tokens, theirs)
        assert float((said.cpu() - expected).abs().max()) < near
        rows = torch.arange(8) // 2 * 2 + torch.randint(2, (8,), generator=dice)
        state, theirs = engine.select(state, rows.cuda()), model.select(theirs, rows)
    assert state.desk.graphs


def test_sentences_leave_and_join_on_the_device() -> None:
    model = transformer()
    engine = fast.engine(model, "cuda", "float32")
    state = engine.start(Ragged.from_list(SOURCES))
    for _ in range(3):
        _, state = engine.step(torch.tensor([7, 7, 7, 7]).cuda(), state)
    state = engine.select(state, torch.tensor([0, 2]).cuda())
    state = engine.join([state, engine.start(Ragged.from_list([[8] * 5]))])
    said, _ = engine.step(torch.tensor([7, 7, 7]).cuda(), state)
    sources, histories = [SOURCES[0], SOURCES[2], [8] * 5], [[7] * 4, [7] * 4, [7]]
    target = Ragged.from_list(histories)
    expected = model(Ragged.from_list(sources), target).log_softmax(-1)[target.offsets[1:].long() - 1]
    assert float((said.cpu() - expected).abs().max()) < 1e-3


def test_a_greedy_run_on_the_device_is_the_models_own() -> None:
    model = transformer()
    engine = fast.engine(model, "cuda", "float32")
    assert isinstance(engine, StaticEngine)
    for _ in range(2):  # the second time everything is captured already
        found = engine.greedy(Ragged.from_list(SOURCES[:3]), 2, 69, 40)
        state, tokens, said = model.start(Ragged.from_list(SOURCES[:3])), torch.tensor([2, 2, 2]), []
        for _ in range(40):
            logprobs, state = model.step(tokens, state)
            tokens = logprobs.argmax(-1)
            said.append(tokens.tolist())
        for row, (ours, _) in enumerate(found):
            whole = [step[row] for step in said]
            assert ours == whole[: whole.index(69) if 69 in whole else None]
