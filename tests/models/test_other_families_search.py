"""What a search asks of the models before the Transformer: start, step, select."""

from typing import Any

import pytest
import torch
from torch import Tensor

from regard.models.build import build
from regard.models.convolutional import ConvolutionalState
from regard.models.recurrent.state import RecurrentState
from regard.models.seq2seq import Seq2Seq
from regard.nn.ragged import Ragged
from regard.nn.tap import recording, replacing
from regard.recipe import Bahdanau, ConvS2S, Luong, Model, Sutskever

SOURCE = Ragged.from_list([[3, 4, 5], [6], [1, 2, 3, 4, 5, 6]])
ROWS = [[3, 3, 1, 0, 4, 5, 6, 7, 11, 10, 9, 8], [0, 0, 0, 0, 7, 6, 5, 4, 8, 8, 9, 9]]
SETTINGS: dict[str, Model] = {
    "sutskever": Sutskever(width=8, layers=2, tied="none"),
    "bahdanau": Bahdanau(width=8, embedding=6, readout_width=5, tied="none"),
    "luong": Luong(width=8, layers=2, tied="none"),
    "luong, not fed, local": Luong(width=8, layers=1, cell="gru", feeding=False, reach=2, tied="none"),
    "convs2s": ConvS2S(width=8, encoder_layers=1, decoder_layers=2, positions=20, tied="none"),
}


def built(name: str) -> Seq2Seq:
    torch.manual_seed(0)
    return build(SETTINGS[name], 9, 9).double().eval()


MODELS = {name: built(name) for name in SETTINGS}
every_model = pytest.mark.parametrize("model", MODELS.values(), ids=MODELS.keys())


def forced(model: Seq2Seq, sources: list[Tensor], histories: list[list[int]]) -> Tensor:
    """Log-probabilities behind the last token of each history."""
    target = Ragged.from_list(histories)
    every = target.with_values(model(Ragged.from_list(sources), target).log_softmax(-1)).to_list()
    return torch.stack([each[-1] for each in every])


def memory(state: Any) -> list[int]:
    """Where what was computed of the sources lies."""
    assert isinstance(state, RecurrentState | ConvolutionalState)
    return [] if state.cache is None else [state.cache.k_BHKE.data_ptr(), state.cache.v_BHKE.data_ptr()]


@every_model
def test_beams_that_reorder_say_what_their_histories_say(model: Seq2Seq) -> None:
    state = model.start(SOURCE, beams=4)
    histories: list[list[int]] = [[] for _ in range(12)]
    sources = [each for each in SOURCE.to_list() for _ in range(4)]
    for rows in (*ROWS, list(range(12))):
        tokens = torch.randint(9, (12,))
        said, state = model.step(tokens, state)
        histories = [[*history, int(token)] for history, token in zip(histories, tokens, strict=True)]
        torch.testing.assert_close(said, forced(model, sources, histories))
        state, histories = model.select(state, torch.tensor(rows)), [histories[row] for row in rows]


@every_model
def test_what_was_computed_of_the_sources_stays_where_it_is(model: Seq2Seq) -> None:
    state = model.start(SOURCE, beams=4)
    before = memory(state)
    for rows in ROWS:
        _, state = model.step(torch.arange(12) % 9, state)
        state = model.select(state, torch.tensor(rows))
    assert memory(state) == before


@every_model
def test_sentences_that_are_done_can_leave(model: Seq2Seq) -> None:
    _, state = model.step(torch.tensor([1, 2, 3, 4, 5, 6]), model.start(SOURCE, beams=2))
    all_of_it, _ = model.step(torch.tensor([7, 8, 1, 2, 3, 4]), state)
    left, _ = model.step(torch.tensor([8, 7, 3, 4]), model.select(state, torch.tensor([1, 0, 4, 5])))
    torch.testing.assert_close(left[2:], all_of_it[4:])
    sources = [SOURCE.to_list()[i] for i in (0, 0, 2, 2)]
    torch.testing.assert_close(left, forced(model, sources, [[2, 8], [1, 7], [5, 3], [6, 4]]))


@every_model
def test_a_step_leaves_the_state_it_came_from_as_it_was(model: Seq2Seq) -> None:
    _, state = model.step(torch.tensor([1, 2, 3]), model.start(SOURCE))
    one, _ = model.step(torch.tensor([4, 5, 6]), state)
    model.step(torch.tensor([6, 5, 4]), state)
    again, _ = model.step(torch.tensor([4, 5, 6]), state)
    assert torch.equal(one, again)
    torch.testing.assert_close(one.exp().sum(-1), torch.ones(3, dtype=torch.float64))


@every_model
@pytest.mark.parametrize("rows", [[0, 2, 1, 3, 4, 5], [2, 3, 0, 1, 4, 5], [0, 1, 2]])
def test_rows_that_mix_sentences_are_refused(model: Seq2Seq, rows: list[int]) -> None:
    with pytest.raises(ValueError, match="mix sentences: the 2 rows of a sentence stay together"):
        model.select(model.start(SOURCE, beams=2), torch.tensor(rows))


@every_model
def test_bad_input_is_refused_as_by_a_transformer(model: Seq2Seq) -> None:
    with pytest.raises(ValueError, match="2 sources do not fit 1 targets"):
        model(Ragged.from_list([[1], [2]]), Ragged.from_list([[1]]))
    with pytest.raises(ValueError, match="token id 9 is outside the vocabulary of 9"):
        model(Ragged.from_list([[9]]), Ragged.from_list([[1]]))
    with pytest.raises(ValueError, match="token id -1 is outside the vocabulary of 9"):
        model(Ragged.from_list([[1]]), Ragged.from_list([[-1]]))
    with pytest.raises(ValueError, match="token id 11 is outside the vocabulary of 9"):
        model.step(torch.tensor([11]), model.start(Ragged.from_list([[1]])))


@pytest.mark.parametrize("name", [name for name in MODELS if name != "sutskever"])
def test_weights_can_be_watched_in_a_step_and_changed_in_a_pass(name: str) -> None:
    model, target = MODELS[name], Ragged.from_list([[1, 2], [3], [4, 5, 6]])
    with recording(model, "decoder.*.cross.weights") as seen:
        model.step(torch.arange(6), model.start(SOURCE, beams=2))
    assert {each[0].shape for each in seen.values()} == {(3, 1, 2, 6)}  # sentences, one head, beams, source places
    plain = target.with_values(model(SOURCE, target)).to_list()
    seen_by = torch.tensor([1.0, 0.0, 1.0], dtype=torch.float64)[:, None, None, None]
    with replacing(model, "decoder.*.cross.weights", lambda _, x: seen_by * x):
        blind = target.with_values(model(SOURCE, target)).to_list()
    torch.testing.assert_close(blind[0], plain[0])
    torch.testing.assert_close(blind[2], plain[2])
    assert not torch.allclose(blind[1], plain[1])


def test_the_last_state_is_all_that_is_left_of_a_source_without_attention() -> None:
    state = MODELS["sutskever"].start(SOURCE, beams=2)
    assert state.cache is None
    assert [each.shape for each in state.hidden] == [(2, 6, 8), (2, 6, 8)]
