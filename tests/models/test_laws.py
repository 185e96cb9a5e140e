"""Laws that every model obeys, on ragged batches of mixed lengths."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from regard.models.build import build
from regard.models.seq2seq import Seq2Seq
from regard.nn.ragged import Ragged
from regard.nn.tap import named_taps, recording
from regard.recipe import Bahdanau, ConvS2S, Luong, Model, Sutskever, Transformer

VOCABULARY = 11
ids = st.lists(st.integers(0, VOCABULARY - 1), max_size=7)
pairs = st.lists(st.tuples(ids, ids), min_size=1, max_size=4)
Pairs = list[tuple[list[int], list[int]]]

SIZES: dict[str, Any] = {"width": 12, "inner": 16, "heads": 2, "encoder_layers": 2, "decoder_layers": 2}
TRANSFORMERS: dict[str, Model] = {
    "paper": Transformer(**SIZES, norm_first=False),
    "norm first": Transformer(**SIZES),
    "rotary, swiglu, rms": Transformer(**SIZES, position="rotary", activation="swiglu", norm="rms"),
    "alibi, gelu, scale": Transformer(**SIZES, position="alibi", activation="gelu", norm="scale", tied="decoder"),
    "learned, window, additive": Transformer(**SIZES, position="learned", window=2, score="additive", tied="none"),
    "concatenated, bilinear": Transformer(**SIZES, position_width=4, score="bilinear", tied="embeddings"),
    "narrow keys, no positions": Transformer(**SIZES, position="none", key_size=3, value_size=5, tied="outer"),
}
OTHER_FAMILIES: dict[str, Model] = {
    "sutskever": Sutskever(width=8, layers=2, tied="none"),
    "sutskever, gru, forwards, tied": Sutskever(width=8, layers=1, cell="gru", backwards=False, tied="all"),
    "bahdanau": Bahdanau(width=8, embedding=6, readout_width=5, tied="none"),
    "bahdanau, lstm, linear, tied": Bahdanau(width=8, embedding=6, cell="lstm", readout="linear", tied="all"),
    "luong": Luong(width=8, layers=2, tied="none"),
    "luong, dot, not fed, forwards": Luong(width=8, layers=2, score="dot", feeding=False, backwards=False, tied="none"),
    "luong, gru, additive": Luong(width=8, embedding=5, layers=1, cell="gru", score="additive", tied="none"),
    "luong, additive, not fed": Luong(width=8, layers=1, score="additive", feeding=False, tied="decoder"),
    "luong, local": Luong(width=8, layers=1, reach=2, tied="none"),
    "luong, local, not fed": Luong(width=8, layers=1, score="scaled", feeding=False, reach=1, tied="embeddings"),
    "convs2s": ConvS2S(width=8, encoder_layers=2, decoder_layers=2, positions=40, tied="none"),
    "convs2s, wide kernel": ConvS2S(
        width=10, embedding=6, encoder_layers=1, decoder_layers=3, kernel=5, positions=40, tied="all"
    ),
}


def built(chosen: Model) -> Seq2Seq:
    """Build a model in double precision."""
    torch.manual_seed(1)
    return build(chosen, VOCABULARY, VOCABULARY).double().eval()


MODELS = {name: built(chosen) for name, chosen in (TRANSFORMERS | OTHER_FAMILIES).items()}
every_model = pytest.mark.parametrize("model", MODELS.values(), ids=MODELS.keys())
few = settings(max_examples=8)


def batched(batch: Pairs) -> tuple[Ragged, Ragged]:
    return Ragged.from_list([source for source, _ in batch]), Ragged.from_list([target for _, target in batch])


def logits_of(model: Seq2Seq, batch: Pairs) -> list[Tensor]:
    """Return the logits of each pair."""
    source, target = batched(batch)
    return target.with_values(model(source, target)).to_list()


@every_model
@given(pairs)
@few
def test_batching_with_others_changes_no_logit(model: Seq2Seq, batch: Pairs) -> None:
    for pair, together in zip(batch, logits_of(model, batch), strict=True):
        torch.testing.assert_close(logits_of(model, [pair])[0], together)


@every_model
@given(pairs, st.permutations(range(5)))
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
    longer = [(source, target + more) for source, target in batch]
    for (_, target), short, long in zip(batch, logits_of(model, batch), logits_of(model, longer), strict=True):
        torch.testing.assert_close(long[: len(target)], short)


@every_model
@given(pairs)
@few
def test_step_by_step_gives_the_teacher_forced_log_probabilities(model: Seq2Seq, batch: Pairs) -> None:
    source, target = batched(batch)
    padded, state, steps = target.to_padded(), model.start(source), []
    for column in range(target.longest):
        log_probabilities, state = model.step(padded[:, column], state)
        steps.append(log_probabilities)
    if steps:
        stepped = target.layout.unpad(torch.stack(steps, 1))
        torch.testing.assert_close(stepped, model(source, target).log_softmax(-1))


@every_model
@given(pairs)
@few
def test_recording_changes_no_output_and_reaches_every_tap(model: Seq2Seq, batch: Pairs) -> None:
    source, target = batched(batch)
    unwatched = model(source, target)
    with recording(model, "*") as seen:
        torch.testing.assert_close(model(source, target), unwatched)
    silent = {name for name, passed in seen.items() if not passed and source.tokens and target.tokens}
    assert all(len(passed) == 1 for passed in seen.values() if passed)
    assert {name.rpartition(".")[2] for name in silent} <= {"place"}  # encodings that are not vectors have no tap
    assert seen.keys() == named_taps(model).keys()


@every_model
@given(pairs)
@few
def test_weights_are_positive_sum_to_one_and_are_zero_under_the_mask(model: Seq2Seq, batch: Pairs) -> None:
    source, target = batched(batch)
    with recording(model, "*") as seen:
        model(source, target)
    for name in (name for name, passed in seen.items() if name.endswith(".weights") and passed):
        # Local attention multiplies the weights by a Gaussian; the weights before that sum to one.
        aligned = seen.get(name.replace("weights", "aligned"), seen[name])[0]
        weight, mask = seen[name][0], seen[name.replace("weights", "mask")][0].expand_as(aligned)
        sums = aligned.sum(-1)[mask.any(-1)]
        assert bool((weight >= 0).all())
        assert bool((weight <= aligned).all())
        assert bool((aligned[~mask] == 0).all())
        torch.testing.assert_close(sums, torch.ones_like(sums))


@pytest.mark.parametrize("name", [name for name in MODELS if "sutskever" not in name])
@given(pairs)
@few
def test_attention_to_the_source_is_a_table_of_targets_by_sources(name: str, batch: Pairs) -> None:
    source, target = batched(batch)
    with recording(MODELS[name], "decoder.*.cross.weights") as seen:
        MODELS[name](source, target)
    for (weights,) in (passed for passed in seen.values() if source.tokens and target.tokens):
        assert (weights.shape[0], weights.shape[2:]) == (len(batch), (target.longest, source.longest))


@every_model
def test_one_token_alone_gives_finite_logits_and_gradients(model: Seq2Seq) -> None:
    logits = model(*batched([([3], [1])]))
    logits.sum().backward()
    given_any = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    assert given_any
    assert all(bool(tensor.isfinite().all()) for tensor in [logits, *given_any])
    model.zero_grad()


@every_model
def test_an_empty_source_or_target_is_legal_and_changes_nothing_for_the_others(model: Seq2Seq) -> None:
    full: tuple[list[int], list[int]] = ([3, 4, 5], [1, 2])
    alone = logits_of(model, [full])[0]
    empties: Pairs = [([], []), ([], [1, 7]), ([4], [])]
    for empty in empties:
        beside = logits_of(model, [empty, full, empty])
        torch.testing.assert_close(beside[1], alone)
        assert len(beside[0]) == len(empty[1])
        assert bool(beside[0].isfinite().all())


@every_model
def test_a_batch_of_empty_sequences_gives_no_logits(model: Seq2Seq) -> None:
    assert model(*batched([([], []), ([], [])])).shape == (0, VOCABULARY)


@every_model
def test_batching_with_others_changes_no_gradient(model: Seq2Seq) -> None:
    batch: Pairs = [([3, 4, 5], [1, 2]), ([], [4, 4, 1]), ([6], [2]), ([1] * 9, [7] * 9)]

    def gradients(parts: list[Pairs]) -> list[Tensor]:
        model.zero_grad()
        for part in parts:
            model(*batched(part)).square().sum().backward()
        return [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]

    together, apart = gradients([batch]), gradients([[pair] for pair in batch])
    model.zero_grad()
    assert together
    for one, other in zip(together, apart, strict=True):
        torch.testing.assert_close(one, other)
