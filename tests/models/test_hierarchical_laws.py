"""Laws of the families that read dialogues of turns, on batches of dialogues of any number of turns of any length."""

from itertools import accumulate, chain, pairwise
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from regard import decode
from regard.models.build import build, build_encoder, build_language_model, has_dynamic_shapes
from regard.models.hierarchical import HierarchicalTransformerEncoder
from regard.models.recurrent.state import RecurrentState
from regard.models.seq2seq import Seq2Seq
from regard.nn.cross_entropy import smoothed_cross_entropy
from regard.nn.ragged import NestedRagged, Ragged
from regard.nn.tap import recording, replacing
from regard.recipe import HierarchicalTransformer, Hran, Model

VOCABULARY = 11
Dialogue = list[list[int]]
Pairs = list[tuple[Dialogue, list[int]]]
ids = st.lists(st.integers(0, VOCABULARY - 1), max_size=4)
pairs = st.lists(st.tuples(st.lists(ids, max_size=4), ids), min_size=1, max_size=4)
few = settings(max_examples=8)

SIZES: dict[str, Any] = {"width": 12, "inner": 16, "heads": 2, "encoder_layers": 1, "decoder_layers": 1}
SETTINGS: dict[str, Model] = {
    "hran": Hran(width=8, embedding=6, tied="all"),
    "hran, lstm": Hran(width=8, cell="lstm", tied="none"),
    "hierarchical": HierarchicalTransformer(**SIZES, turn_layers=2),
    "hierarchical, learned, norm last": HierarchicalTransformer(**SIZES, position="learned", norm_first=False),
    "hierarchical, rotary, window": HierarchicalTransformer(**SIZES, position="rotary", window=1, init_std=0.5),
}


def built(chosen: Model) -> Seq2Seq:
    """Build a model in double precision."""
    torch.manual_seed(1)
    return build(chosen, VOCABULARY, VOCABULARY).double().eval()


MODELS = {name: built(chosen) for name, chosen in SETTINGS.items()}
every_model = pytest.mark.parametrize("model", MODELS.values(), ids=MODELS.keys())
PAIRS: Pairs = [([[3, 4, 5], [6]], [2, 4]), ([[1, 2]], [2]), ([], [2, 5, 6]), ([[7], [8, 9, 1, 2], [3, 3]], [2, 7, 1])]
DIALOGUES = NestedRagged.from_list([dialogue for dialogue, _ in PAIRS])


def batched(batch: Pairs) -> tuple[NestedRagged, Ragged]:
    return NestedRagged.from_list([dialogue for dialogue, _ in batch]), Ragged.from_list(
        [target for _, target in batch]
    )


def logits_of(model: Seq2Seq, batch: Pairs) -> list[Tensor]:
    """Return the logits of each pair."""
    dialogues, target = batched(batch)
    return target.with_values(model(dialogues, target)).to_list()


@every_model
@given(pairs)
@few
def test_batching_with_other_dialogues_changes_no_logit(model: Seq2Seq, batch: Pairs) -> None:
    for pair, together in zip(batch, logits_of(model, batch), strict=True):
        torch.testing.assert_close(logits_of(model, [pair])[0], together)


@every_model
@given(pairs, st.permutations(range(4)))
@few
def test_permuting_the_batch_permutes_the_output(model: Seq2Seq, batch: Pairs, ranks: list[int]) -> None:
    order = sorted(range(len(batch)), key=ranks.__getitem__)
    straight = logits_of(model, batch)
    for number, shuffled in zip(order, logits_of(model, [batch[i] for i in order]), strict=True):
        torch.testing.assert_close(shuffled, straight[number])


@every_model
@given(pairs, ids)
@few
def test_a_later_target_token_changes_no_earlier_logit(model: Seq2Seq, batch: Pairs, more: list[int]) -> None:
    longer = [(dialogue, target + more) for dialogue, target in batch]
    for (_, target), short, long in zip(batch, logits_of(model, batch), logits_of(model, longer), strict=True):
        torch.testing.assert_close(long[: len(target)], short)


