"""Text generation and perplexity: what is generated is what the model says, and each token is scored once."""

import json
import math
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from regard.cli import app
from regard.models.build import build_language_model
from regard.models.language_model import LanguageModel
from regard.nn.ragged import Ragged
from regard.predict import TextGenerator
from regard.recipe import Transformer, parse
from regard.tasks import load, load_translator
from regard.text import END, START, Tokenizer
from regard.text.settings import TokenizerSettings
from regard.train.loop import train

TEXT = "I can go alone.\nYou can go home.\nWe can go now.\n"


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    settings = TokenizerSettings(kind="char", normalise="identity", bytes=False, multiline=True)
    return Tokenizer.learn([TEXT], 60, settings)


@pytest.fixture(scope="module")
def model(tokenizer: Tokenizer) -> LanguageModel:
    torch.manual_seed(0)
    settings = Transformer(width=16, inner=32, heads=2, decoder_layers=2, position="rotary")
    return build_language_model(settings, len(tokenizer)).eval().requires_grad_(False)


def test_greedy_text_is_the_most_probable_token_at_each_step(model: LanguageModel, tokenizer: Tokenizer) -> None:
    result = TextGenerator(model, tokenizer)("I can", beam=1, max_tokens=12)
    ids = [START, *tokenizer.encode("I can")]
    expected: list[int] = []
    for _ in range(12):
        logits = model(Ragged.from_list([[*ids, *expected]]))[-1]
        logits[[0, START]] = -math.inf  # padding and start symbol are never generated
        expected.append(int(logits.argmax()))
        if expected[-1] == END:
            break
    assert list(result.tokens) == [tokenizer.piece(token) for token in expected if token != END]


@pytest.mark.parametrize("options", [{"beam": 1}, {"seed": 3}, {"seed": 3, "stop": ["a"]}])
def test_streamed_pieces_add_up_to_the_whole_text(
    options: dict[str, object], model: LanguageModel, tokenizer: Tokenizer
) -> None:
    generator = TextGenerator(model, tokenizer)
    whole = generator("You", max_tokens=30, **options).text
    assert "".join(generator.stream("You", max_tokens=30, **options)) == whole


def test_text_ends_before_a_stop_string(model: LanguageModel, tokenizer: Tokenizer) -> None:
    generator = TextGenerator(model, tokenizer)
    whole = generator("We", max_tokens=30, seed=1).text
    stop = whole[5:7]
    assert generator("We", max_tokens=30, seed=1, stop=[stop]).text == whole[: whole.index(stop)]


def test_text_outgrows_the_window(model: LanguageModel, tokenizer: Tokenizer) -> None:
    result = TextGenerator(model, tokenizer, window=8)("I can go", max_tokens=40, min_tokens=40)
    assert len(result.tokens) == 40


@pytest.mark.parametrize("window", [4, 7, 1000])
def test_every_token_is_scored_once_with_the_context_of_its_window(
    window: int, model: LanguageModel, tokenizer: Tokenizer
) -> None:
    ids = [START, *tokenizer.encode(TEXT), END]
    perplexity = TextGenerator(model, tokenizer, window=window).perplexity([TEXT])
    assert (perplexity.tokens, perplexity.characters, perplexity.bytes) == (len(ids) - 1, len(TEXT), len(TEXT.encode()))
    if window > len(ids):
        logprobs = model(Ragged.from_list([ids[:-1]])).log_softmax(-1)
        expected = -sum(float(logprobs[at, label]) for at, label in enumerate(ids[1:]))
        assert perplexity.nats == pytest.approx(expected, rel=1e-5)
    else:
        # A uniform model gives every token the same price, whatever its context.
        flat = TextGenerator(_uniform(model), tokenizer, window=window).perplexity([TEXT])
        assert flat.nats == pytest.approx((len(ids) - 1) * math.log(len(tokenizer)), rel=1e-5)


def _uniform(model: LanguageModel) -> LanguageModel:
    from copy import deepcopy

    flat = deepcopy(model)
    flat.output.weight.zero_()
    return flat


def test_a_language_model_trains_generates_and_is_scored_by_commands(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(TEXT * 20, encoding="utf-8")
    recipe = parse(
        f"""
        task = "language_model"
        [data]
        root = "{tmp_path}"
        train = [{{ text = "text.txt" }}]
        valid = {{ text = "text.txt" }}
        documents = "file"
        block = 16
        [text]
        kind = "char"
        normalise = "identity"
        bytes = false
        size = 60
        [model]
        width = 16
        inner = 32
        heads = 2
        decoder_layers = 1
        dropout = 0.0
        [train]
        steps = 60
        tokens = 256
        rate = 2e-2
        warmup = 5
        every = 30
        precision = "float32"
        """
    )
    list(train(recipe, tmp_path / "run", "cpu"))
    assert isinstance(load(tmp_path / "run", "cpu"), TextGenerator)
    with pytest.raises(ValueError, match="needs a run with task = 'translation'"):
        load_translator(tmp_path / "run", "cpu")
    result = CliRunner().invoke(app, ["generate", str(tmp_path / "run"), "I can", "--greedy", "--json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["prompt"] == "I can"
    scored = CliRunner().invoke(app, ["perplexity", str(tmp_path / "run"), str(tmp_path / "text.txt"), "--json"])
    assert scored.exit_code == 0, scored.output
    assert json.loads(scored.stdout)["nats_per_character"] < 2.0
