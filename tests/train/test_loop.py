"""Training from text to a loadable model, and what it tells on the way."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tests.train.conftest import kinds, weights

from regard.bundle import load_bundle
from regard.data.prepare import gather
from regard.names import CHECKPOINTS
from regard.recipe import Recipe, dump
from regard.train.checkpoint import newest
from regard.train.events import Event, Finished, Noticed, Progress, Started, Validated
from regard.train.loop import train
from regard.train.translating import samples

Make = Callable[..., Recipe]
Train = Callable[[Recipe, Path], list[Event]]


def test_training_tells_what_it_does_and_leaves_a_model(tiny: Make, trained: Train, tmp_path: Path) -> None:
    events = trained(tiny("data.test={to='de', pairs=30, split='test'}"), tmp_path)
    told = kinds(events)
    assert told[0] == "Started"
    assert told[-1] == "Finished"
    assert told.count("Validated") == told.count("Saved") == 3
    bundle = load_bundle(tmp_path)
    assert bundle.scores["training"]["steps"] == 6
    assert [each["name"] for each in bundle.scores["test"]["scores"]][:2] == ["BLEU", "chrF2"]
    assert bundle.scores["test"]["sentences"] == 30


@pytest.mark.parametrize("text", ["valid", "test"])
def test_a_text_that_is_not_there_is_told_of_before_anything_is_learnt(text: str, tiny: Make, tmp_path: Path) -> None:
    recipe = tiny(f"data.{text}={{source='nowhere.en', target='nowhere.de'}}")
    with pytest.raises((ValueError, OSError), match=r"nowhere\.en does not exist"):
        next(train(recipe, tmp_path, "cpu"))


def test_a_device_that_nothing_learns_on_is_refused_before_anything_is_written(tiny: Make, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="training does not run on 'meta'; say cpu"):
        next(train(tiny(), tmp_path / "run", "meta"))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("text", ["train", "valid", "test"])
def test_a_sentence_beyond_the_learned_positions_is_told_of_before_anything_is_learnt(
    text: str, tiny: Make, tmp_path: Path
) -> None:
    for side in ("en", "de"):
        (tmp_path / f"long.{side}").write_text("a " * 200 + "\n", encoding="utf-8")
    corpus = f"{{source='{tmp_path}/long.en', target='{tmp_path}/long.de'}}"
    known = "{to='de', pairs=400}"
    told = f"data.train=[{known}, {corpus}]" if text == "train" else f"data.{text}={corpus}"
    recipe = tiny(told, "model.position=learned", "model.positions=100", "data.drop=[]")
    with pytest.raises(ValueError, match=rf"data\.{text} has a sentence of \d+ tokens.* 100 positions: raise"):
        next(train(recipe, tmp_path / "run", "cpu"))


def test_text_that_is_cut_anew_stays_within_the_learned_positions(tiny: Make, trained: Train, tmp_path: Path) -> None:
    """At nine of ten merges left out a sentence is mostly letters; as it is usually cut it just fits."""
    longest = 1 + max(max(store.longest) for store in gather(tiny(), tmp_path).stores)
    told = ["model.position=learned", f"model.positions={longest}", "text.sampling=0.9", "train.steps=30"]
    assert kinds(trained(tiny(*told), tmp_path))[-1] == "Finished"


def test_it_learns(tiny: Make, trained: Train, tmp_path: Path) -> None:
    events = trained(tiny("train.steps=40", "train.every=40", "model.dropout=0.0"), tmp_path)
    losses = [event.loss for event in events if isinstance(event, Progress)]
    assert losses[-1] < losses[0] - 2.0


def test_progress_counts_every_target_token_once(tiny: Make, trained: Train, tmp_path: Path) -> None:
    events = trained(tiny(), tmp_path)
    finished = events[-1]
    assert isinstance(finished, Finished)
    last = [event for event in events if isinstance(event, Progress)][-1]
    assert last.tokens == finished.tokens
    assert last.step == finished.step == 6


def test_validation_translates_and_says_which_weights_were_best(tiny: Make, trained: Train, tmp_path: Path) -> None:
    validated = [event for event in trained(tiny("train.translate=auto"), tmp_path) if isinstance(event, Validated)]
    assert [event.step for event in validated] == [2, 4, 6]
    assert [score.name for score in validated[0].scores] == ["BLEU", "chrF2"]
    assert all(sample.source and sample.reference for event in validated for sample in event.samples)
    best = min(validated, key=lambda event: event.loss)
    assert [event for event in validated if event.best][-1] is best


def test_smaller_batches_that_make_the_same_step_learn_the_same(tiny: Make, trained: Train, tmp_path: Path) -> None:
    """A step of two batches is a step of one twice as large, where each holds the same examples."""
    torch.set_default_dtype(torch.float64)
    try:
        recipe = tiny("train.steps=2", "model.dropout=0.0", "train.accumulate=2", "train.clip=9e9")
        trained(recipe, tmp_path / "two")
        found = weights(tmp_path / "two")
        again = weights_after_whole_steps(recipe)
    finally:
        torch.set_default_dtype(torch.float32)
    for name, each in again.items():
        torch.testing.assert_close(found[f"weights.{name}"], each, rtol=1e-9, atol=1e-9)


def weights_after_whole_steps(recipe: Recipe) -> dict[str, torch.Tensor]:
    """The weights after two updates by hand: both batches of a step in one sum, divided by all their tokens."""
    from regard.data.prepare import gather
    from regard.train.job import assemble
    from regard.train.schedule import rate
    from regard.train.workers import Workers

    prepared = gather(recipe, Path("unused"))
    job = assemble(recipe, Path("unused"), Workers(torch.device("cpu")), prepared)
    adam = torch.optim.AdamW(job.model.parameters(), betas=(0.9, 0.98), eps=1e-9, weight_decay=0.0)
    steps = job.feed(512).epoch(0)
    for number in (1, 2):
        batches = next(steps)
        loss = torch.zeros(())
        for batch in batches:
            logits = job.model(batch.source, batch.target)
            loss = loss + torch.nn.functional.cross_entropy(
                logits, batch.labels_N, label_smoothing=recipe.train.smoothing, reduction="sum"
            )
        adam.zero_grad()
        torch.autograd.backward(loss / sum(batch.target_tokens for batch in batches))
        adam.param_groups[0]["lr"] = rate(recipe.train, number)
        adam.step()
    return {name: each.detach() for name, each in job.model.named_parameters()}


def test_patience_ends_a_run_that_does_not_get_better(tiny: Make, trained: Train, tmp_path: Path) -> None:
    events = trained(tiny("train.rate=1e-9", "train.patience=2", "train.steps=100", "train.every=1"), tmp_path)
    finished = events[-1]
    assert isinstance(finished, Finished)
    assert finished.reason == "patience"
    assert finished.step < 20


def test_time_ends_a_run_which_is_validated_and_saved_even_so(tiny: Make, trained: Train, tmp_path: Path) -> None:
    events = trained(tiny("train.minutes=1e-9", "train.steps=100"), tmp_path)
    assert kinds(events)[-3:] == ["Validated", "Saved", "Finished"]
    finished = events[-1]
    assert isinstance(finished, Finished)
    assert finished.reason == "time"
    assert finished.step < 100


def test_bleu_chooses_where_it_is_asked_to(tiny: Make, trained: Train, tmp_path: Path) -> None:
    validated = [
        event
        for event in trained(tiny("train.choose=bleu", "train.translate=auto"), tmp_path)
        if isinstance(event, Validated)
    ]
    assert all(event.scores[0].detail for event in validated)
    assert validated[0].best


def test_of_equal_bleu_the_lower_loss_is_the_better(tiny: Make, trained: Train, tmp_path: Path) -> None:
    """BLEU is 0 for long at first; that must not end a run, nor choose its first weights."""
    recipe = tiny("train.choose=bleu", "train.translate=auto", "train.patience=1", "train.rate=1e-3")
    events = trained(recipe, tmp_path)
    validated = [event for event in events if isinstance(event, Validated)]
    assert [event.scores[0].value for event in validated] == [0.0, 0.0, 0.0]
    assert [event.best for event in validated] == [True, True, True]
    finished = events[-1]
    assert isinstance(finished, Finished)
    assert (finished.reason, finished.best_step) == ("steps", 6)


def test_a_sample_has_nothing_that_a_terminal_would_obey() -> None:
    (shown,) = samples(["a\tb"], ["naïve \u200fأنا"], ["\x13\x1b[2J \x7f\x9b1m ok"])
    assert (shown.source, shown.reference) == ("a b", "naïve \u200fأنا")
    assert shown.translation == "��[2J ��1m ok"


def test_without_validation_text_the_last_weights_are_kept(tiny: Make, trained: Train, tmp_path: Path) -> None:
    recipe = tiny()
    recipe = recipe.model_copy(update={"data": recipe.data.model_copy(update={"valid": None})})
    events = trained(recipe, tmp_path)
    assert "Validated" not in kinds(events)
    saved, last = load_file(tmp_path / "model.safetensors"), weights(tmp_path)
    assert all(torch.equal(each, last[f"weights.{name}"]) for name, each in saved.items())


@pytest.mark.parametrize("word", ["train.patience=3", "train.schedule=plateau", "train.choose=bleu"])
def test_what_waits_for_a_validation_needs_text_for_it(word: str, tiny: Make, tmp_path: Path) -> None:
    recipe = tiny(word, "train.translate=auto")
    recipe = recipe.model_copy(update={"data": recipe.data.model_copy(update={"valid": None})})
    with pytest.raises(ValueError, match=rf"{word.partition('=')[0]} = .* needs text .* no data\.valid; name one"):
        next(train(recipe, tmp_path, "cpu"))


def test_the_mean_of_the_last_weights_is_taken_if_it_is_no_worse(tiny: Make, trained: Train, tmp_path: Path) -> None:
    events = trained(tiny("train.average=2", "train.rate=1e-4"), tmp_path)
    finished = events[-1]
    assert isinstance(finished, Finished)
    kept = [load_file(each) for each in sorted((tmp_path / "weights").glob("step-*"))]
    model = load_file(tmp_path / "model.safetensors")
    assert len(kept) == 2
    if finished.scores["weights"].startswith("mean"):
        means = {name: (kept[0][name] + kept[1][name]) / 2 for name in model}
        torch.testing.assert_close(model, means)
    else:
        assert all(torch.equal(each, kept[1][name]) for name, each in model.items())


def test_a_moving_average_lags_behind_the_weights(tiny: Make, trained: Train, tmp_path: Path) -> None:
    trained(tiny("train.ema=0.9"), tmp_path)
    last, model = weights(tmp_path), load_file(tmp_path / "model.safetensors")
    name = "output.weight" if "output.weight" in model else next(iter(model))
    assert torch.equal(model[name], last[f"average.{name}"])
    assert not torch.equal(model[name], last[f"weights.{name}"])


def test_only_so_many_checkpoints_are_kept(tiny: Make, trained: Train, tmp_path: Path) -> None:
    trained(tiny("train.keep=1"), tmp_path)
    assert [each.name for each in (tmp_path / CHECKPOINTS).iterdir()] == ["step-00000006"]


def test_auto_finds_a_batch_once_and_remembers_it(tiny: Make, trained: Train, tmp_path: Path) -> None:
    events = trained(tiny("train.tokens=auto"), tmp_path)
    assert any(isinstance(event, Noticed) and "tokens fit" in event.message for event in events)
    again = trained(tiny("train.tokens=auto", "train.steps=7"), tmp_path)
    assert not any(isinstance(event, Noticed) for event in again)
    place, _ = newest(tmp_path)
    assert place is not None
    assert json.loads((place / "notes.json").read_text())["standing"]["budget"] >= 1024


def test_a_loss_that_is_no_number_ends_with_a_word_on_what_to_do(tiny: Make, trained: Train, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"not a number.*between steps 1 and .*no checkpoint yet.*lower train.rate"):
        trained(tiny("train.rate=1e30", "train.warmup=0", "train.steps=50", "train.every=50"), tmp_path)


@pytest.mark.parametrize(
    ("ruined", "where"), [("1e12", "on data.valid after step 5"), ("1e300", "nor are the weights")]
)
def test_weights_that_an_update_has_ruined_are_not_kept(
    ruined: str, where: str, begun: Path, tiny: Make, trained: Train, tmp_path: Path
) -> None:
    """The loss of an update is that of the weights before it; what it did to them shows only afterwards."""
    run = Path(shutil.copytree(begun, tmp_path / "run"))
    recipe = tiny(f"train.rate={ruined}", "train.every=1", "train.average=2")
    (run / "recipe.toml").write_text(dump(recipe), encoding="utf-8")
    before = (run / "weights" / "best.safetensors").read_bytes()
    with pytest.raises(ValueError, match=rf"not a number.*{where}.*step-00000004, is whole.*lower train.rate"):
        trained(recipe, run)
    place, faults = newest(run)
    assert place is not None
    assert (place.name, faults) == ("step-00000004", [])
    assert (run / "weights" / "best.safetensors").read_bytes() == before
    assert not list((run / "weights").glob("step-*"))


@pytest.mark.parametrize(
    "word", ["train.optimiser=muon", "train.rdrop=2.0", "text.sampling=0.1", "train.precision=bfloat16"]
)
def test_every_way_of_learning_learns(word: str, tiny: Make, trained: Train, tmp_path: Path) -> None:
    events = trained(tiny(word), tmp_path)
    losses = [event.loss for event in events if isinstance(event, Validated)]
    assert losses[-1] < losses[0]


def test_a_run_begun_from_another_starts_with_its_weights(
    tiny: Make, trained: Train, once: Path, tmp_path: Path
) -> None:
    more = tiny(f"train.start='{once}'", 'text.symbols=["<2de>"]', "train.steps=1", "train.rate=1e-12")
    events = trained(more, tmp_path / "new")
    assert any(isinstance(event, Noticed) and "begun from" in event.message for event in events)
    old, new = load_file(once / "model.safetensors"), load_file(tmp_path / "new" / "model.safetensors")
    for name, each in old.items():
        torch.testing.assert_close(new[name][: each.shape[0]], each)
    started = next(event for event in events if isinstance(event, Started))
    assert started.vocabulary == (321, 321)
    assert started.recipe.text.symbols == ("<2de>",)


def test_a_run_begun_from_another_goes_on_when_that_one_is_gone(
    tiny: Make, trained: Train, once: Path, tmp_path: Path
) -> None:
    other = Path(shutil.copytree(once, tmp_path / "other"))
    told = (f"train.start='{other}'", 'text.symbols=["<2de>"]')
    trained(tiny(*told, "train.steps=1"), tmp_path / "new")
    shutil.rmtree(other)
    events = trained(tiny(*told, "train.steps=2"), tmp_path / "new")
    started = next(event for event in events if isinstance(event, Started))
    assert (started.step, started.vocabulary) == (1, (321, 321))
    with pytest.raises(ValueError, match="is not a run"):
        trained(tiny(*told), tmp_path / "newer")


def test_a_new_vocabulary_keeps_the_vectors_of_pieces_known_before(
    tiny: Make, trained: Train, once: Path, tmp_path: Path
) -> None:
    more = tiny(f"train.start='{once}'", "train.vocabulary=new", "text.size=330", "train.steps=1")
    more = more.model_copy(update={"train": more.train.model_copy(update={"rate": 1e-12})})
    trained(more, tmp_path / "new")
    one, other = load_bundle(once), load_bundle(tmp_path / "new")
    piece = one.tokenizers.source.piece(300)
    torch.testing.assert_close(
        one.model.encoder.embedding.weight[300],
        other.model.encoder.embedding.weight[other.tokenizers.source.id(piece)],
    )


@pytest.mark.parametrize("vocabulary", ["start", "new"])
def test_a_run_begun_from_another_model_says_what_differs_before_text_is_read(
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


def test_a_file_in_the_place_of_the_folder_is_left_alone(tiny: Make, tmp_path: Path) -> None:
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