@every_model
@given(pairs)
@few
def test_a_turn_without_tokens_changes_nothing(model: Seq2Seq, batch: Pairs) -> None:
    spread = [([[], *chain.from_iterable((turn, []) for turn in dialogue)], target) for dialogue, target in batch]
    torch.testing.assert_close(logits_of(model, spread), logits_of(model, batch))


@every_model
@given(pairs)
@few
def test_decoding_steps_give_the_teacher_forced_log_probabilities(model: Seq2Seq, batch: Pairs) -> None:
    dialogues, target = batched(batch)
    padded, state, steps = target.to_padded(), model.start(dialogues), []
    for column in range(target.longest):
        logprobs, state = model.step(padded[:, column], state)
        steps.append(logprobs)
    if steps:
        stepped = target.layout.unpad(torch.stack(steps, 1))
        torch.testing.assert_close(stepped, model(dialogues, target).log_softmax(-1))


@every_model
@given(pairs)
@few
def test_recording_changes_no_output(model: Seq2Seq, batch: Pairs) -> None:
    dialogues, target = batched(batch)
    unwatched = model(dialogues, target)
    with recording(model, "*") as seen:
        torch.testing.assert_close(model(dialogues, target), unwatched)
    assert all(len(passed) <= 1 for passed in seen.values())


@pytest.mark.parametrize("name", ["hran", "hran, lstm"])
@given(pairs)
@few
def test_weights_of_turns_and_of_the_words_in_each_turn_sum_to_one(name: str, batch: Pairs) -> None:
    dialogues, target = batched(batch)
    with recording(MODELS[name], "decoder.cell.*.weights") as seen:
        MODELS[name](dialogues, target)
    if not (dialogues.tokens.tokens and target.tokens):
        return
    (turns,), (words,) = seen["decoder.cell.turns.weights"], seen["decoder.cell.words.weights"]
    assert turns.shape[:3] == words.shape[:3] == (len(batch), 1, target.longest)
    assert words.shape[3] == dialogues.tokens.longest
    for row, (dialogue, reply) in enumerate(batch):
        sizes = [len(turn) for turn in dialogue if turn]
        bounds = list(accumulate(sizes, initial=0))
        expected_turns, expected_words = torch.zeros_like(turns[row, 0]), torch.zeros_like(words[row, 0])
        steps = slice(len(reply)) if sizes else slice(0)
        by_turn = [words[row, 0, steps, begin:end].sum(-1) for begin, end in pairwise(bounds)]
        expected_turns[steps, : len(sizes)], expected_words[steps, : bounds[-1]] = 1, 1
        torch.testing.assert_close(turns[row, 0].sum(-1), expected_turns.amax(-1))
        assert all(bool(torch.isclose(sums, torch.ones_like(sums)).all()) for sums in by_turn)
        assert bool((turns[row] >= 0).all())
        assert bool((words[row] >= 0).all())
        assert not bool((turns[row, 0] * (1 - expected_turns)).any())
        assert not bool((words[row, 0] * (1 - expected_words)).any())


def test_replaced_weights_of_words_act_on_every_turn() -> None:
    model, (dialogues, target) = MODELS["hran"], batched(PAIRS)
    words, turns = "decoder.cell.words.weights", "decoder.cell.turns.weights"
    with recording(model, "decoder.cell.*.weights") as seen:
        unchanged = model(dialogues, target)
    steps = {name: iter(torch.split(seen[name][0], 1, 2)) for name in (words, turns)}
    with replacing(model, turns, lambda name, _: next(steps[name])):  # what was recorded goes back in
        torch.testing.assert_close(model(dialogues, target), unchanged)
    with replacing(model, words, lambda _, weights: torch.zeros_like(weights)):
        emptied = target.with_values(model(dialogues, target)).to_list()
    other = [([[1] * len(turn) for turn in dialogue], reply) for dialogue, reply in PAIRS]
    with replacing(model, words, lambda _, weights: torch.zeros_like(weights)):
        # Without weights, words enter by the last turn's final state alone, from which the decoder starts.
        torch.testing.assert_close(logits_of(model, [other[2]])[0], emptied[2])
        changed = logits_of(model, [([[1, 1], *PAIRS[3][0]], PAIRS[3][1])])
        same = logits_of(model, [([[5, 6], *PAIRS[3][0]], PAIRS[3][1])])
    torch.testing.assert_close(changed, same)


