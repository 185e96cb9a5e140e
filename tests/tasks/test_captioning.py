"""Captioning from pictures to captions: batches, memorising scenes, predictors, figures and commands."""

import io
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

import regard
from regard.analysis.caption_baselines import central_caption, nearest_captions, read_captioned
from regard.analysis.pointing import coverage, inside, judge_pointing, point
from regard.cli import app
from regard.data.prepare import prepare
from regard.data.scenes import scenes
from regard.drawing import caption_figure
from regard.models.build import build_captioner
from regard.models.memory import Memory
from regard.models.seq2seq import Seq2Seq
from regard.nn.ragged import Layout, Ragged
from regard.nn.tap import recording
from regard.predict.captioner import Captioner
from regard.recipe import ImageSettings, Recipe, load, parse
from regard.tasks.captioning import CaptionBatch, CaptioningTask, encode_captions
from regard.text import END, START
from regard.train.loop import train

FAMILIES = {
    "soft": "model={kind='show_attend_tell', width=48, patch=16, stem_layers=1, dropout=0.0}",
    "hard": "model={kind='show_attend_tell', width=24, patch=16, stem_layers=1, dropout=0.0, attention='hard'}",
    "gumbel": "model={kind='show_attend_tell', width=24, patch=16, stem_layers=1, dropout=0.0, attention='gumbel'}",
    "none": "model={kind='show_attend_tell', width=24, patch=16, stem_layers=1, dropout=0.0, attention='none'}",
    "transformer": (
        "model={kind='image_transformer', width=24, inner=32, heads=2, encoder_layers=1, decoder_layers=1, "
        "stem='patches', patch=16, dropout=0.0}"
    ),
}
every_family = pytest.mark.parametrize("family", FAMILIES)
RECIPE = """
task = "captioning"
[data]
train = [{ kind = "scenes", count = 12 }]
valid = { kind = "scenes", count = 12 }
[text]
kind = "word"
size = 400
lowercase = true
[train]
steps = 120
tokens = 512
rate = 0.01
optimiser = "adamw"
schedule = "constant"
warmup = 5
every = 120
smoothing = 0.0
precision = "float32"
"""


def recipe_of(family: str, *overrides: str) -> Recipe:
    """Return a small recipe of a family."""
    return parse(RECIPE, [FAMILIES[family], *overrides], name="captions")


def small(family: str) -> Seq2Seq:
    """Return an untrained model in float64, in evaluation mode."""
    torch.manual_seed(1)
    model = build_captioner(recipe_of(family).model, ImageSettings(size=32), 11)
    return model.double().eval()


