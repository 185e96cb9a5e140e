"""The methods that a search calls, in the families before the Transformer: start, step, select."""

from typing import Any

import pytest
import torch
from torch import Tensor

from regard.models.build import build
from regard.models.convolutional import ConvolutionalState
from regard.models.recurrent.state import RecurrentState
from regard.models.seq2seq import Seq2Seq
from regard.nn.attention.kv_cache import KVCache
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
    """Return the log-probabilities after the last token of each history."""
    target = Ragged.from_list(histories)
    all_logprobs = target.with_values(model(Ragged.from_list(sources), target).log_softmax(-1)).to_list()
    return torch.stack([logprobs[-1] for logprobs in all_logprobs])


def pointers(state: Any) -> list[int]:
    """Return the addresses of the keys and values of the memory."""
    assert isinstance(state, RecurrentState | ConvolutionalState)
    cache = state.cache
    if cache is None:
        return []
    assert isinstance(cache, KVCache)
    return [cache.k_BHKE.data_ptr(), cache.v_BHKE.data_ptr()]


@every_model
def test_reordered_beams_have_the_log_probabilities_of_their_histories(model: Seq2Seq) -> None:
    state = model.start(SOURCE, beams=4)
    histories: list[list[int]] = [[] for _ in range(12)]
    sources = [source for source in SOURCE.to_list() for _ in range(4)]
    for rows in (*ROWS, list(range(12))):
        tokens = torch.randint(9, (12,))
        logprobs, state = model.step(tokens, state)
        histories = [[*history, int(token)] for history, token in zip(histories, tokens, strict=True)]
        torch.testing.assert_close(logprobs, forced(model, sources, histories))
        state, histories = model.select(state, torch.tensor(rows)), [histories[row] for row in rows]


@every_model
def test_keys_and_values_of_the_source_are_never_copied(model: Seq2Seq) -> None:
    state = model.start(SOURCE, beams=4)
    before = pointers(state)
    for rows in ROWS:
        _, state = model.step(torch.arange(12) % 9, state)
        state = model.select(state, torch.tensor(rows))
    assert pointers(state) == before


@every_model
def test_finished_sentences_can_be_removed(model: Seq2Seq) -> None:
    _, state = model.step(torch.tensor([1, 2, 3, 4, 5, 6]), model.start(SOURCE, beams=2))
    complete, _ = model.step(torch.tensor([7, 8, 1, 2, 3, 4]), state)
    remaining, _ = model.step(torch.tensor([8, 7, 3, 4]), model.select(state, torch.tensor([1, 0, 4, 5])))
    torch.testing.assert_close(remaining[2:], complete[4:])
    sources = [SOURCE.to_list()[i] for i in (0, 0, 2, 2)]
    torch.testing.assert_close(remaining, forced(model, sources, [[2, 8], [1, 7], [5, 3], [6, 4]]))


@every_model
def test_a_step_does_not_change_the_state_before_it(model: Seq2Seq) -> None:
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
def test_invalid_input_is_refused(model: Seq2Seq) -> None:
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
    # sentences, one head, beams, source tokens
    assert {weights[0].shape for weights in seen.values()} == {(3, 1, 2, 6)}
    plain = target.with_values(model(SOURCE, target)).to_list()
    factor = torch.tensor([1.0, 0.0, 1.0], dtype=torch.float64)[:, None, None, None]
    with replacing(model, "decoder.*.cross.weights", lambda _, x: factor * x):
        changed = target.with_values(model(SOURCE, target)).to_list()
    torch.testing.assert_close(changed[0], plain[0])
    torch.testing.assert_close(changed[2], plain[2])
    assert not torch.allclose(changed[1], plain[1])


def test_without_attention_only_the_final_state_of_the_source_is_kept() -> None:
    state = MODELS["sutskever"].start(SOURCE, beams=2)
    assert state.cache is None
    assert [hidden.shape for hidden in state.hidden] == [(2, 6, 8), (2, 6, 8)]
