"""Training from text to a loadable model, and the events it yields."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file
from tests.train.conftest import kinds, weights

from regard.data.prepare import prepare
from regard.models.seq2seq import Seq2Seq
from regard.recipe import Recipe, dump, parse
from regard.run_files import CHECKPOINTS
from regard.tasks import Sample, load_bundle, make_task
from regard.train.checkpoint import find_latest
from regard.train.distributed import WorkerGroup
from regard.train.events import Event, Finished, Noticed, Progress, Started, Validated
from regard.train.loop import train
from regard.train.validation import MIN_PREDICTIONS, TIME_FRACTION, affordable_predictions

Make = Callable[..., Recipe]
Train = Callable[[Recipe, Path], list[Event]]


def test_training_yields_its_events_and_writes_a_model(tiny: Make, trained: Train, tmp_path: Path) -> None:
    events = trained(tiny("data.test={to='de', pairs=30, split='test'}"), tmp_path)
    names = kinds(events)
    assert names[0] == "Started"
    assert names[-1] == "Finished"
    assert names.count("Validated") == names.count("Saved") == 3
    bundle = load_bundle(tmp_path)
    assert bundle.scores["training"]["steps"] == 6
    assert [score["name"] for score in bundle.scores["test"]["scores"]][:2] == ["BLEU", "chrF2"]
    assert bundle.scores["test"]["examples"] == 30


@pytest.mark.parametrize("text", ["valid", "test"])
def test_a_missing_corpus_raises_an_error_before_training(text: str, tiny: Make, tmp_path: Path) -> None:
    recipe = tiny(f"data.{text}={{source='nowhere.en', target='nowhere.de'}}")
    with pytest.raises((ValueError, OSError), match=r"nowhere\.en does not exist"):
        next(train(recipe, tmp_path, "cpu"))


def test_a_device_that_cannot_train_is_refused_before_anything_is_written(tiny: Make, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="training does not run on 'meta'; use cpu"):
        next(train(tiny(), tmp_path / "run", "meta"))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("text", ["train", "valid", "test"])
def test_a_sequence_longer_than_the_learned_positions_raises_an_error_before_training(
    text: str, tiny: Make, tmp_path: Path
) -> None:
    for side in ("en", "de"):
        (tmp_path / f"long.{side}").write_text("a " * 200 + "\n", encoding="utf-8")
    corpus = f"{{source='{tmp_path}/long.en', target='{tmp_path}/long.de'}}"
    known = "{to='de', pairs=400}"
    override = f"data.train=[{known}, {corpus}]" if text == "train" else f"data.{text}={corpus}"
    recipe = tiny(override, "model.position=learned", "model.positions=100", "data.drop=[]")
    with pytest.raises(ValueError, match=rf"data\.{text} has a sequence of \d+ tokens.* 100 positions: raise"):
        next(train(recipe, tmp_path / "run", "cpu"))


def test_validation_records_longer_than_the_limit_are_left_out_and_named(
    tiny: Make, trained: Train, tmp_path: Path
) -> None:
    lines = {"en": ["I can go", "a " * 9_000, "we can go"], "de": ["Ich kann gehen", "b", "wir"]}
    for side, texts in lines.items():
        (tmp_path / f"valid.{side}").write_text("\n".join(texts) + "\n", encoding="utf-8")
    recipe = tiny(
        f"data.valid={{source='{tmp_path}/valid.en', target='{tmp_path}/valid.de'}}", "train.steps=2", "data.longest=40"
    )
    prepared = prepare(recipe, make_task(recipe), tmp_path / "run")
    message = "data.valid: 1 of 3 records have more than data.longest = 40 tokens and are left out (line 2)"
    assert message in str(prepared)
    assert prepared.summary()["valid"]["too_long"] == (2,)
    events = trained(recipe, tmp_path / "run")
    assert message in [event.message for event in events if isinstance(event, Noticed)]
    assert json.loads((tmp_path / "run" / "scores.json").read_text())["valid"]["examples"] == 2


def test_the_lines_of_warnings_are_those_of_the_corpus(
    tiny: Make, once: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Validation translates some lines in another order than that of the file."""
    texts = [f"I can go {number}" for number in range(40)]
    texts[20] = "we can go " * 60
    for side in ("en", "de"):
        (tmp_path / f"long.{side}").write_text("\n".join(texts) + "\n", encoding="utf-8")
    corpus = f"{{source='{tmp_path}/long.en', target='{tmp_path}/long.de'}}"
    recipe = tiny(f"data.test={corpus}", "data.longest=40")
    task, bundle = make_task(recipe), load_bundle(once)
    test = prepare(recipe, task, tmp_path, fields=bundle.fields).test
    assert test is not None
    task.predict(bundle.model, bundle.fields, test.store, test.corpus, 39, WorkerGroup(torch.device("cpu")))
    assert [message.split(" has")[0] for message in caplog.messages] == ["line 21"]


