"""Engines say what the model they were made of says, whatever the search does with them."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from regard.decode import Limits, Options, Runner, Wish, search
from regard.models import fast
from regard.models.fast.engine import Engine, OwnEngine
from regard.models.fast.indexed import IndexedEngine
from regard.models.fast.layers import Decoder
from regard.models.fast.parts import stacks_of
from regard.models.fast.static import StaticEngine
from regard.models.outline import Outline
from regard.models.seq2seq import Seq2Seq
from regard.nn.ragged import Ragged

VOCABULARY = 70

MECHANISMS: dict[str, dict[str, Any]] = {
    "the paper's": {"norm_first": False},
    "norm first": {"activation": "gelu", "output_bias": True},
    "rotary, rms, gated": {"position": "rotary", "norm": "rms", "activation": "swiglu"},
    "alibi, scale norm": {"position": "alibi", "norm": "scale", "heads": 3, "key_size": 5, "value_size": 6},
    "learned, bilinear": {"position": "learned", "positions": 64, "score": "bilinear", "embedding_norm": True},
    "rotary, bilinear, untied": {"position": "rotary", "score": "bilinear", "tied": "none"},
    "no positions, dot, window": {"position": "none", "score": "dot", "window": 2},
    "positions beside tokens": {"position_width": 6, "tied": "embeddings"},
}


def transformer(**told: Any) -> Seq2Seq:
    torch.manual_seed(0)
    sizes = {"width": 16, "inner": 24, "heads": 2, "encoder_layers": 2, "decoder_layers": 2}
    return Outline(**(sizes | told)).seq2seq(VOCABULARY, VOCABULARY).double().eval().requires_grad_(False)


def engines(model: Seq2Seq) -> list[Engine]:
    """Every engine there is, in double precision."""
    stacks = stacks_of(model)
    assert stacks is not None
    return [
        IndexedEngine(stacks, "float64"),
        StaticEngine(stacks, "cpu", "float64"),
        OwnEngine(model, "cpu", "float64"),
    ]


def forced(model: Seq2Seq, sources: list[list[int]], histories: list[list[int]]) -> Tensor:
    """What the model says after each history, teacher-forced."""
    target = Ragged.from_list(histories)
    said: Tensor = model(Ragged.from_list(sources), target).log_softmax(-1)
    return said[target.offsets[1:].long() - 1]


@pytest.mark.parametrize("told", MECHANISMS.values(), ids=MECHANISMS.keys())
def test_every_mechanism_says_what_the_model_says(told: dict[str, Any]) -> None:
    model = transformer(**told)
    sources = [[3, 4, 5], [6], [9] * 7, [], [*range(1, 45)]]
    dice = torch.Generator().manual_seed(1)
    for engine in engines(model):
        state, theirs = engine.start(Ragged.from_list(sources), 2), model.start(Ragged.from_list(sources), 2)
        for _ in range(18):
            tokens = torch.randint(VOCABULARY, (10,), generator=dice)
            said, state = engine.step(tokens, state)
            expected, theirs = model.step(tokens, theirs)
            torch.testing.assert_close(said, expected)
            rows = torch.arange(10) // 2 * 2 + torch.randint(2, (10,), generator=dice)
            state, theirs = engine.select(state, rows), model.select(theirs, rows)


@settings(max_examples=5)
@given(st.data())
def test_sentences_that_leave_and_join_change_nothing_for_the_others(data: st.DataObject) -> None:
    model = MODEL
    beams = data.draw(st.integers(1, 3))
    sentence = st.lists(st.integers(0, VOCABULARY - 1), min_size=0, max_size=20)
    for engine in ENGINES:
        batch = st.lists(sentence, min_size=1, max_size=3)
        sources = data.draw(batch)
        state, rows = engine.start(Ragged.from_list(sources), beams), [(s, [0]) for s in sources for _ in range(beams)]
        for _ in range(data.draw(st.integers(1, 18))):
            said, state = engine.step(torch.tensor([history[-1] for _, history in rows]), state)
            torch.testing.assert_close(said, forced(model, *map(list, zip(*rows, strict=True))))
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


MODEL = transformer(position="alibi")
ENGINES = engines(MODEL)


@pytest.mark.parametrize("number", range(3))
def test_searches_that_have_come_differently_far_can_be_one(number: int) -> None:
    engine = engines(transformer(position="rotary"))[number]
    first, second = Ragged.from_list([[1, 2, 3], [4]]), Ragged.from_list([[5] * 30])
    tokens = torch.tensor([7, 8, 9])
    _, one = engine.step(tokens[:2], engine.start(first))
    _, one = engine.step(tokens[:2], one)
    _, other = engine.step(tokens[2:], engine.start(second))
    alone, one = engine.step(tokens[:2], one)
    beside, other = engine.step(tokens[2:], other)
    both = engine.join([one, other])
    said, _ = engine.step(tokens, both)
    model = transformer(position="rotary")
    histories = [[7, 7, 7, 7], [8, 8, 8, 8], [9, 9, 9]]
    torch.testing.assert_close(said, forced(model, [[1, 2, 3], [4], [5] * 30], histories))
    assert alone.shape == (2, VOCABULARY)
    assert beside.shape == (1, VOCABULARY)


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("k", [1, 2, 7, 70])
def test_the_best_few_are_those_of_all(number: int, k: int) -> None:
    engine = engines(transformer())[number]
    source, tokens = Ragged.from_list([[1, 2], [3]]), torch.tensor([4, 5])
    said, _ = engine.step(tokens, engine.start(source))
    best, token, _ = engine.top(tokens, engine.start(source), k)
    torch.testing.assert_close(best, said.topk(k).values)
    torch.testing.assert_close(said.gather(1, token), best)


@pytest.mark.parametrize(("precision", "near"), [("float32", 1e-4), ("bfloat16", 0.2), ("int8", 0.3)])
def test_lower_precisions_stay_near_the_model(precision: fast.Precision, near: float) -> None:
    model = transformer(width=32, inner=64)
    engine = fast.engine(model, "cpu", precision)
    source = Ragged.from_list([[3, 4, 5], [6] * 12])
    state, theirs = engine.start(source, 2), model.start(source, 2)
    for tokens in ([1, 2, 3, 4], [5, 6, 7, 8]):
        said, state = engine.step(torch.tensor(tokens), state)
        expected, theirs = model.step(torch.tensor(tokens), theirs)
        assert isinstance(engine, IndexedEngine)
        assert float((said - expected).abs().max()) < near
        torch.testing.assert_close(said.exp().sum(-1), torch.ones(4))


def test_what_no_engine_knows_is_left_to_the_model() -> None:
    model = transformer(score="additive")
    engine = fast.engine(model, "cpu", "float64")
    assert isinstance(engine, OwnEngine)
    assert fast.engine(model, "cpu", "int8").precision == "float32"
    source, tokens = Ragged.from_list([[1, 2], [3]]), torch.tensor([4, 5])
    said, _ = engine.step(tokens, engine.start(source))
    torch.testing.assert_close(said, model.step(tokens, model.start(source))[0])


@pytest.mark.parametrize("number", range(3))
def test_what_does_not_fit_is_refused(number: int) -> None:
    engine = engines(transformer(position="learned", positions=3))[number]
    source = Ragged.from_list([[1, 2], [3]])
    with pytest.raises(ValueError, match=r"\[1, 2\] rows a sentence cannot be one"):
        engine.join([engine.start(source), engine.start(source, beams=2)])
    with pytest.raises(ValueError, match="mix sentences"):
        engine.select(engine.start(source, beams=2), torch.tensor([0, 2, 1, 3]))
    with pytest.raises(ValueError, match="token id 70 is outside the vocabulary"):
        engine.step(torch.tensor([1, 70]), engine.start(source))
    with pytest.raises(ValueError, match="longer than the 3 learned positions"):
        engine.start(Ragged.from_list([[1, 2, 3, 4]]))
    state = engine.start(source)
    for _ in range(3):
        _, state = engine.step(torch.tensor([1, 2]), state)
    with pytest.raises(ValueError, match="longer than the 3 learned positions"):
        engine.step(torch.tensor([1, 2]), state)


def test_beams_exchange_numbers_and_no_key_moves() -> None:
    engine = engines(transformer())[0]
    state = engine.start(Ragged.from_list([[1, 2], [3]]), beams=2)
    _, state = engine.step(torch.tensor([1, 2, 3, 4]), state)
    before = [table.data_ptr() for pool in (state.own, state.memory) for table in (*pool.keys, *pool.values)]
    written = [table[: state.own.taken].clone() for table in state.own.keys]
    for _ in range(3):
        state = engine.select(state, torch.tensor([1, 1, 3, 2]))
        _, state = engine.step(torch.tensor([1, 2, 3, 4]), state)
    assert [table.data_ptr() for pool in (state.own, state.memory) for table in (*pool.keys, *pool.values)] == before
    assert all(torch.equal(a, b[: a.shape[0]]) for a, b in zip(written, state.own.keys, strict=True))


def test_where_all_beams_of_a_sentence_begin_alike_one_is_computed_for_all() -> None:
    model = transformer(position="rotary")
    engine = engines(model)[0]
    source = Ragged.from_list([[1, 2, 3], [4]])
    for tokens, written in (([7, 7, 8, 8], 2), ([7, 7, 8, 9], 4)):
        state, theirs = engine.start(source, beams=2), model.start(source, 2)
        before = state.own.taken
        said, state = engine.step(torch.tensor(tokens), state)
        expected, theirs = model.step(torch.tensor(tokens), theirs)
        torch.testing.assert_close(said, expected)
        assert state.own.taken - before == written
        said, state = engine.step(torch.tensor([5, 6, 7, 8]), state)
        torch.testing.assert_close(said, model.step(torch.tensor([5, 6, 7, 8]), theirs)[0])


@pytest.mark.parametrize("precision", ["float64", "float32", "bfloat16", "int8"])
def test_layers_are_compiled_and_say_what_they_say_as_python(precision: fast.Precision) -> None:
    stacks = stacks_of(transformer(width=32, inner=64, activation="swiglu", norm="rms", position="alibi"))
    assert stacks is not None
    compiled, plain = IndexedEngine(stacks, precision), IndexedEngine(stacks, precision)
    assert isinstance(compiled.decode, torch.jit.ScriptModule)
    assert all(isinstance(each, torch.jit.ScriptModule) for each in compiled.encoder_steps)
    slopes_H = compiled.decode.slopes_H
    plain.encoder_steps = plain.encoder_layers
    plain.decode = Decoder(plain.decoder_layers, compiled.decode.norm, compiled.decode.output, slopes_H).eval()
    source, tokens = Ragged.from_list([[3, 4, 5], [6] * 12]), torch.tensor([1, 2, 3, 4])
    (one, _), (other, _) = (each.step(tokens, each.start(source, 2)) for each in (compiled, plain))
    assert torch.equal(one, other)


@pytest.mark.parametrize("beam", [1, 3])
@pytest.mark.parametrize("position", ["alibi", "rotary", "sinusoidal"])
def test_a_search_of_many_steps_at_a_time_finds_what_the_model_finds(beam: int, position: str) -> None:
    model = transformer(position=position)
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(2)
    engine = engines(model)[1]
    assert isinstance(engine, Runner)
    sources = [[1, 2, 3], [4] * 20, [5], [6, 7] * 20, []]
    wishes = [Wish(source=len(source)) for source in sources]
    limits = Limits(least_per_source=1.0, most_per_source=2.0, spare=4)
    options = Options(2, 69, beam=beam, nbest=beam, limits=limits, banned=(0, 1))
    for order in (1, -1):  # the second time on the same desks
        chosen = Ragged.from_list(sources[::order])
        expected = search(model, model.start(chosen, beam), wishes[::order], options)
        found = search(engine, engine.start(chosen, beam), wishes[::order], options)
        for ours, theirs in zip(found, expected, strict=True):
            assert [each.tokens for each in ours] == [each.tokens for each in theirs]
            assert [each.score for each in ours] == pytest.approx([each.score for each in theirs])