def pictures(count: int) -> torch.Tensor:
    """Return random pictures."""
    draw = torch.Generator().manual_seed(5)
    return torch.randint(0, 256, (count, 3, 32, 32), generator=draw, dtype=torch.uint8)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that has memorised twelve scenes."""
    folder = tmp_path_factory.mktemp("captioning") / "run"
    for _ in train(recipe_of("soft"), folder, device="cpu"):
        pass
    return folder


@pytest.fixture(scope="module")
def captioner(run: Path) -> Captioner:
    """The captioner of that run."""
    loaded = regard.load(run)
    assert isinstance(loaded, Captioner)
    return loaded


@every_family
def test_steps_give_the_teacher_forced_log_probabilities(family: str) -> None:
    model, target = small(family), [[1, 5, 6, 7], [1, 9, 4, 3]]
    forced = model(pictures(2), Ragged.from_list(target)).log_softmax(-1).view(2, 4, -1)
    state = model.start(pictures(2))
    for step in range(4):
        logprobs, state = model.step(torch.tensor([row[step] for row in target]), state)
        torch.testing.assert_close(logprobs, forced[:, step])


@every_family
def test_other_pictures_of_a_batch_change_no_logit(family: str) -> None:
    model, both = small(family), pictures(2)
    together = model(both, Ragged.from_list([[1, 5], [1, 9, 4]]))
    torch.testing.assert_close(together[2:], model(both[1:], Ragged.from_list([[1, 9, 4]])))


@every_family
def test_watching_changes_no_logit(family: str) -> None:
    model, tokens = small(family), Ragged.from_list([[1, 5], [1, 9, 4]])
    plain = model(pictures(2), tokens)
    with recording(model, "*"):
        torch.testing.assert_close(model(pictures(2), tokens), plain)


@every_family
def test_every_family_trains_and_is_loaded_again(family: str, tmp_path: Path) -> None:
    for _ in train(recipe_of(family, "train.steps=3", "train.every=3"), tmp_path / "run", device="cpu"):
        pass
    loaded = regard.load(tmp_path / "run")
    scene = next(scenes("train", 1))
    assert (loaded(scene.image).attention is not None) == loaded.has_attention == (family != "none")
    assert loaded(scene.image, beam=1).text == loaded(scene.image, beam=1).text


def test_a_picture_is_encoded_once_for_all_of_its_captions(tmp_path: Path) -> None:
    (tmp_path / "list.tsv").write_text("a.png\ta b\tc\nb.png\td e f\n", encoding="utf-8")
    for name in ("a.png", "b.png"):
        Image.new("RGB", (64, 64), "red").save(tmp_path / name)
    corpus = f"[{{path='{tmp_path}/list.tsv'}}]"
    recipe = recipe_of("soft", f"data.train={corpus}", f"data.root={tmp_path}", "data.valid={kind='scenes'}")
    prepared = prepare(recipe, CaptioningTask(recipe), tmp_path / "run")
    store = prepared.stores[0]
    task = CaptioningTask(recipe)
    rows = store.gather(np.array([0, 1]))
    batch = task.collate(rows, np.array([0, 1]))
    assert isinstance(batch, CaptionBatch)
    assert batch.image_BCHW.shape == (2, 3, 64, 64)
    assert batch.sizes.to_list()[0].tolist() == [3, 2]
    assert (batch.captions.values == START).sum() == 3
    assert (batch.labels_N == END).sum() == 3
    assert batch.units == task.units({name: part.lengths for name, part in rows.items()})
    model = task.build(prepared.fields.sizes).eval()
    captions, labels, memory = encode_captions(model, batch.rounded(64))
    assert len(captions) == len(memory.layout) == 3
    assert labels.shape[0] == captions.tokens
    regions = memory.states_ND.view(3, -1, memory.states_ND.shape[1])
    torch.testing.assert_close(regions[0], regions[1])


def test_memories_are_taken_by_input() -> None:
    memory = Memory(torch.arange(5.0)[:, None], Layout.from_lengths([2, 3]))
    taken = memory.take(torch.tensor([1, 0, 1]))
    assert taken.states_ND[:, 0].tolist() == [2, 3, 4, 0, 1, 2, 3, 4]
    assert taken.layout.lengths_B.tolist() == [3, 2, 3]


def test_a_captioner_memorises_scenes_and_describes_a_picture_in_any_form(captioner: Captioner, tmp_path: Path) -> None:
    known = list(scenes("train", 12, seed=1))
    assert [caption.text for caption in captioner([scene.image for scene in known])] == [
        scene.caption for scene in known
    ]
    scene, stream = known[0], io.BytesIO()
    Image.fromarray(scene.image).save(stream, "PNG")
    (tmp_path / "scene.png").write_bytes(stream.getvalue())
    forms = (scene.name, tmp_path / "scene.png", stream.getvalue(), Image.fromarray(scene.image))
    assert {captioner(form).text for form in forms} == {scene.caption}


def test_attention_has_a_distribution_over_the_grid_for_each_word(captioner: Captioner) -> None:
    caption = captioner(next(scenes("train", 1, seed=1)).image)
    assert caption.attention.shape == (len(caption.words), *captioner.grid)
    np.testing.assert_allclose(caption.attention.sum((1, 2)), 1, rtol=1e-5)
    assert caption.attention.min() >= 0


def test_a_beam_of_one_is_greedy_and_wider_beams_rank_their_captions(captioner: Captioner) -> None:
    image = next(scenes("valid", 1)).image
    greedy = captioner(image, beam=1)
    with torch.no_grad():
        state, token, ids = captioner.model.start(captioner.read([image])), START, []
        while token != END and len(ids) < 60:
            logprobs, state = captioner.model.step(torch.tensor([token]), state)
            token = int(logprobs[0].index_fill(0, torch.tensor([0, START]), -torch.inf).argmax())
            ids.append(token)
    assert greedy.text == captioner.tokenizer.decode(ids[:-1])
    wide = captioner(image, beam=4, nbest=3)
    assert [one.score for one in wide.nbest] == sorted((one.score for one in wide.nbest), reverse=True)
    assert captioner(image, sample=True, seed=3).text == captioner(image, sample=True, seed=3).text


@pytest.mark.parametrize("mode", ["CMYK", "RGBA", "L", "P", "1"])
def test_pictures_of_any_kind_and_size_are_described(captioner: Captioner, mode: str) -> None:
    assert captioner(Image.new(mode, (7, 301))).text is not None


def test_a_broken_picture_is_a_sentence(captioner: Captioner) -> None:
    with pytest.raises(ValueError, match="picture"):
        captioner(b"not a picture")


def test_the_command_describes_what_it_can_and_reports_the_rest(run: Path, tmp_path: Path) -> None:
    scene = next(scenes("train", 1, seed=1))
    Image.fromarray(scene.image).save(tmp_path / "a.png")
    (tmp_path / "b.jpg").write_bytes(b"broken")
    result = CliRunner().invoke(app, ["caption", str(run), str(tmp_path), "--quiet", "--device", "cpu"])
    assert result.exit_code == 1
    assert result.stdout == f"{tmp_path}/a.png\t{scene.caption}\n"
    assert "b.jpg" in result.stderr
    arguments = ["caption", str(run), "--json", "--attention", "--beam", "2", "--nbest", "2", "--device", "cpu"]
    result = CliRunner().invoke(app, arguments, input=f"{tmp_path}/a.png\n")
    table = json.loads(result.stdout)
    assert result.exit_code == 0
    assert len(table["nbest"]) == 2
    assert len(table["attention"]) == len(table["words"])


def test_the_figure_has_a_map_for_each_word(captioner: Captioner) -> None:
    scene = next(scenes("train", 1, seed=1))
    figure = caption_figure(captioner, scene.image, boxes=[word.boxes or () for word in scene.words])
    assert [axes.get_title() for axes in figure.axes] == ["", *scene.caption.split()]
    boxes = [len(axes.patches) for axes in figure.axes[1:]]
    assert boxes == [len(word.boxes or ()) for word in scene.words]


def test_evaluation_prints_baselines_and_pointing(run: Path) -> None:
    result = CliRunner().invoke(app, ["evaluate", str(run), "--json", "--device", "cpu"])
    table = json.loads(result.stdout)
    scores = {system: {score["name"]: score["value"] for score in table[system]} for system in ("model", "constant")}
    assert scores["model"]["CIDEr-D"] > 900
    assert scores["constant"]["exact match (lower-cased)"] < 50
    assert {score["value"] for score in table["nearest picture"] if score["name"].startswith("BLEU")} == {
        pytest.approx(100)
    }
    assert table["pointing"]["exact"] == 1.0
    assert 0 <= table["pointing"]["argmax"] <= 1


def test_a_model_without_attention_points_at_nothing(tmp_path: Path) -> None:
    prepared = prepare(recipe_of("none"), CaptioningTask(recipe_of("none")), tmp_path / "run")
    model = CaptioningTask(recipe_of("none")).build(prepared.fields.sizes)
    with pytest.raises(ValueError, match="no attention"):
        judge_pointing(Captioner(model, prepared.fields), list(scenes("train", 1)))


def test_pointing_counts_centres_and_mass_inside_of_boxes() -> None:
    weights = np.array([[0.7, 0.1], [0.2, 0.0]], np.float32)
    assert point(weights, [(0.0, 0.0, 0.5, 0.5)]) == (True, pytest.approx(0.7))
    assert point(weights, [(0.5, 0.0, 1.0, 1.0)]) == (False, pytest.approx(0.1))
    assert point(weights, [(0.0, 0.0, 0.25, 0.5)]) == (True, pytest.approx(0.35))  # a centre on the edge is inside
    assert inside((2, 2), [(0.0, 0.0, 0.5, 0.5), (0.5, 0.5, 1.0, 1.0)]).tolist() == [[True, False], [False, True]]
    assert coverage((1, 1), [(0.0, 0.0, 0.5, 1.0)]).item() == pytest.approx(0.5)


def test_baselines_are_the_most_central_caption_and_that_of_the_nearest_picture(run: Path) -> None:
    recipe = load(run / "recipe.toml")
    records = read_captioned(recipe.data.train[0], recipe)
    assert central_caption(records) in {record.captions[0] for record in records}
    assert nearest_captions([records[4].name], records) == [records[4].captions[0]]


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("model.patch=24", "does not divide image.size = 64"),
        ("model.patch=1", "no power of two"),
        ("data.train=[{path='x.txt', kind='text'}]", "has no pictures"),
        ("decode.coverage_penalty=1", "need not cover"),
    ],
)
def test_settings_that_cannot_be_are_errors(override: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        recipe_of("soft", override)