def test_sampled_subwords_stay_within_the_learned_positions(tiny: Make, trained: Train, tmp_path: Path) -> None:
    """With nine of ten merges dropped a sentence is mostly characters; segmented deterministically it just fits."""
    longest = 1 + max(max(store.longest.values()) for store in prepare(tiny(), make_task(tiny()), tmp_path).stores)
    overrides = ["model.position=learned", f"model.positions={longest}", "text.sampling=0.9", "train.steps=30"]
    assert kinds(trained(tiny(*overrides), tmp_path))[-1] == "Finished"


def test_the_training_loss_falls(tiny: Make, trained: Train, tmp_path: Path) -> None:
    # The loss is a mean since the last reading. There is one at each validation, elsewhere they depend on the speed.
    events = trained(tiny("train.steps=40", "train.every=20", "model.dropout=0.0"), tmp_path)
    losses = [event.loss for event in events if isinstance(event, Progress)]
    assert losses[-1] < losses[0] - 2.0


def test_progress_counts_every_unit_once(tiny: Make, trained: Train, tmp_path: Path) -> None:
    events = trained(tiny(), tmp_path)
    finished = events[-1]
    assert isinstance(finished, Finished)
    last = [event for event in events if isinstance(event, Progress)][-1]
    assert last.tokens == finished.tokens
    assert last.step == finished.step == 6


def test_validation_has_scores_samples_and_the_best_weights(tiny: Make, trained: Train, tmp_path: Path) -> None:
    validated = [event for event in trained(tiny("train.translate=auto"), tmp_path) if isinstance(event, Validated)]
    assert [event.step for event in validated] == [2, 4, 6]
    assert [score.name for score in validated[0].scores] == ["BLEU", "chrF2"]
    assert all(sample.input and sample.reference for event in validated for sample in event.samples)
    best = min(validated, key=lambda event: event.loss)
    assert [event for event in validated if event.best][-1] is best


def test_every_validation_of_a_run_predicts_the_same_examples(tiny: Make, trained: Train, tmp_path: Path) -> None:
    corpus = "data.valid={to='de', pairs=80, split='valid'}"
    recipe = tiny("train.translate=auto", corpus, "train.steps=4", "train.every=1")
    validated = [event for event in trained(recipe, tmp_path) if isinstance(event, Validated)]
    recipe = tiny("train.translate=auto", corpus, "train.steps=6", "train.every=1")
    validated += [event for event in trained(recipe, tmp_path) if isinstance(event, Validated)]
    assert [event.step for event in validated] == [1, 2, 3, 4, 5, 6]
    assert len({event.predicted for event in validated}) == 1
    assert 64 <= validated[0].predicted <= 80
    assert len({tuple(sample.input for sample in event.samples) for event in validated}) == 1


@given(st.floats(1e-6, 10), st.floats(0, 1e5), st.integers(1, 5000))
def test_predictions_take_little_of_the_time_between_validations(pace: float, between: float, most: int) -> None:
    count = affordable_predictions(pace, between, most)
    assert min(MIN_PREDICTIONS, most) <= count <= most
    assert count <= MIN_PREDICTIONS or count * pace <= TIME_FRACTION * between
    assert count == most or 2 * count * pace > TIME_FRACTION * between


def test_gradient_accumulation_equals_one_large_batch(tiny: Make, trained: Train, tmp_path: Path) -> None:
    """Two accumulated batches give the same update as one batch with the same examples."""
    torch.set_default_dtype(torch.float64)
    try:
        recipe = tiny("train.steps=2", "model.dropout=0.0", "train.accumulate=2", "train.clip=9e9")
        trained(recipe, tmp_path / "two")
        accumulated = weights(tmp_path / "two")
        again = weights_after_whole_steps(recipe)
    finally:
        torch.set_default_dtype(torch.float32)
    for name, weight in again.items():
        torch.testing.assert_close(accumulated[f"weights.{name}"], weight, rtol=1e-9, atol=1e-9)


