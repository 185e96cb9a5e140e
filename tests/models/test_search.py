"""What a search asks of a model: start, step, select."""

import pytest
import torch
from torch import Tensor

from regard.models.outline import Outline
from regard.models.seq2seq import Seq2Seq
from regard.models.transformer import Stack, StackState
from regard.nn.embedding import Output
from regard.nn.ragged import Ragged
from regard.nn.tap import recording

SOURCE = Ragged.from_list([[3, 4, 5], [6], [1, 2, 3, 4, 5, 6]])


@pytest.fixture
def model() -> Seq2Seq:
    torch.manual_seed(0)
    told = Outline(width=8, inner=16, heads=2, encoder_layers=1, decoder_layers=2, position="rotary")
    return told.seq2seq(9, 9).double().eval()


def pointers(state: StackState) -> list[int]:
    """Where the memory's keys and values lie."""
    kept = [seen.memory for seen in state.seen]
    return [x.data_ptr() for each in kept if each is not None for x in (each.k_BHKE, each.v_BHKE)]


def run(model: Seq2Seq, steps: list[list[int]], choices: list[list[int]], beams: int) -> Tensor:
    """The last log-probabilities of a search that is fed these tokens and goes on with those rows."""
    state = model.start(SOURCE, beams)
    for tokens, rows in zip(steps, choices, strict=True):
        said, state = model.step(torch.tensor(tokens), state)
        state = model.select(state, torch.tensor(rows))
    return said


def test_beams_that_reorder_say_what_their_histories_say(model: Seq2Seq) -> None:
    said = run(model, [[1, 2, 3, 4, 5, 6], [7, 8, 1, 2, 3, 4]], [[1, 1, 2, 3, 5, 4], [0, 1, 2, 3, 4, 5]], beams=2)
    histories = [[2, 7], [2, 8], [3, 1], [4, 2], [6, 3], [5, 4]]
    sources = [each for each in SOURCE.to_list() for _ in range(2)]
    forced = model(Ragged.from_list(sources), Ragged.from_list(histories)).log_softmax(-1)
    torch.testing.assert_close(said, forced[1::2])


def test_keys_and_values_of_the_source_are_shared_by_its_beams_and_stay_where_they_are(model: Seq2Seq) -> None:
    state = model.start(SOURCE, beams=4)
    before = pointers(state)
    assert all(seen.memory is not None and seen.memory.k_BHKE.shape[0] == 3 for seen in state.seen)
    for _ in range(3):
        _, state = model.step(torch.arange(12) % 9, state)
        state = model.select(state, torch.tensor([3, 3, 1, 0, 4, 5, 6, 7, 11, 10, 9, 8]))
    assert pointers(state) == before


def test_the_sources_keys_are_computed_once_a_search(model: Seq2Seq) -> None:
    with recording(model, "decoder.*.cross.k") as seen:
        state = model.start(SOURCE, beams=2)
        for _ in range(3):
            _, state = model.step(torch.zeros(6, dtype=torch.int64), state)
    assert [len(passed) for passed in seen.values()] == [1, 1]


def test_sentences_that_are_done_can_leave(model: Seq2Seq) -> None:
    state = model.start(SOURCE, beams=2)
    said, state = model.step(torch.tensor([1, 2, 3, 4, 5, 6]), state)
    all_of_it, _ = model.step(torch.tensor([7, 8, 1, 2, 3, 4]), state)
    left, _ = model.step(torch.tensor([8, 7, 3, 4]), model.select(state, torch.tensor([1, 0, 4, 5])))
    swapped, _ = model.step(torch.tensor([8, 7, 1, 2, 3, 4]), model.select(state, torch.tensor([1, 0, 2, 3, 4, 5])))
    torch.testing.assert_close(left, swapped[[0, 1, 4, 5]])
    torch.testing.assert_close(left[2:], all_of_it[4:])
    assert said.shape == (6, 9)


def test_a_step_leaves_the_state_it_came_from_as_it_was(model: Seq2Seq) -> None:
    state = model.start(SOURCE)
    _, state = model.step(torch.tensor([1, 2, 3]), state)
    one, _ = model.step(torch.tensor([4, 5, 6]), state)
    model.step(torch.tensor([6, 5, 4]), state)
    again, _ = model.step(torch.tensor([4, 5, 6]), state)
    assert torch.equal(one, again)


def test_what_a_step_says_are_log_probabilities(model: Seq2Seq) -> None:
    said, _ = model.step(torch.tensor([1, 2, 3]), model.start(SOURCE))
    torch.testing.assert_close(said.exp().sum(-1), torch.ones(3, dtype=torch.float64))


def test_the_weights_of_a_step_can_be_watched_beam_by_beam(model: Seq2Seq) -> None:
    state = model.start(SOURCE, beams=2)
    with recording(model, "decoder.layers.1.cross.weights") as seen:
        model.step(torch.tensor([1, 2, 3, 4, 5, 6]), state)
    (weights,) = seen["decoder.layers.1.cross.weights"]
    assert weights.shape == (3, 2, 2, 6)  # sentences, heads, beams, source places
    assert bool((weights[1, :, :, 1:] == 0).all())


@pytest.mark.parametrize("rows", [[0, 2, 1, 3, 4, 5], [2, 3, 0, 1, 4, 5], [0, 1, 2]])
def test_rows_that_tear_a_sentence_apart_are_refused(model: Seq2Seq, rows: list[int]) -> None:
    with pytest.raises(ValueError, match="mix sentences: the 2 rows of a sentence stay together"):
        model.select(model.start(SOURCE, beams=2), torch.tensor(rows))


def test_an_encoder_does_not_go_step_by_step(model: Seq2Seq) -> None:
    assert isinstance(model.encoder, Stack)
    with pytest.raises(ValueError, match="only a causal stack goes step by step"):
        model.encoder.start(3)


def test_a_language_model_is_the_same_stack_without_a_memory() -> None:
    outline = Outline(width=8, inner=16, heads=2, decoder_layers=2, position="alibi")
    embedding = outline.embedding(9)
    stack: Stack = outline.decoder(embedding, cross=False).double().eval()
    output = Output(8, 9, tied=embedding.weight)
    text = Ragged.from_list([[1, 2, 3], [4, 5, 6]])
    whole = output(stack(text))
    state, steps = stack.start(rows=2), []
    for column in range(3):
        x, state = stack.step(text.to_padded()[:, column], state)
        steps.append(output(x))
    torch.testing.assert_close(text.layout.unpad(torch.stack(steps, 1)), whole)
    swapped, _ = stack.step(torch.tensor([7, 8]), stack.select(state, torch.tensor([1, 0])))
    straight, _ = stack.step(torch.tensor([8, 7]), state)
    torch.testing.assert_close(swapped, straight.flip(0))


def test_a_classifier_is_the_same_stack_looking_both_ways() -> None:
    outline = Outline(width=8, inner=16, heads=2, encoder_layers=1)
    stack = outline.encoder(outline.embedding(9)).double().eval()
    states = stack(Ragged.from_list([[1, 2, 3], [4]]))
    changed = stack(Ragged.from_list([[1, 2, 5], [4]]))
    assert bool((states[:3] != changed[:3]).any(1).all())
    assert torch.equal(states[3], changed[3])
