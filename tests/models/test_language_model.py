"""A decoder-only language model: laws of teacher forcing, prefill and decoding steps."""

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_model, save_model
from torch import Tensor

from regard.models.build import build_language_model
from regard.models.language_model import LanguageModel
from regard.nn.ragged import Ragged
from regard.nn.tap import named_taps, recording
from regard.recipe import Bahdanau, ConvS2S, Luong, Sutskever, Transformer

VOCABULARY = 11
MECHANISMS: dict[str, dict[str, Any]] = {
    "sinusoidal": {},
    "learned, norm last": {"position": "learned", "positions": 40, "norm_first": False},
    "rotary, swiglu, rms": {"position": "rotary", "activation": "swiglu", "norm": "rms", "tied": "none"},
    "alibi, gelu_tanh": {"position": "alibi", "activation": "gelu_tanh", "scale_embedding": False},
    "no positions, bilinear": {"position": "none", "score": "bilinear", "tied": "decoder"},
    "window": {"window": 2, "score": "additive"},
    "window, alibi": {"window": 2, "position": "alibi"},
    "concatenated positions": {"position_width": 4, "tied": "embeddings"},
}
sequences = st.lists(st.lists(st.integers(0, VOCABULARY - 1), max_size=7), min_size=1, max_size=4)
few = settings(max_examples=8)


def language_model(**chosen: Any) -> LanguageModel:
    sizes = {"width": 12, "inner": 16, "heads": 2, "decoder_layers": 2}
    torch.manual_seed(1)
    model = build_language_model(Transformer(**(sizes | chosen)), VOCABULARY)
    return model.double().eval().requires_grad_(False)


MODELS = {name: language_model(**chosen) for name, chosen in MECHANISMS.items()}
every_model = pytest.mark.parametrize("model", MODELS.values(), ids=MODELS.keys())


def logits_of(model: LanguageModel, texts: list[list[int]]) -> list[Tensor]:
    """Return the logits of each text."""
    batch = Ragged.from_list(texts)
    return batch.with_values(model(batch)).to_list()


@every_model
@given(sequences)
@few
def test_batching_with_others_changes_no_logit(model: LanguageModel, texts: list[list[int]]) -> None:
    for text, together in zip(texts, logits_of(model, texts), strict=True):
        torch.testing.assert_close(logits_of(model, [text])[0], together)


@every_model
@given(sequences, st.lists(st.integers(0, VOCABULARY - 1), max_size=4))
@few
def test_a_later_token_changes_no_earlier_logit(model: LanguageModel, texts: list[list[int]], more: list[int]) -> None:
    longer = logits_of(model, [text + more for text in texts])
    for text, short, long in zip(texts, logits_of(model, texts), longer, strict=True):
        torch.testing.assert_close(long[: len(text)], short)