def weights_after_whole_steps(recipe: Recipe) -> dict[str, torch.Tensor]:
    """Return the weights after two plain updates, the loss of both batches of a step divided by all their tokens."""
    from regard.data.prepare import prepare
    from regard.models.seq2seq import Seq2Seq
    from regard.tasks import make_task
    from regard.tasks.translation import TranslationBatch
    from regard.train.schedule import learning_rate, resolve
    from regard.train.setup import build_setup

    task = make_task(recipe)
    prepared = prepare(recipe, task, Path("unused"))
    setup = build_setup(recipe, task, Path("unused"), WorkerGroup(torch.device("cpu")), prepared)
    assert isinstance(setup.model, Seq2Seq)
    adam = torch.optim.AdamW(setup.model.parameters(), betas=(0.9, 0.98), eps=1e-9, weight_decay=0.0)
    steps = setup.feed(512).epoch(0)
    for number in (1, 2):
        batches = next(steps)
        loss = torch.zeros(())
        for batch in batches:
            assert isinstance(batch, TranslationBatch)
            logits = setup.model(batch.source, batch.target)
            loss = loss + torch.nn.functional.cross_entropy(
                logits, batch.labels_N, label_smoothing=recipe.train.smoothing, reduction="sum"
            )
        adam.zero_grad()
        torch.autograd.backward(loss / sum(batch.units for batch in batches))
        adam.param_groups[0]["lr"] = learning_rate(resolve(recipe, 2), number)
        adam.step()
    return {name: parameter.detach() for name, parameter in setup.model.named_parameters()}


def test_patience_ends_a_run_that_does_not_improve(tiny: Make, trained: Train, tmp_path: Path) -> None:
    events = trained(tiny("train.rate=1e-9", "train.patience=2", "train.steps=100", "train.every=1"), tmp_path)
    finished = events[-1]
    assert isinstance(finished, Finished)
    assert finished.reason == "patience"
    assert finished.step < 20


def test_a_run_that_reaches_its_time_limit_is_validated_and_saved(tiny: Make, trained: Train, tmp_path: Path) -> None:
    events = trained(tiny("train.minutes=1e-9", "train.steps=100"), tmp_path)
    assert kinds(events)[-3:] == ["Validated", "Saved", "Finished"]
    finished = events[-1]
    assert isinstance(finished, Finished)
    assert finished.reason == "time"
    assert finished.step < 100


def test_bleu_can_choose_the_best_weights(tiny: Make, trained: Train, tmp_path: Path) -> None:
    validated = [
        event
        for event in trained(tiny("train.choose=bleu", "train.translate=auto"), tmp_path)
        if isinstance(event, Validated)
    ]
    assert all(event.scores[0].detail for event in validated)
    assert validated[0].best


def test_the_loss_decides_between_equal_bleu_scores(tiny: Make, trained: Train, tmp_path: Path) -> None:
    """BLEU is 0 for a long time at first; that must neither end a run nor choose its first weights."""
    recipe = tiny("train.choose=bleu", "train.translate=auto", "train.patience=1", "train.rate=1e-3")
    events = trained(recipe, tmp_path)
    validated = [event for event in events if isinstance(event, Validated)]
    assert [event.scores[0].value for event in validated] == [0.0, 0.0, 0.0]
    assert [event.best for event in validated] == [True, True, True]
    finished = events[-1]
    assert isinstance(finished, Finished)
    assert (finished.reason, finished.best_step) == ("steps", 6)


def test_a_sample_contains_no_control_characters() -> None:
    shown = Sample("a\tb", "naïve \u200fأنا", "\x13\x1b[2J \x7f\x9b1m ok")
    assert (shown.input, shown.reference) == ("a b", "naïve \u200fأنا")
    assert shown.output == r"\x13\x1b[2J \x7f\x9b1m ok"


def test_without_validation_data_the_last_weights_are_kept(tiny: Make, trained: Train, tmp_path: Path) -> None:
    recipe = tiny()
    recipe = recipe.model_copy(update={"data": recipe.data.model_copy(update={"valid": None})})
    events = trained(recipe, tmp_path)
    assert "Validated" not in kinds(events)
    saved, last = load_file(tmp_path / "model.safetensors"), weights(tmp_path)
    assert all(torch.equal(weight, last[f"weights.{name}"]) for name, weight in saved.items())