@every_model
def test_batching_with_others_changes_no_gradient(model: Seq2Seq) -> None:
    def gradients(parts: list[Pairs]) -> list[Tensor]:
        model.zero_grad()
        for part in parts:
            model(*batched(part)).square().sum().backward()
        return [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]

    together, apart = gradients([PAIRS]), gradients([[pair] for pair in PAIRS])
    model.zero_grad()
    assert len(together) == len(list(model.parameters()))
    torch.testing.assert_close(together, apart)


@every_model
def test_a_batch_of_empty_dialogues_is_legal(model: Seq2Seq) -> None:
    empty: Pairs = [([], [1]), ([[], []], [1, 2])]
    torch.testing.assert_close(logits_of(model, empty)[1], logits_of(model, [*empty, *PAIRS])[1])
    assert model(*batched([([], []), ([], [])])).shape == (0, VOCABULARY)


@every_model
def test_reordered_beams_have_the_log_probabilities_of_their_histories(model: Seq2Seq) -> None:
    torch.manual_seed(0)
    state, count = model.start(DIALOGUES, beams=2), len(PAIRS)
    histories: list[list[int]] = [[] for _ in range(2 * count)]
    sources = [number for number in range(count) for _ in range(2)]
    # Beams are reordered, then the first and the third dialogue leave.
    for rows in ([1, 1, 2, 3, 5, 4, 6, 6], [3, 2, 7, 6], [0, 1, 2, 3]):
        tokens = torch.randint(VOCABULARY, (len(histories),))
        logprobs, state = model.step(tokens, state)
        histories = [[*history, int(token)] for history, token in zip(histories, tokens, strict=True)]
        target = Ragged.from_list(histories)
        forced = model(NestedRagged.from_list([PAIRS[number][0] for number in sources]), target).log_softmax(-1)
        torch.testing.assert_close(logprobs, forced[target.offsets[1:].long() - 1])
        state = model.select(state, torch.tensor(rows))
        histories, sources = [histories[row] for row in rows], [sources[row] for row in rows]


@every_model
def test_a_beam_of_one_is_greedy_search(model: Seq2Seq) -> None:
    options = decode.SearchOptions(begin=2, end=3, beam=1, limits=decode.LengthLimits(0, 5))
    with torch.no_grad():
        found = decode.search(model, model.start(DIALOGUES), [decode.SentenceOptions()] * len(PAIRS), options)
    for (dialogue, _), (hypothesis, *_) in zip(PAIRS, found, strict=True):
        tokens = [2]
        while len(tokens) <= 5 and tokens[-1] != 3:
            tokens.append(int(model(NestedRagged.from_list([dialogue]), Ragged.from_list([tokens]))[-1].argmax()))
        assert list(hypothesis.tokens) == [token for token in tokens[1:] if token != 3]


@every_model
def test_the_operations_of_a_pass_are_those_torch_counts(model: Seq2Seq) -> None:
    def counted(sizes: list[int], length: int) -> int:
        dialogue = NestedRagged.from_list([[[1] * size for size in sizes]])
        with recording(model, "*.weights"), FlopCounterMode(display=False) as counter:
            model(dialogue, Ragged.from_list([[2] * length]))
        return int(counter.get_total_flops())

    # Turns of one length need no padding.
    assert model.forward_flops([[3, 3, 3]], [5]) == counted([3, 3, 3], 5)
    assert model.forward_flops([[4]], [2]) == counted([4], 2)
    apart = model.forward_flops([[3, 3, 3]], [5]) + model.forward_flops([[4]], [2])
    assert model.forward_flops([[3, 3, 3], [4]], [5, 2]) == apart


