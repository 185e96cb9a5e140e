"""Saving and loading of trained models: equal to the last bit, with clear errors for other files."""

import json
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from torch import nn

from regard.bundle import (
    Bundle,
    find_device,
    load_scores,
    load_weights,
    save_bundle,
    save_scores,
    save_weights,
)
from regard.data.fields import with_tokenizers
from regard.models.build import build
from regard.nn.ragged import Ragged
from regard.recipe import Recipe, parse
from regard.tasks import load_bundle
from regard.text import Tokenizers

PAIRS = [("I can go alone", "Ich kann allein gehen"), ("a cat", "eine Katze"), ("the street", "die Straße")]


def recipe(**model: str) -> Recipe:
    lines = "\n".join(f"{key} = {value}" for key, value in model.items())
    return parse(
        f"[data]\ntrain = [{{ to = 'de', pairs = 10 }}]\n[text]\nsize = 300\n"
        f"[model]\nsize = 'tiny'\nwidth = 16\ninner = 16\nheads = 2\nencoder_layers = 1\ndecoder_layers = 2\n{lines}"
    )


def saved(folder: Path, **model: str) -> nn.Module:
    """Save a run with an untrained model in a folder, and return the model."""
    settings = recipe(**model)
    tokenizers = Tokenizers.learn(PAIRS, size=300)
    torch.manual_seed(3)
    live = build(settings.model, len(tokenizers["source"]), len(tokenizers["target"])).eval()
    save_bundle(folder, settings, with_tokenizers(tokenizers), live, {"step": 7})
    return live


@pytest.mark.parametrize("tied", ["all", "decoder", "embeddings", "outer", "none"])
def test_a_loaded_model_gives_the_same_logits_bit_for_bit(tmp_path: Path, tied: str) -> None:
    live = saved(tmp_path, tied=f"'{tied}'")
    bundle = load_bundle(tmp_path)
    source, target = Ragged.from_list([[5, 6, 3], [9, 3]]), Ragged.from_list([[2, 8], [2, 7, 6]])
    assert torch.equal(live(source, target), bundle.model(source, target))
    assert bundle.recipe == recipe(tied=f"'{tied}'")
    assert bundle.scores == {"step": 7}
    assert bundle.tokenizers["source"].decode(bundle.tokenizers["source"].encode("I can go")) == "I can go"
    assert not bundle.model.training


def test_a_tied_tensor_is_written_once_and_is_still_tied_when_read(tmp_path: Path) -> None:
    live = saved(tmp_path)
    with safe_open(tmp_path / "model.safetensors", "pt") as file:
        names = file.keys()
        written = sum(file.get_tensor(name).numel() for name in names)
    assert written == sum(parameter.numel() for parameter in live.parameters())
    model = load_bundle(tmp_path).model
    assert model.encoder.embedding.weight is model.decoder.embedding.weight is model.output.weight


def test_all_faults_of_a_weight_file_are_reported_at_once_and_no_weight_is_changed(tmp_path: Path) -> None:
    save_weights(nn.ModuleDict({"here": nn.Linear(2, 3), "stray": nn.Linear(1, 1)}), tmp_path / "w")
    model = nn.ModuleDict({"here": nn.Linear(2, 4), "gone": nn.Linear(1, 1, bias=False)})
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with pytest.raises(ValueError) as caught:
        load_weights(model, tmp_path / "w")
    message = str(caught.value)
    assert "missing: gone.weight (1, 1)" in message
    assert "unexpected: stray.bias (1,)" in message
    assert "unexpected: stray.weight (1, 1)" in message
    assert "here.weight is (3, 2) in the file and (4, 2) in the model" in message
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


@pytest.mark.parametrize("keep", [0, 4, 60, -5])
def test_a_truncated_weight_file_is_named(tmp_path: Path, keep: int) -> None:
    saved(tmp_path)
    path = tmp_path / "model.safetensors"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ValueError, match=r"model.safetensors is damaged or not a safetensors file"):
        load_bundle(tmp_path)


def test_a_write_that_fails_leaves_the_old_weights(tmp_path: Path) -> None:
    path = tmp_path / "w"
    save_weights(nn.Linear(2, 2), path)
    before = path.read_bytes()
    broken = nn.Linear(2, 2)
    broken.weight = nn.Parameter(torch.empty(2, 2, device="meta"))
    with pytest.raises(NotImplementedError):
        save_weights(broken, path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_weights_of_another_tokenizer_are_refused(tmp_path: Path) -> None:
    saved(tmp_path)
    Tokenizers.learn([*PAIRS, ("many other words", "viele andere Wörter")], size=320).save(tmp_path / "tokenizer")
    with pytest.raises(ValueError, match=r"(?s)recipe or the tokenizer changed.*embedding\.weight is "):
        load_bundle(tmp_path)


def test_the_error_of_a_folder_that_is_no_run_says_what_is_missing(tmp_path: Path) -> None:
    saved(tmp_path / "mine")
    with pytest.raises(ValueError, match=r"no run at .*other; trained runs in the same folder: .*mine"):
        load_bundle(tmp_path / "other")
    with pytest.raises(ValueError, match=r"is not a run: it has no recipe.toml and no model.safetensors"):
        load_bundle(tmp_path)
    with pytest.raises(ValueError, match=r"is a file; a run is a folder"):
        load_bundle(tmp_path / "mine" / "recipe.toml")
    (tmp_path / "mine" / "model.safetensors").unlink()
    with pytest.raises(ValueError, match=r"not trained yet"):
        load_bundle(tmp_path / "mine")


def test_a_run_without_its_tokenizer_is_an_error(tmp_path: Path) -> None:
    saved(tmp_path)
    (tmp_path / "tokenizer" / "tokenizer.json").unlink()
    with pytest.raises(ValueError, match=r"no tokenizer at .*tokenizer"):
        load_bundle(tmp_path)


def test_scores_may_be_missing_but_not_broken(tmp_path: Path) -> None:
    assert load_scores(tmp_path) == {}
    save_scores(tmp_path, {"bleu": 41.0, "signature": "größer"})
    assert json.loads((tmp_path / "scores.json").read_text("utf-8")) == load_scores(tmp_path)
    for text in ("{", "[1]"):
        (tmp_path / "scores.json").write_text(text)
        with pytest.raises(ValueError, match=r"scores.json"):
            load_scores(tmp_path)


@pytest.mark.parametrize("name", ["gpu", "cuda:99", "xla", ""])
def test_an_unavailable_device_is_named(name: str) -> None:
    with pytest.raises(ValueError, match=rf"there is no device '{name}' here"):
        find_device(name)


def test_an_available_device_is_found(tmp_path: Path) -> None:
    assert find_device("cpu") == torch.device("cpu")
    assert find_device().type == ("cuda" if torch.cuda.is_available() else "cpu")
    saved(tmp_path)
    bundle: Bundle = load_bundle(tmp_path, "cpu")
    assert next(bundle.model.parameters()).device.type == "cpu"


def test_weights_have_the_permissions_of_other_files(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("", encoding="utf-8")
    save_weights(nn.Linear(2, 2), tmp_path / "weights")
    assert (tmp_path / "weights").stat().st_mode == (tmp_path / "plain").stat().st_mode
