"""Engines compute what the model they were made from computes, whatever a search does with their states."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from regard import engines
from regard.decode import LengthLimits, MixedStepper, MultiStepper, SearchOptions, SentenceOptions, search
from regard.engines.engine import Engine, ModelEngine
from regard.engines.indexed_engine import IndexedEncoder, IndexedEngine
from regard.engines.indexed_layers import IndexedDecoder
from regard.engines.parts import transformer_parts
from regard.engines.static_engine import StaticEngine
from regard.models.build import build, build_language_model
from regard.models.language_model import LanguageModel
from regard.models.seq2seq import Seq2Seq
from regard.models.transformer import Stack
from regard.nn.norm import make_norm
from regard.nn.ragged import NestedRagged, Ragged
from regard.recipe import HierarchicalTransformer, Transformer

VOCABULARY = 70
Model = Seq2Seq | LanguageModel

MECHANISMS: dict[str, dict[str, Any]] = {
    "the paper's": {"norm_first": False},
    "norm first": {"activation": "gelu"},
    "rotary, rms, swiglu": {"position": "rotary", "norm": "rms", "activation": "swiglu"},
    "alibi, scale norm": {"position": "alibi", "norm": "scale", "heads": 4, "key_size": 5, "value_size": 6},
    "learned, bilinear": {"position": "learned", "positions": 64, "score": "bilinear"},
    "rotary, bilinear, untied": {"position": "rotary", "score": "bilinear", "tied": "none"},
    "no positions, dot": {"position": "none", "score": "dot", "activation": "gelu_tanh"},
    "concatenated positions": {"position_width": 6, "tied": "embeddings"},
}
FAMILIES = ["encoder-decoder", "language model"]
mechanisms = pytest.mark.parametrize("chosen", MECHANISMS.values(), ids=MECHANISMS.keys())
families = pytest.mark.parametrize("family", FAMILIES)


def transformer(family: str = "encoder-decoder", **chosen: Any) -> Model:
    """Build a small Transformer in double precision."""
    torch.manual_seed(0)
    sizes = {"width": 16, "inner": 24, "heads": 2, "encoder_layers": 2, "decoder_layers": 2}
    recipe = Transformer(**(sizes | chosen))
    decoder_only = family == "language model"
    model = build_language_model(recipe, VOCABULARY) if decoder_only else build(recipe, VOCABULARY, VOCABULARY)
    return model.double().eval().requires_grad_(False)


def all_engines(model: nn.Module) -> list[Engine]:
    """Return every kind of engine, in double precision."""
    parts = transformer_parts(model)
    assert parts is not None
    return [
        IndexedEngine(parts, "float64"),
        StaticEngine(parts, "cpu", "float64"),
        ModelEngine(model, "cpu", "float64"),
    ]


def forced(model: Model, inputs: list[list[int]], histories: list[list[int]]) -> Tensor:
    """Return the teacher-forced log-probabilities after each history, behind its source or its prompt."""
    if isinstance(model, LanguageModel):
        tokens = Ragged.from_list([prompt + history for prompt, history in zip(inputs, histories, strict=True)])
        logits = model(tokens)
    else:
        tokens = Ragged.from_list(histories)
        logits = model(Ragged.from_list(inputs), tokens)
    last: Tensor = logits.log_softmax(-1)[tokens.offsets[1:].long() - 1]
    return last


@families
@mechanisms
def test_every_mechanism_computes_what_the_model_computes(chosen: dict[str, Any], family: str) -> None:
    model = transformer(family, **chosen)
    if chosen.get("score") == "bilinear":  # parts that a recipe cannot ask for
        model.output.bias = nn.Parameter(torch.randn(VOCABULARY, dtype=torch.float64), requires_grad=False)
        assert isinstance(model.decoder, Stack)
        model.decoder.embedding.norm = make_norm("layer", 16).double()
    inputs = Ragged.from_list([[3, 4, 5], [6], [9] * 7, [], [*range(1, 45)]])
    generator = torch.Generator().manual_seed(1)
    for engine in all_engines(model):
        state, own_state = engine.start(inputs, 2), model.start(inputs, 2)
        for _ in range(18):
            tokens = torch.randint(VOCABULARY, (10,), generator=generator)
            logprobs, state = engine.step(tokens, state)
            expected, own_state = model.step(tokens, own_state)
            torch.testing.assert_close(logprobs, expected)
            rows = torch.arange(10) // 2 * 2 + torch.randint(2, (10,), generator=generator)
            state, own_state = engine.select(state, rows), model.select(own_state, rows)


MODELS = {family: transformer(family, position="alibi") for family in FAMILIES}
ENGINES = {family: all_engines(model) for family, model in MODELS.items()}


@families
@settings(max_examples=8)
@given(st.data())
def test_sentences_that_leave_and_join_change_nothing_for_the_others(family: str, data: st.DataObject) -> None:
    beams = data.draw(st.integers(1, 3))
    sentence = st.lists(st.integers(0, VOCABULARY - 1), min_size=0, max_size=20)
    for engine in ENGINES[family]:
        batch = st.lists(sentence, min_size=1, max_size=3)
        inputs = data.draw(batch)
        state, rows = engine.start(Ragged.from_list(inputs), beams), [(s, [0]) for s in inputs for _ in range(beams)]
        for _ in range(data.draw(st.integers(1, 18))):
            logprobs, state = engine.step(torch.tensor([history[-1] for _, history in rows]), state)
            torch.testing.assert_close(logprobs, forced(MODELS[family], *map(list, zip(*rows, strict=True))))
            stay = data.draw(st.lists(st.sampled_from(range(len(rows) // beams)), min_size=1, unique=True))
            parents = [
                line * beams + data.draw(st.integers(0, beams - 1)) for line in sorted(stay) for _ in range(beams)
            ]
            state = engine.select(state, torch.tensor(parents))
            rows = [(rows[parent][0], [*rows[parent][1], data.draw(st.integers(0, 9))]) for parent in parents]
            if len(rows) < 9 and data.draw(st.booleans()):
                more = data.draw(batch)
                state = engine.join([state, engine.start(Ragged.from_list(more), beams)])
                rows += [(source, [0]) for source in more for _ in range(beams)]


@families
@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("position", ["rotary", "learned"])
def test_states_of_different_lengths_can_be_joined(family: str, number: int, position: str) -> None:
    model = transformer(family, position=position, positions=40)
    engine = all_engines(model)[number]
    tokens = torch.tensor([7, 8, 9])
    _, first = engine.step(tokens[:2], engine.start(Ragged.from_list([[1, 2, 3], [4]])))
    _, first = engine.step(tokens[:2], first)
    _, second = engine.step(tokens[2:], engine.start(Ragged.from_list([[5] * 30])))
    _, first = engine.step(tokens[:2], first)
    _, second = engine.step(tokens[2:], second)
    logprobs, _ = engine.step(tokens, engine.join([first, second]))
    histories = [[7, 7, 7, 7], [8, 8, 8, 8], [9, 9, 9]]
    torch.testing.assert_close(logprobs, forced(model, [[1, 2, 3], [4], [5] * 30], histories))


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("k", [1, 2, 7, 70])
def test_top_returns_the_greatest_log_probabilities(number: int, k: int) -> None:
    engine = all_engines(transformer())[number]
    source, tokens = Ragged.from_list([[1, 2], [3]]), torch.tensor([4, 5])
    logprobs, _ = engine.step(tokens, engine.start(source))
    best, token, _ = engine.top_k(tokens, engine.start(source), k)
    torch.testing.assert_close(best, logprobs.topk(k).values)
    torch.testing.assert_close(logprobs.gather(1, token), best)


@families
@pytest.mark.parametrize(("precision", "tolerance"), [("float32", 1e-4), ("bfloat16", 0.2), ("int8", 0.3)])
def test_lower_precisions_stay_close_to_the_model(family: str, precision: engines.Precision, tolerance: float) -> None:
    model = transformer(family, width=32, inner=64)
    engine = engines.engine(model, "cpu", precision)
    assert isinstance(engine, IndexedEngine)
    inputs = Ragged.from_list([[3, 4, 5], [6] * 12, []])
    state, own_state = engine.start(inputs, 2), model.start(inputs, 2)
    for tokens in ([1, 2, 3, 4, 1, 2], [5, 6, 7, 8, 9, 9]):
        logprobs, state = engine.step(torch.tensor(tokens), state)
        expected, own_state = model.step(torch.tensor(tokens), own_state)
        assert float((logprobs - expected).abs().max()) < tolerance
        torch.testing.assert_close(logprobs.exp().sum(-1), torch.ones(6))


@families
def test_a_model_that_no_fast_engine_supports_runs_its_own_steps(family: str) -> None:
    model = transformer(family, score="additive")
    engine = engines.engine(model, "cpu", "float64")
    assert isinstance(engine, ModelEngine)
    assert engines.engine(model, "cpu", "int8").precision == "float32"
    inputs, tokens = Ragged.from_list([[1, 2], [3]]), torch.tensor([4, 5])
    logprobs, _ = engine.step(tokens, engine.start(inputs))
    torch.testing.assert_close(logprobs, model.step(tokens, model.start(inputs))[0])


@families
def test_states_with_different_beam_widths_continue_together_as_apart(family: str) -> None:
    model = transformer(family)
    for engine in all_engines(model):
        if not isinstance(engine, MixedStepper):
            continue
        inputs, widths = [Ragged.from_list([[1, 2, 3], [4]]), Ragged.from_list([[5, 6]])], (2, 3)
        tokens = [torch.tensor([7, 8, 9, 10]), torch.tensor([11, 12, 13])]
        rows = [torch.tensor([1, 1, 2, 3]), torch.tensor([2, 0, 0])]
        apart = []
        for source, width, read, moved in zip(inputs, widths, tokens, rows, strict=True):
            _, state = engine.step(read, engine.start(source, width))
            apart.append(engine.step(read, engine.select(state, moved))[0])
        joined = engine.join([engine.start(source, width) for source, width in zip(inputs, widths, strict=True)])
        _, joined = engine.step(torch.cat(tokens), joined)
        joined = engine.select(joined, torch.cat([rows[0], rows[1] + 4]))
        together, joined = engine.step(torch.cat(tokens), joined)
        torch.testing.assert_close(together, torch.cat(apart))
        staying = engine.select(joined, torch.tensor([2, 3, 4, 5, 6]))
        assert engine.step(torch.tensor([1, 2, 3, 4, 5]), staying)[0].shape[0] == 5


@families
@pytest.mark.parametrize("number", range(3))
def test_wrong_arguments_are_refused(family: str, number: int) -> None:
    engine = all_engines(transformer(family, position="learned", positions=3))[number]
    inputs = Ragged.from_list([[1, 2], [3]])
    if not isinstance(engine, MixedStepper):
        with pytest.raises(ValueError, match=r"cannot join states with \[1, 2\] beams"):
            engine.join([engine.start(inputs), engine.start(inputs, beams=2)])
    with pytest.raises(ValueError, match="mix sentences"):
        engine.select(engine.start(inputs, beams=2), torch.tensor([0, 2, 1, 3]))
    with pytest.raises(ValueError, match="token id 70 is outside the vocabulary"):
        engine.step(torch.tensor([1, 70]), engine.start(inputs))
    with pytest.raises(ValueError, match="longer than the 3 learned positions"):
        engine.start(Ragged.from_list([[1, 2, 3, 4]]))
    state = engine.start(inputs)
    for _ in range(1 if family == "language model" else 3):
        _, state = engine.step(torch.tensor([1, 2]), state)
    with pytest.raises(ValueError, match="longer than the 3 learned positions"):
        engine.step(torch.tensor([1, 2]), state)


@pytest.mark.parametrize("number", range(3))
def test_a_prompt_that_leaves_frees_the_positions_it_needed(number: int) -> None:
    model = transformer("language model", position="learned", positions=3)
    engine = all_engines(model)[number]
    _, state = engine.step(torch.tensor([1, 2]), engine.start(Ragged.from_list([[1, 2], []])))
    state = engine.select(state, torch.tensor([1]))
    for _ in range(2):
        logprobs, state = engine.step(torch.tensor([2]), state)
    torch.testing.assert_close(logprobs, forced(model, [[]], [[2, 2, 2]]))


def test_reordering_beams_moves_no_key() -> None:
    engine = all_engines(transformer())[0]
    state = engine.start(Ragged.from_list([[1, 2], [3]]), beams=2)
    _, state = engine.step(torch.tensor([1, 2, 3, 4]), state)
    pools = state.own, state.memory.pool
    before = [table.data_ptr() for pool in pools for table in (*pool.keys, *pool.values)]
    written = [table[: state.own.taken].clone() for table in state.own.keys]
    for _ in range(3):
        state = engine.select(state, torch.tensor([1, 1, 3, 2]))
        _, state = engine.step(torch.tensor([1, 2, 3, 4]), state)
    assert [table.data_ptr() for pool in pools for table in (*pool.keys, *pool.values)] == before
    assert all(torch.equal(a, b[: a.shape[0]]) for a, b in zip(written, state.own.keys, strict=True))


@families
def test_beams_that_read_the_same_first_token_are_computed_once(family: str) -> None:
    model = transformer(family, position="rotary")
    engine = all_engines(model)[0]
    inputs = Ragged.from_list([[1, 2, 3], [4]])
    for tokens, written in (([7, 7, 8, 8], 2), ([7, 7, 8, 9], 4)):
        state, own_state = engine.start(inputs, beams=2), model.start(inputs, 2)
        before = state.own.taken
        logprobs, state = engine.step(torch.tensor(tokens), state)
        expected, own_state = model.step(torch.tensor(tokens), own_state)
        torch.testing.assert_close(logprobs, expected)
        assert state.own.taken - before == written
        logprobs, state = engine.step(torch.tensor([5, 6, 7, 8]), state)
        torch.testing.assert_close(logprobs, model.step(torch.tensor([5, 6, 7, 8]), own_state)[0])


def test_the_beams_of_a_prompt_share_its_keys() -> None:
    engine = all_engines(transformer("language model"))[0]
    assert engine.start(Ragged.from_list([[1, 2, 3], [4]]), beams=5).own.taken == 1 + 4


@families
@pytest.mark.parametrize("precision", ["float64", "float32", "bfloat16", "int8"])
def test_compiled_layers_compute_what_they_compute_in_python(family: str, precision: engines.Precision) -> None:
    parts = transformer_parts(
        transformer(family, width=32, inner=64, activation="swiglu", norm="rms", position="alibi")
    )
    assert parts is not None
    compiled, plain = IndexedEngine(parts, precision), IndexedEngine(parts, precision)
    assert isinstance(compiled.decode, torch.jit.ScriptModule)
    slopes_H = compiled.decode.slopes_H
    if isinstance(compiled.encoder, IndexedEncoder) and isinstance(plain.encoder, IndexedEncoder):
        assert all(isinstance(layer, torch.jit.ScriptModule) for layer in compiled.encoder.compiled_layers)
        plain.encoder.compiled_layers = plain.encoder.layers
    plain.decode = IndexedDecoder(plain.decoder_layers, compiled.decode.norm, compiled.decode.output, slopes_H).eval()
    inputs, tokens = Ragged.from_list([[3, 4, 5], [6] * 12]), torch.tensor([1, 2, 3, 4])
    results = [engine.step(tokens, engine.start(inputs, 2))[0] for engine in (compiled, plain)]
    assert torch.equal(*results)


@families
@pytest.mark.parametrize("beam", [1, 3])
@pytest.mark.parametrize("position", ["alibi", "rotary", "sinusoidal"])
def test_many_steps_in_a_row_find_what_the_model_finds(family: str, beam: int, position: str) -> None:
    model = transformer(family, position=position)
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(2)
    engine = all_engines(model)[1]
    assert isinstance(engine, MultiStepper)
    inputs = [[1, 2, 3], [4] * 20, [5], [6, 7] * 20, []]
    sentences = [SentenceOptions(source_length=len(tokens)) for tokens in inputs]
    limits = LengthLimits(min_ratio=1.0, max_ratio=2.0, max_extra=4)
    options = SearchOptions(begin=2, end=69, beam=beam, nbest=beam, limits=limits, banned=(0, 1))
    for order in (1, -1):  # the second time in the same workspaces
        batch = Ragged.from_list(inputs[::order])
        expected = search(model, model.start(batch, beam), sentences[::order], options)
        found = search(engine, engine.start(batch, beam), sentences[::order], options)
        for ours, theirs in zip(found, expected, strict=True):
            assert [hypothesis.tokens for hypothesis in ours] == [hypothesis.tokens for hypothesis in theirs]
            scores = [hypothesis.score for hypothesis in theirs]
            assert [hypothesis.score for hypothesis in ours] == pytest.approx(scores)


class NarrowNorm(nn.LayerNorm):
    """A norm that engines do not know."""

    def forward(self, x: Tensor) -> Tensor:
        """Halve what LayerNorm returns."""
        return super().forward(x) / 2


@families
def test_a_model_with_a_module_that_engines_do_not_know_is_decoded_by_its_own_steps(family: str) -> None:
    for replace in (_replace_norm, _replace_activation):
        model = transformer(family)
        assert transformer_parts(model) is not None
        replace(model.decoder)
        engine = engines.engine(model, "cpu", "float64")
        assert isinstance(engine, ModelEngine)
        inputs, tokens = Ragged.from_list([[3, 4, 5]]), torch.tensor([1, 2])
        expected = model.step(tokens, model.start(inputs, 2))[0]
        torch.testing.assert_close(engine.step(tokens, engine.start(inputs, 2))[0], expected)


def _replace_norm(stack: Any) -> None:
    stack.norm = NarrowNorm(16).double()


def _replace_activation(stack: Any) -> None:
    stack.layers[0].feedforward.activation = torch.tanh


def test_the_decoder_of_a_hierarchical_transformer_computes_what_the_model_computes() -> None:
    torch.manual_seed(0)
    chosen = HierarchicalTransformer(width=16, inner=24, heads=2, encoder_layers=1, decoder_layers=2)
    model = build(chosen, VOCABULARY, VOCABULARY).double().eval().requires_grad_(False)
    parts = transformer_parts(model)
    assert parts is not None
    inputs = NestedRagged.from_list([[[3, 4, 5], [6]], [], [[9] * 7, [], [1, 2], [3]]])
    fast, own_state = IndexedEngine(parts, "float64"), model.start(inputs, 2)
    first: list[list[list[int]]] = [[[3, 4, 5], [6]], []]
    second: list[list[list[int]]] = [[[9] * 7, [], [1, 2], [3]]]
    state = fast.join([fast.start(NestedRagged.from_list(dialogues), 2) for dialogues in (first, second)])
    for step in range(5):
        tokens = torch.arange(step, step + own_state.position_R.shape[0]) % VOCABULARY
        logprobs, state = fast.step(tokens, state)
        expected, own_state = model.step(tokens, own_state)
        torch.testing.assert_close(logprobs, expected)
        rows = torch.tensor([0, 0, 5, 4] if step == 1 else [1, 0, *range(2, tokens.shape[0])])
        state, own_state = fast.select(state, rows), model.select(own_state, rows)
    assert isinstance(engines.engine(model, "cpu"), IndexedEngine)