@every_model
def test_models_of_dialogues_run_eagerly(model: Seq2Seq) -> None:
    assert has_dynamic_shapes(model)


def test_hran_computes_what_it_needs_of_a_dialogue_once() -> None:
    model = MODELS["hran"]
    state = model.start(DIALOGUES, beams=2)
    _, after = model.step(torch.zeros(8, dtype=torch.int64), state)
    after = model.select(after, torch.tensor([1, 0, 2, 3, 4, 5, 6, 7]))
    assert isinstance(state, RecurrentState)
    assert after.cache is state.cache


def test_the_last_turn_has_the_same_position_in_every_dialogue() -> None:
    encoder = MODELS["hierarchical"].encoder
    assert isinstance(encoder, HierarchicalTransformerEncoder)
    with recording(encoder, "place") as seen:
        encoder.encode(NestedRagged.from_list([[[1], [2], [3]], [[4]], [[5], [6]]]))
    (place,) = seen["place"]
    for row in (3, 5):
        torch.testing.assert_close(place[row], place[2])
    torch.testing.assert_close(place[4], place[1])
    assert not torch.equal(place[0], place[1])


def test_more_turns_than_learned_positions_are_an_error() -> None:
    model = build(HierarchicalTransformer(**SIZES, position="learned", positions=3), VOCABULARY, VOCABULARY)
    with pytest.raises(ValueError, match="a dialogue of 4 turns is longer than the 3 learned positions"):
        model.encode(NestedRagged.from_list([[[1], [2], [3], [4]]]))


@pytest.mark.parametrize("chosen", [SETTINGS["hran"], SETTINGS["hierarchical"]], ids=["hran", "hierarchical"])
def test_the_families_of_dialogues_are_no_encoders_of_texts(chosen: Model) -> None:
    with pytest.raises(ValueError, match="has no encoder of its own"):
        build_encoder(chosen, VOCABULARY)
    with pytest.raises(ValueError, match="a language model is decoder-only"):
        build_language_model(chosen, VOCABULARY)


LEARNING = {
    "hran": Hran(width=32, dropout=0.0),
    "hierarchical": HierarchicalTransformer(
        width=32, inner=64, heads=2, encoder_layers=1, turn_layers=1, decoder_layers=2, dropout=0.0
    ),
}


def questions(number: int) -> tuple[NestedRagged, Ragged, Tensor]:
    """Draw dialogues whose last turn names an earlier turn, counted back from it, of which the reply is the word."""
    dialogues, labels = [], []
    for turns in torch.randint(2, 5, (number,)).tolist():
        words, back = torch.randint(7, 13, (turns,)).tolist(), int(torch.randint(1, turns, ()))
        dialogues.append([*([3, word] for word in words[:-1]), [3, 3 + back]])
        labels.append(words[-1 - back])
    return NestedRagged.from_list(dialogues), Ragged.from_list([[1]] * number), torch.tensor(labels)


@pytest.mark.parametrize("chosen", LEARNING.values(), ids=LEARNING.keys())
def test_a_family_learns_to_reply_with_the_word_of_an_earlier_turn(chosen: Model) -> None:
    torch.manual_seed(1)
    model = build(chosen, 13, 13).train()
    optimiser = torch.optim.Adam(model.parameters())
    for step in range(800):
        optimiser.param_groups[0]["lr"] = 5e-3 * min((step + 1) / 50, (50 / (step + 1)) ** 0.5)
        dialogues, start, labels = questions(64)
        loss = smoothed_cross_entropy(model(dialogues, start), labels) / 64
        optimiser.zero_grad()
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        if loss.item() < 0.01:
            break
    dialogues, start, labels = questions(500)
    assert float((model.eval()(dialogues, start).argmax(-1) == labels).double().mean()) >= 0.98
