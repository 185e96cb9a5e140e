"""Explore a decoder-only language model: a prompt, its continuation, and causal self-attention."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.explore.asking import Frame, ask, fault, one, result, tables, target_ids

import regard
from regard.data.phrasebook import lectures
from regard.explore import Explorer, inspect, model_info
from regard.explore.adapters import MAX_CONTINUATION, make_adapter
from regard.explore.figure_data import FigureOptions
from regard.explore.figures import KINDS, figure
from regard.models.build import build_language_model
from regard.nn.ragged import Ragged
from regard.plot import render
from regard.predict import TextGenerator
from regard.recipe import Transformer, parse
from regard.text import END, START, Tokenizers

PROMPT = "I can go"
SETTINGS: dict[str, dict[str, Any]] = {
    "sinusoidal": {},
    "learned": {"position": "learned", "positions": 16, "norm_first": False},
    "rotary": {"position": "rotary"},
    "alibi": {"position": "alibi", "score": "additive"},
}
WINDOW = 16
ZERO = {"op": "ablate", "part": "decoder", "layer": 0, "heads": [1]}
CHANGES: dict[str, dict[str, Any]] = {
    "zero": {**ZERO, "how": "zero"},
    "mean": {**ZERO, "how": "mean"},
    "uniform": {**ZERO, "how": "uniform"},
    "keep": {"op": "keep", "part": "decoder", "layer": 1, "heads": [0]},
    "row of the prompt": {"op": "row", "part": "decoder", "layer": 0, "head": 0, "query": 1, "weights": [0.0, 1.0]},
    "row of the continuation": {
        **{"op": "row", "part": "decoder", "layer": 0, "head": 0, "query": 6},
        "weights": [0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 1.0],
    },
}
model = pytest.mark.parametrize("model", SETTINGS)


@pytest.fixture(scope="session")
def generators(memorised: Path) -> dict[str, TextGenerator]:
    """Build an untrained language model of each kind, in double precision, with large and thus distinct weights."""
    tokenizer, built = Tokenizers.load(memorised)["source"], {}
    for seed, (name, settings) in enumerate(SETTINGS.items()):
        torch.manual_seed(seed)
        options = {"width": 16, "inner": 24, "heads": 2, "decoder_layers": 2, "dropout": 0.0, **settings}
        language_model = build_language_model(Transformer(**options), len(tokenizer)).double().eval()
        with torch.no_grad():
            for parameter in language_model.parameters():
                parameter.mul_(1.5)
        built[name] = TextGenerator(language_model, tokenizer, window=WINDOW if name == "learned" else None)
    return built


@pytest.fixture
def explorer(generators: dict[str, TextGenerator]) -> Explorer:
    return Explorer(generators)


def read(explorer: Explorer, model: str, text: str = PROMPT, **options: Any) -> list[Frame]:
    return ask(explorer, "read", model=model, text=text, **options)


def prompt_ids(generators: dict[str, TextGenerator], text: str = PROMPT) -> list[int]:
    return generators["rotary"].tokenizer.encode(text)


@model
def test_a_prompt_is_continued_as_the_generator_continues_it(
    explorer: Explorer, generators: dict[str, TextGenerator], model: str
) -> None:
    message = result(read(explorer, model))
    ids = prompt_ids(generators)
    limit = WINDOW - 1 - len(ids) if model == "learned" else MAX_CONTINUATION
    expected = generators[model](PROMPT, beam=1, max_tokens=limit)
    pieces = [token["piece"] for token in message["target"]]
    assert pieces[: message["prompt"]] == [generators[model].tokenizer.piece(token) for token in ids]
    assert [piece for piece in pieces[message["prompt"] :] if piece != "</s>"] == list(expected.tokens)
    assert message["text"].startswith(PROMPT)
    assert message["alignment"] is None
    kinds = [frame[0]["kind"] for frame in read(explorer, model)]
    assert kinds[0] == "tokens"
    assert kinds[-1] == "heads"


@model
def test_scores_and_candidates_are_those_of_one_pass_over_the_text(
    explorer: Explorer, generators: dict[str, TextGenerator], model: str
) -> None:
    message = result(read(explorer, model))
    labels = [token["id"] for token in message["target"]]
    with torch.no_grad():
        logprobs = generators[model].model(Ragged.from_list([[START, *labels[:-1]]])).log_softmax(-1)
    expected = [float(logprobs[position, label]) for position, label in enumerate(labels)]
    assert message["logprobs"] == pytest.approx(expected)
    assert [tokens[0]["id"] for tokens in message["candidates"]] == logprobs.argmax(-1).tolist()


@model
def test_self_attention_is_causal_and_the_only_attention(explorer: Explorer, model: str) -> None:
    frames = read(explorer, model)
    shown = tables(frames)
    tokens = len(result(frames)["target"])
    assert list(shown) == [("decoder", 0), ("decoder", 1)]
    for table in shown.values():
        assert table.shape == (2, tokens, tokens)
        assert not np.triu(table, 1).any()
    query = {"part": "decoder", "layer": 1, "head": 1, "query": tokens - 1}
    _, arrays = one(explorer, "row", model=model, text=PROMPT, target_ids=target_ids(frames), **query)
    assert arrays["weights"].sum() == pytest.approx(1.0, abs=1e-6)


def test_a_language_model_is_described_without_encoder_and_asked_by_its_own_field(explorer: Explorer) -> None:
    (described, *_) = one(explorer, "models")[0]["models"]
    assert (described["task"], described["input"]) == ("language_model", "text")
    assert described["parts"] == [{"part": "decoder", "layers": 2, "heads": 2}]
    assert "does not read 'source'; give its input as 'text'" in fault(explorer, {"kind": "read", "source": PROMPT})
    assert "no 'cross' attention; it has: decoder" in fault(
        explorer,
        {"kind": "row", "text": PROMPT, "target_ids": [5], "part": "cross", "layer": 0, "head": 0, "query": 0},
    )
    blocked = {"kind": "read", "text": PROMPT, "changes": [{"op": "block", "tokens": [0]}]}
    assert "this model has no cross-attention" in fault(explorer, blocked)


@pytest.mark.parametrize("change", CHANGES)
@model
def test_a_changed_model_is_searched_with_the_change(explorer: Explorer, model: str, change: str) -> None:
    plain, changed = result(read(explorer, model)), result(read(explorer, model, changes=[CHANGES[change]]))
    assert changed["logprobs"] != plain["logprobs"]
    generated = zip(changed["target"], changed["candidates"], strict=True)
    for position, (token, candidates) in enumerate(generated):
        if position >= changed["prompt"]:
            best = next(candidate["id"] for candidate in candidates if candidate["id"] not in (0, START))
            assert token["id"] == best


def test_the_unchanged_continuation_is_scored_under_a_change(explorer: Explorer) -> None:
    plain = read(explorer, "rotary")
    changed = result(read(explorer, "rotary", changes=[CHANGES["zero"]], baseline=target_ids(plain)))
    forced = result(read(explorer, "rotary", changes=[CHANGES["zero"]], target_ids=target_ids(plain)))
    assert changed["baseline"]["logprobs"] == pytest.approx(forced["logprobs"])


@model
def test_the_tree_of_a_beam_search_starts_after_the_prompt(
    explorer: Explorer, generators: dict[str, TextGenerator], model: str
) -> None:
    message, _ = one(explorer, "beam", model=model, text=PROMPT, beam=3)
    ids = prompt_ids(generators)
    limit = WINDOW - 1 - len(ids) if model == "learned" else MAX_CONTINUATION
    expected = generators[model](PROMPT, beam=3, max_tokens=limit)
    nodes = [message["nodes"][index] for index in message["best"]]
    assert message["prompt"] == ids
    assert [node["piece"] for node in nodes if node["id"] != END] == list(expected.tokens)
    assert sum(node["logprob"] for node in nodes) == pytest.approx(expected.logprob)
    assert nodes[-1]["fate"] == "ended"
    assert len(nodes) <= limit
    best = [*message["prompt"], *(node["id"] for node in nodes)]
    shown = result(read(explorer, model, target_ids=best))
    assert shown["text"] == message["finished"][0]["text"]


@model
def test_the_computation_of_a_head_masks_later_tokens(explorer: Explorer, model: str) -> None:
    ids = target_ids(read(explorer, model))
    message, arrays = one(
        explorer, "maths", model=model, text=PROMPT, target_ids=ids, part="decoder", layer=1, head=0, query=3
    )
    stages = [stage["name"] for stage in message["stages"]]
    assert stages[0] == "embedding"
    assert stages[-1] == "normed"
    assert (message["keys"][0]["piece"], len(message["keys"])) == ("<s>", len(ids))
    assert arrays["mask"].tolist() == [0] * 4 + [1] * (len(ids) - 4)
    scores = arrays["scores"][:4].astype(np.float64)
    raised = np.exp(scores - scores.max())
    np.testing.assert_allclose(arrays["weights"][:4], raised / raised.sum(), rtol=1e-4)
    np.testing.assert_allclose(arrays["mixed"], arrays["weights"] @ arrays["v"], rtol=1e-4, atol=1e-6)


@model
def test_positions_are_those_of_the_model(explorer: Explorer, model: str) -> None:
    message, arrays = one(explorer, "positions", model=model, count=20)
    assert message["kind_of_model"] == model
    assert ("learned" in arrays) == (model == "learned")


def test_a_forced_token_continues_the_text(explorer: Explorer, generators: dict[str, TextGenerator]) -> None:
    plain = result(read(explorer, "rotary"))
    prompt, other = plain["prompt"], plain["candidates"][plain["prompt"]][1]["id"]
    forced = result(read(explorer, "rotary", prefix=[*prompt_ids(generators), other]))
    assert [token["id"] for token in forced["target"]][: prompt + 1] == [*prompt_ids(generators), other]
    assert forced["prompt"] == prompt
    # A token of the prompt can be replaced, too.
    ids = [prompt_ids(generators)[0], other]
    replaced = result(read(explorer, "rotary", prefix=ids))
    assert [token["id"] for token in replaced["target"]][:2] == ids
    assert replaced["prompt"] == 1


def test_a_given_continuation_is_scored_without_an_end(
    explorer: Explorer, generators: dict[str, TextGenerator]
) -> None:
    message = result(read(explorer, "rotary", target="home"))
    ids = [*prompt_ids(generators), *prompt_ids(generators, "home")]
    assert [token["id"] for token in message["target"]] == ids
    inspection = inspect(generators["rotary"], PROMPT, "home")
    assert inspection.decoded.logprobs == pytest.approx(message["logprobs"])
    assert inspection.weights["decoder", 0].shape == (2, len(ids), len(ids))


def test_prompt_and_continuation_stay_within_the_context(explorer: Explorer) -> None:
    long = "I can go alone, it is late, I can go alone, it is late"
    assert f"at most {WINDOW - 2} are shown" in fault(explorer, {"kind": "read", "model": "learned", "text": long})
    frames = read(explorer, "learned")
    assert len(target_ids(frames)) <= WINDOW
    assert "longer than the" in fault(
        explorer, {"kind": "read", "model": "learned", "text": PROMPT, "target_ids": [5] * WINDOW}
    )


@pytest.mark.parametrize("kind", KINDS)
def test_every_figure_is_drawn(generators: dict[str, TextGenerator], kind: str) -> None:
    drawn = figure(generators["learned"], PROMPT, kind, beam=2)
    assert render(drawn, "svg").startswith(b"<?xml")


def test_a_figure_shows_self_attention_by_default(generators: dict[str, TextGenerator]) -> None:
    drawn = figure(generators["rotary"], PROMPT, target="home", words=False, specials=True)
    labels = [label.get_text() for label in drawn.axes[0].get_yticklabels()]
    pieces = inspect(generators["rotary"], PROMPT, "home").target.tokens
    assert len(labels) == len(pieces)
    assert FigureOptions().part is None
    with pytest.raises(ValueError, match="this model has no 'cross' attention to draw; it has: decoder"):
        figure(generators["rotary"], PROMPT, part="cross")


def test_a_phrasebook_model_gets_prompts_as_examples() -> None:
    recipe = parse('task = "language_model"\n[data]\ntrain = [{ to = "de", pairs = 100 }]\n')
    info = model_info(recipe, "runs/english")
    assert (info.source_language, info.target_language) == ("en", "en")
    assert len(set(info.examples)) == len(info.examples) > 1
    sentences = [phrase.source for phrase in lectures("de")]
    for prompt in info.examples:
        assert any(sentence.startswith(f"{prompt} ") for sentence in sentences)


def test_the_widget_and_its_file_show_a_language_model(generators: dict[str, TextGenerator], tmp_path: Path) -> None:
    pytest.importorskip("anywidget")
    widget = generators["learned"].look(PROMPT)
    page = widget.to_html(tmp_path / "look.html").read_text(encoding="utf-8")
    assert '"text":"I can go"' in page
    assert '"kind":"maths"' in page
    assert regard.look(generators["rotary"], PROMPT).text == PROMPT


def test_another_predictor_is_refused() -> None:
    other: Any = object()
    with pytest.raises(ValueError, match="classifiers and chatbots that write replies, but this is a object"):
        make_adapter(other)
