"""The methods of a model that a search calls: start, step, select."""

import pytest
import torch
from torch import Tensor

from regard.models.build import build
from regard.models.seq2seq import Seq2Seq
from regard.models.transformer import Stack, StackState, make_embedding, make_encoder
from regard.nn.ragged import Ragged
from regard.nn.tap import recording
from regard.recipe import Transformer

SOURCE = Ragged.from_list([[3, 4, 5], [6], [1, 2, 3, 4, 5, 6]])


@pytest.fixture
def model() -> Seq2Seq:
    torch.manual_seed(0)
    settings = Transformer(width=8, inner=16, heads=2, encoder_layers=1, decoder_layers=2, position="rotary")
    return build(settings, 9, 9).double().eval()


def pointers(state: StackState) -> list[int]:
    """Return the addresses of the keys and values of the memory."""
    caches = [cache.cross_attention for cache in state.caches]
    return [x.data_ptr() for cache in caches if cache is not None for x in (cache.k_BHKE, cache.v_BHKE)]


def run(model: Seq2Seq, steps: list[list[int]], choices: list[list[int]], beams: int) -> Tensor:
    """Return the log-probabilities of the last of some steps, each with these tokens and then a choice of rows."""
    state = model.start(SOURCE, beams)
    for tokens, rows in zip(steps, choices, strict=True):
        logprobs, state = model.step(torch.tensor(tokens), state)
        state = model.select(state, torch.tensor(rows))
    return logprobs


def test_reordered_beams_have_the_log_probabilities_of_their_histories(model: Seq2Seq) -> None:
    logprobs = run(model, [[1, 2, 3, 4, 5, 6], [7, 8, 1, 2, 3, 4]], [[1, 1, 2, 3, 5, 4], [0, 1, 2, 3, 4, 5]], beams=2)
    histories = [[2, 7], [2, 8], [3, 1], [4, 2], [6, 3], [5, 4]]
    sources = [source for source in SOURCE.to_list() for _ in range(2)]
    forced = model(Ragged.from_list(sources), Ragged.from_list(histories)).log_softmax(-1)
    torch.testing.assert_close(logprobs, forced[1::2])


def test_beams_share_the_keys_and_values_of_their_source_which_are_never_copied(model: Seq2Seq) -> None:
    state = model.start(SOURCE, beams=4)
    before = pointers(state)
    assert all(
        cache.cross_attention is not None and cache.cross_attention.k_BHKE.shape[0] == 3 for cache in state.caches
    )
    for _ in range(3):
        _, state = model.step(torch.arange(12) % 9, state)
        state = model.select(state, torch.tensor([3, 3, 1, 0, 4, 5, 6, 7, 11, 10, 9, 8]))
    assert pointers(state) == before


def test_the_keys_of_the_source_are_computed_once_per_search(model: Seq2Seq) -> None:
    with recording(model, "decoder.*.cross.k") as seen:
        state = model.start(SOURCE, beams=2)
        for _ in range(3):
            _, state = model.step(torch.zeros(6, dtype=torch.int64), state)
    assert [len(passed) for passed in seen.values()] == [1, 1]


def test_finished_sentences_can_be_removed(model: Seq2Seq) -> None:
    state = model.start(SOURCE, beams=2)
    logprobs, state = model.step(torch.tensor([1, 2, 3, 4, 5, 6]), state)
    complete, _ = model.step(torch.tensor([7, 8, 1, 2, 3, 4]), state)
    remaining, _ = model.step(torch.tensor([8, 7, 3, 4]), model.select(state, torch.tensor([1, 0, 4, 5])))
    swapped, _ = model.step(torch.tensor([8, 7, 1, 2, 3, 4]), model.select(state, torch.tensor([1, 0, 2, 3, 4, 5])))
    torch.testing.assert_close(remaining, swapped[[0, 1, 4, 5]])
    torch.testing.assert_close(remaining[2:], complete[4:])
    assert logprobs.shape == (6, 9)


def test_a_step_does_not_change_the_state_before_it(model: Seq2Seq) -> None:
    state = model.start(SOURCE)
    _, state = model.step(torch.tensor([1, 2, 3]), state)
    one, _ = model.step(torch.tensor([4, 5, 6]), state)
    model.step(torch.tensor([6, 5, 4]), state)
    again, _ = model.step(torch.tensor([4, 5, 6]), state)
    assert torch.equal(one, again)


def test_a_step_returns_log_probabilities(model: Seq2Seq) -> None:
    logprobs, _ = model.step(torch.tensor([1, 2, 3]), model.start(SOURCE))
    torch.testing.assert_close(logprobs.exp().sum(-1), torch.ones(3, dtype=torch.float64))


def test_the_weights_of_a_step_can_be_watched_beam_by_beam(model: Seq2Seq) -> None:
    state = model.start(SOURCE, beams=2)
    with recording(model, "decoder.layers.1.cross.weights") as seen:
        model.step(torch.tensor([1, 2, 3, 4, 5, 6]), state)
    (weights,) = seen["decoder.layers.1.cross.weights"]
    assert weights.shape == (3, 2, 2, 6)  # sentences, heads, beams, source tokens
    assert bool((weights[1, :, :, 1:] == 0).all())


@pytest.mark.parametrize("rows", [[0, 2, 1, 3, 4, 5], [2, 3, 0, 1, 4, 5], [0, 1, 2]])
def test_rows_that_mix_sentences_are_refused(model: Seq2Seq, rows: list[int]) -> None:
    with pytest.raises(ValueError, match="mix sentences: the 2 rows of a sentence stay together"):
        model.select(model.start(SOURCE, beams=2), torch.tensor(rows))


def test_an_encoder_does_not_decode_step_by_step(model: Seq2Seq) -> None:
    assert isinstance(model.encoder, Stack)
    with pytest.raises(ValueError, match="only a causal stack decodes step by step"):
        model.encoder.start(3)


def test_a_bidirectional_stack_sees_later_tokens() -> None:
    settings = Transformer(width=8, inner=16, heads=2, encoder_layers=1)
    stack = make_encoder(settings, make_embedding(settings, 9)).double().eval()
    states = stack(Ragged.from_list([[1, 2, 3], [4]]))
    changed = stack(Ragged.from_list([[1, 2, 5], [4]]))
    assert bool((states[:3] != changed[:3]).any(1).all())
    assert torch.equal(states[3], changed[3])