@pytest.mark.parametrize("word", ["train.patience=3", "train.schedule=plateau", "train.choose=bleu"])
def test_settings_that_need_validation_data_are_refused_without_them(word: str, tiny: Make, tmp_path: Path) -> None:
    recipe = tiny(word, "train.translate=auto")
    recipe = recipe.model_copy(update={"data": recipe.data.model_copy(update={"valid": None})})
    with pytest.raises(
        ValueError, match=rf"{word.partition('=')[0]} = .* needs validation data.* no data\.valid; add it"
    ):
        next(train(recipe, tmp_path, "cpu"))


def test_the_mean_of_the_last_weights_is_kept_if_it_is_no_worse(tiny: Make, trained: Train, tmp_path: Path) -> None:
    events = trained(tiny("train.average=2", "train.rate=1e-4"), tmp_path)
    finished = events[-1]
    assert isinstance(finished, Finished)
    kept = [load_file(path) for path in sorted((tmp_path / "weights").glob("step-*"))]
    model = load_file(tmp_path / "model.safetensors")
    assert len(kept) == 2
    if finished.scores["weights"].startswith("mean"):
        means = {name: (kept[0][name] + kept[1][name]) / 2 for name in model}
        torch.testing.assert_close(model, means)
    else:
        assert all(torch.equal(weight, kept[1][name]) for name, weight in model.items())


def test_a_moving_average_lags_behind_the_weights(tiny: Make, trained: Train, tmp_path: Path) -> None:
    trained(tiny("train.ema=0.9"), tmp_path)
    last, model = weights(tmp_path), load_file(tmp_path / "model.safetensors")
    name = "output.weight" if "output.weight" in model else next(iter(model))
    assert torch.equal(model[name], last[f"average.{name}"])
    assert not torch.equal(model[name], last[f"weights.{name}"])


def test_only_the_last_checkpoints_are_kept(tiny: Make, trained: Train, tmp_path: Path) -> None:
    trained(tiny("train.keep=1"), tmp_path)
    assert [path.name for path in (tmp_path / CHECKPOINTS).iterdir()] == ["step-00000006"]


def test_auto_finds_the_batch_size_once_and_stores_it(tiny: Make, trained: Train, tmp_path: Path) -> None:
    events = trained(tiny("train.tokens=auto"), tmp_path)
    assert any(isinstance(event, Noticed) and "tokens fit" in event.message for event in events)
    again = trained(tiny("train.tokens=auto", "train.steps=7"), tmp_path)
    assert not any(isinstance(event, Noticed) for event in again)
    checkpoint, _ = find_latest(tmp_path)
    assert checkpoint is not None
    assert json.loads((checkpoint / "notes.json").read_text())["state"]["budget"] >= 1024


def test_a_diverged_loss_raises_an_error_that_says_what_to_do(tiny: Make, trained: Train, tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"diverged.*not finite between steps 1 and .*no checkpoint yet.*lower train.rate"
    ):
        trained(tiny("train.rate=1e30", "train.warmup=0", "train.steps=50", "train.every=50"), tmp_path)


@pytest.mark.parametrize(
    ("ruined", "where"), [("1e12", "on data.valid after step 5"), ("1e300", "the weights are not finite")]
)
def test_weights_that_are_not_finite_are_not_saved(
    ruined: str, where: str, begun: Path, tiny: Make, trained: Train, tmp_path: Path
) -> None:
    """The loss of an update is that of the weights before it, so bad weights show only afterwards."""
    run = Path(shutil.copytree(begun, tmp_path / "run"))
    recipe = tiny(f"train.rate={ruined}", "train.every=1", "train.average=2")
    (run / "recipe.toml").write_text(dump(recipe), encoding="utf-8")
    before = (run / "weights" / "best.safetensors").read_bytes()
    with pytest.raises(ValueError, match=rf"diverged.*{where}.*step-00000004, is complete.*lower train.rate"):
        trained(recipe, run)
    checkpoint, faults = find_latest(run)
    assert checkpoint is not None
    assert (checkpoint.name, faults) == ("step-00000004", [])
    assert (run / "weights" / "best.safetensors").read_bytes() == before
    assert not list((run / "weights").glob("step-*"))


@pytest.mark.parametrize(
    "word", ["train.optimiser=muon", "train.rdrop=2.0", "text.sampling=0.1", "train.precision=bfloat16"]
)
def test_every_option_of_training_reduces_the_loss(word: str, tiny: Make, trained: Train, tmp_path: Path) -> None:
    events = trained(tiny(word), tmp_path)
    losses = [event.loss for event in events if isinstance(event, Validated)]
    assert losses[-1] < losses[0]


