"""Saving and loading of trained models: equal to the last bit, with clear errors for other files."""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch
from safetensors import safe_open
from torch import nn

from regard.bundle import (
    Bundle,
    find_device,
    load_scores,
    save_bundle,
    save_scores,
)
from regard.data.fields import with_tokenizers
from regard.models.build import build
from regard.nn.ragged import Ragged
from regard.recipe import Recipe, Transformer, parse
from regard.tasks import load_bundle, load_translator
from regard.text import Tokenizers
from regard.weights import load_weights, save_weights

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
    with pytest.raises(ValueError, match=r"vocabularies in .* are not those that model.safetensors was trained with"):
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


def test_a_setting_of_the_model_that_was_changed_after_training_is_named(tmp_path: Path) -> None:
    saved(tmp_path)
    path = tmp_path / "recipe.toml"
    path.write_text(path.read_text("utf-8").replace("heads = 2", "heads = 4"), encoding="utf-8")
    with pytest.raises(ValueError, match=r"recipe.toml was changed after training: model.heads is 4 and was 2"):
        load_bundle(tmp_path)


def test_settings_that_do_not_change_the_model_may_be_edited(tmp_path: Path) -> None:
    saved(tmp_path)
    path = tmp_path / "recipe.toml"
    text = path.read_text("utf-8").replace("beam = 5", "beam = 7").replace("\ndropout = 0.3", "\ndropout = 0.25")
    path.write_text(text, encoding="utf-8")
    bundle = load_bundle(tmp_path)
    assert bundle.recipe.decode.beam == 7
    assert isinstance(bundle.recipe.model, Transformer)
    assert bundle.recipe.model.dropout == 0.25


def test_a_tokenizer_of_the_same_size_but_other_pieces_is_refused(tmp_path: Path) -> None:
    saved(tmp_path)
    other = Tokenizers.learn([("xxxx yyyy zzzz", "xyz xyz yyz")] * 9, size=300)
    shape = len(load_bundle(tmp_path).tokenizers["source"])
    other = other.extended([f"<{number}>" for number in range(shape - len(other["source"]))])
    assert len(other["source"]) == shape
    other.save(tmp_path / "tokenizer")
    with pytest.raises(ValueError, match=r"vocabularies in .* are not those"):
        load_bundle(tmp_path)


HUGE = ["encoder_layers=100000000", "width=40000", "inner=1000000000", "positions=100000000000", "inner=900000"]


@pytest.mark.parametrize("setting", [*HUGE, "encoder_layers=1000", "decode.longest=1e12", "heads=1000000007"])
def test_a_recipe_that_asks_for_more_than_the_weights_have_is_refused_before_memory_is_reserved(
    setting: str, tmp_path: Path
) -> None:
    """The weights say nothing about the settings of the model, as those of version 0.1."""
    live = saved(tmp_path)
    save_weights(live, tmp_path / "model.safetensors")
    name, _, value = setting.partition("=")
    name = name.removeprefix("decode.")
    path = tmp_path / "recipe.toml"
    lines = [f"{name} = {value}" if line.startswith(f"{name} = ") else line for line in path.read_text().splitlines()]
    path.write_text("\n".join(lines), encoding="utf-8")
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (address_space() + (1 << 30), before[1]))
    try:
        with pytest.raises(ValueError, match=rf"{name} = |does not fit the model|weights of this model need|width"):
            load_bundle(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def address_space() -> int:
    """Return the size of this process's address space in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


FILES = ["recipe.toml", "scores.json", "model.safetensors", "tokenizer/tokenizer.json", "tokenizer/joint.model"]


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("kind", ["pipe", "device", "folder", "link to another folder"])
def test_only_regular_files_inside_the_folder_are_opened(kind: str, name: str, tmp_path: Path) -> None:
    folder = tmp_path / "bundle"
    saved(folder)
    path = folder / name
    path.rename(tmp_path / "outside")
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "device":
            path.symlink_to("/dev/zero")
        case "folder":
            path.mkdir()
        case _:
            path.symlink_to(tmp_path / "outside")
    with pytest.raises(ValueError, match=rf"{path.name} (is a|leads out of)"):
        load_bundle(folder)


def test_a_link_inside_the_folder_is_followed(tmp_path: Path) -> None:
    saved(tmp_path)
    (tmp_path / "model.safetensors").rename(tmp_path / "model-1.safetensors")
    (tmp_path / "model.safetensors").symlink_to("model-1.safetensors")
    assert load_bundle(tmp_path).scores == {"step": 7}


@pytest.mark.parametrize("model", ["../../outside", "/etc/passwd", "a/b.model", ".."])
def test_an_index_names_only_models_beside_it(model: str, tmp_path: Path) -> None:
    saved(tmp_path)
    index = tmp_path / "tokenizer" / "tokenizer.json"
    index.write_text(index.read_text("utf-8").replace("joint.model", model), encoding="utf-8")
    with pytest.raises(ValueError, match=r"tokenizer.json names the model .* no file name|joint.model|is a folder"):
        load_bundle(tmp_path)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("recipe.toml", "a = " + "[" * 100_000),
        ("recipe.toml", "a = " + "{b=" * 5_000),
        ("recipe.toml", "seed = " + "9" * 10_000),
        ("recipe.toml", "# " * (1 << 20)),
        ("scores.json", "[" * 1_000_000),
        ("tokenizer/tokenizer.json", '{"a":' * 100_000),
        ("tokenizer/tokenizer.json", '{"version": 1, "joint": {"model": "joint.model"}}'),
        ("tokenizer/tokenizer.json", '{"version": 1}'),
    ],
)
def test_a_file_that_is_nested_too_deeply_or_too_long_is_an_error_with_its_name(
    name: str, text: str, tmp_path: Path
) -> None:
    saved(tmp_path)
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=Path(name).name) as caught:
        load_bundle(tmp_path)
    assert "this version of regard reads version" not in str(caught.value)


@pytest.mark.parametrize(
    ("entry", "message"),
    [({"head": 99}, "head 99 .* has 2 heads"), ({"head": -3}, "alignment.head"), ({"head": "x"}, "alignment.head")],
)
def test_an_attention_head_that_the_model_lacks_is_named(
    entry: dict[str, object], message: str, tmp_path: Path
) -> None:
    saved(tmp_path)
    save_scores(tmp_path, {"alignment": {"tap": "decoder.layers.0.cross.weights", **entry}})
    with pytest.raises(ValueError, match=message):
        load_translator(tmp_path, "cpu")(["a cat"])


def test_a_file_that_may_not_be_read_is_not_called_missing() -> None:
    """Run as another user, because the superuser may read every file."""
    code = (
        "import os, sys; from pathlib import Path; from regard.tasks import load_bundle;"
        "from regard.train.checkpoint import has_checkpoint; folder = Path(sys.argv[1]); load_bundle(folder)\n"
        "for name in ('model.safetensors', 'checkpoints'): (folder / name).chmod(0)\n"
        "if os.getuid() == 0: os.setuid(65534)\n"
        "for call in (load_bundle, has_checkpoint):\n"
        "    try: call(folder)\n"
        "    except PermissionError as error: print(error)"
    )
    with TemporaryDirectory(dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        saved(folder)
        (folder / "checkpoints").mkdir()
        result = subprocess.run([sys.executable, "-c", code, name], capture_output=True, text=True, check=True)
        (folder / "checkpoints").chmod(0o755)
    for line, file in zip(result.stdout.splitlines(), ("model.safetensors", "checkpoints"), strict=True):
        assert "Permission denied" in line
        assert file in line