@every_model
@given(st.data())
@few
def test_prefill_and_steps_give_the_teacher_forced_log_probabilities(model: LanguageModel, data: st.DataObject) -> None:
    prompts, beams = data.draw(sequences), data.draw(st.integers(1, 3))
    state = model.start(Ragged.from_list(prompts), beams)
    rows = [prompt for prompt in prompts for _ in range(beams)]
    for _ in range(data.draw(st.integers(1, 4))):
        tokens = data.draw(st.lists(st.integers(0, VOCABULARY - 1), min_size=len(rows), max_size=len(rows)))
        rows = [[*row, token] for row, token in zip(rows, tokens, strict=True)]
        stepped, state = model.step(torch.tensor(tokens), state)
        forced = torch.stack([logits[-1] for logits in logits_of(model, rows)]).log_softmax(-1)
        torch.testing.assert_close(stepped, forced)
        stay = data.draw(st.lists(st.sampled_from(range(len(rows) // beams)), min_size=1, unique=True))
        parents = [
            prompt * beams + data.draw(st.integers(0, beams - 1)) for prompt in sorted(stay) for _ in range(beams)
        ]
        state, rows = model.select(state, torch.tensor(parents)), [rows[parent] for parent in parents]


@every_model
@given(sequences)
@few
def test_recording_changes_no_output_and_reaches_every_tap(model: LanguageModel, texts: list[list[int]]) -> None:
    batch = Ragged.from_list(texts)
    unwatched = model(batch)
    with recording(model, "*") as seen:
        torch.testing.assert_close(model(batch), unwatched)
    silent = {name.rpartition(".")[2] for name, passed in seen.items() if not passed and batch.tokens}
    assert silent <= {"place"}  # encodings that are not vectors have no tap
    assert seen.keys() == named_taps(model).keys()


@every_model
def test_recording_does_not_change_decoding(model: LanguageModel) -> None:
    prompts, tokens = Ragged.from_list([[1, 2, 3], [], [4]]), torch.tensor([5, 6, 7])
    unwatched, _ = model.step(tokens, model.start(prompts))
    with recording(model, "*.weights") as seen:
        watched, _ = model.step(tokens, model.start(prompts))
    torch.testing.assert_close(watched, unwatched)
    prefilled, stepped = seen["decoder.layers.0.self.weights"]
    assert prefilled.shape == (3, 2, 3, 3)
    assert stepped.shape == (3, 2, 1, 4)
    assert bool((stepped[1, :, :, :3] == 0).all())  # an empty prompt attends to its new token only


def test_a_prompt_that_leaves_frees_the_positions_it_needed() -> None:
    model = language_model(position="learned", positions=4)
    _, state = model.step(torch.tensor([1, 2]), model.start(Ragged.from_list([[1, 2, 3], []])))
    with pytest.raises(ValueError, match="a sequence of 5 tokens is longer than the 4 learned positions"):
        model.step(torch.tensor([1, 2]), state)
    state = model.select(state, torch.tensor([1]))
    for _ in range(3):
        logprobs, state = model.step(torch.tensor([2]), state)
    torch.testing.assert_close(logprobs[0], logits_of(model, [[2] * 4])[0][-1].log_softmax(-1))


def test_rows_do_not_move_between_prompts() -> None:
    model = MODELS["rotary, swiglu, rms"]
    with pytest.raises(ValueError, match="mix sentences: the 2 rows of a sentence stay together"):
        model.select(model.start(Ragged.from_list([[1], [2, 3]]), beams=2), torch.tensor([0, 2, 1, 3]))


@every_model
def test_saved_and_loaded_gives_the_same_logits_bit_for_bit(model: LanguageModel, tmp_path: Path) -> None:
    save_model(model, str(tmp_path / "model.safetensors"))
    chosen = next(chosen for name, chosen in MECHANISMS.items() if MODELS[name] is model)
    other = language_model(**chosen)
    with torch.no_grad():
        for weight in other.parameters():
            weight.zero_()
    load_model(other, str(tmp_path / "model.safetensors"))
    batch = Ragged.from_list([[1, 2, 3], [4]])
    assert torch.equal(other(batch), model(batch))


@pytest.mark.parametrize("settings", [Sutskever(), Bahdanau(), Luong(), ConvS2S()])
def test_other_families_have_no_language_model(settings: Any) -> None:
    with pytest.raises(ValueError, match="a language model is decoder-only"):
        build_language_model(settings, VOCABULARY)


def test_initial_weights_have_the_given_deviation_and_residual_writers_a_smaller_one() -> None:
    torch.manual_seed(0)
    chosen = Transformer(width=64, inner=256, heads=4, decoder_layers=8, position="learned", init_std=0.02)
    model = build_language_model(chosen, 500).requires_grad_(False)
    deviation = {name: float(weight.std()) for name, weight in model.named_parameters() if weight.ndim > 1}
    for name, measured in deviation.items():
        expected = 0.02 / 4 if name.endswith(("out.weight", "narrow.weight")) else 0.02
        assert measured == pytest.approx(expected, rel=0.05), name
    assert all(float(p.abs().max()) == 0 for name, p in model.named_parameters() if name.endswith("bias"))