def test_train_start_takes_the_weights_of_another_run(tiny: Make, trained: Train, once: Path, tmp_path: Path) -> None:
    more = tiny(f"train.start='{once}'", 'text.symbols=["<2de>"]', "train.steps=1", "train.rate=1e-12")
    events = trained(more, tmp_path / "new")
    assert any(isinstance(event, Noticed) and "started from" in event.message for event in events)
    old, new = load_file(once / "model.safetensors"), load_file(tmp_path / "new" / "model.safetensors")
    for name, weight in old.items():
        torch.testing.assert_close(new[name][: weight.shape[0]], weight)
    started = next(event for event in events if isinstance(event, Started))
    assert started.vocabulary == {"source": 321, "target": 321}
    assert started.recipe.text.symbols == ("<2de>",)


def test_a_recipe_without_a_model_takes_that_of_the_run_it_starts_from(once: Path, tmp_path: Path) -> None:
    """Fine-tuning needs no copy of the settings; once the run has a checkpoint, the other run is not needed."""
    other = Path(shutil.copytree(once, tmp_path / "other"))
    text = f"[data]\ntrain = [{{ to = 'de', pairs = 50 }}]\n[train]\nstart = '{other}'\ntokens = 512\nsteps = "
    for steps in (1, 2):
        events = list(train(parse(text + str(steps)), tmp_path / "new", "cpu"))
        shutil.rmtree(other, ignore_errors=True)
    started = next(event for event in events if isinstance(event, Started))
    assert (started.step, started.recipe.model) == (1, load_bundle(once).recipe.model)


def test_a_run_resumes_after_the_run_it_started_from_is_deleted(
    tiny: Make, trained: Train, once: Path, tmp_path: Path
) -> None:
    other = Path(shutil.copytree(once, tmp_path / "other"))
    overrides = (f"train.start='{other}'", 'text.symbols=["<2de>"]')
    trained(tiny(*overrides, "train.steps=1"), tmp_path / "new")
    shutil.rmtree(other)
    events = trained(tiny(*overrides, "train.steps=2"), tmp_path / "new")
    started = next(event for event in events if isinstance(event, Started))
    assert (started.step, started.vocabulary) == (1, {"source": 321, "target": 321})
    with pytest.raises(ValueError, match="is not a run"):
        trained(tiny(*overrides), tmp_path / "newer")


def test_tokens_of_a_new_vocabulary_keep_their_known_embeddings(
    tiny: Make, trained: Train, once: Path, tmp_path: Path
) -> None:
    more = tiny(f"train.start='{once}'", "train.vocabulary=new", "text.size=330", "train.steps=1")
    more = more.model_copy(update={"train": more.train.model_copy(update={"rate": 1e-12})})
    trained(more, tmp_path / "new")
    one, other = load_bundle(once), load_bundle(tmp_path / "new")
    piece = one.tokenizers["source"].piece(300)
    assert isinstance(one.model, Seq2Seq)
    assert isinstance(other.model, Seq2Seq)
    torch.testing.assert_close(
        one.model.get_parameter("encoder.embedding.weight")[300],
        other.model.get_parameter("encoder.embedding.weight")[other.tokenizers["source"].id(piece)],
    )


@pytest.mark.parametrize("vocabulary", ["start", "new"])
def test_a_different_model_in_train_start_raises_an_error_before_data_are_read(
    vocabulary: str, tiny: Make, trained: Train, once: Path, tmp_path: Path
) -> None:
    recipe = tiny(
        f"train.start='{once}'",
        f"train.vocabulary={vocabulary}",
        "model.inner=64",
        "data.train=[{source='nowhere.en', target='nowhere.de'}]",
    )
    with pytest.raises(ValueError, match=r"model.inner is 32 there and 64 here"):
        trained(recipe, tmp_path / "new")


def test_a_file_with_the_name_of_the_run_is_kept(tiny: Make, tmp_path: Path) -> None:
    (tmp_path / "run").write_text("mine", encoding="utf-8")
    with pytest.raises(ValueError, match=r"run is a file.*--run"):
        next(train(tiny(), tmp_path / "run", "cpu"))
    assert (tmp_path / "run").read_text(encoding="utf-8") == "mine"


def test_two_trainings_in_one_folder_are_refused(tiny: Make, tmp_path: Path) -> None:
    first = train(tiny(), tmp_path, "cpu")
    next(first)
    with pytest.raises(ValueError, match="another process trains"):
        next(train(tiny(), tmp_path, "cpu"))
    first.close()
    next(train(tiny(), tmp_path, "cpu"))
