"""A run that the first version of the file formats wrote: it opens, translates as before, and trains further.

`tests/fixtures/run_of_version_1` is a tiny phrasebook model with a checkpoint, trained for 400 steps before records had
named fields. The expected values below were printed by the version that trained it.
"""

import shutil
from pathlib import Path

import pytest

from regard.recipe import load
from regard.tasks import load_bundle, load_translator
from regard.train.events import Event, Progress, Started, Validated
from regard.train.loop import train

OLD_RUN = Path(__file__).parents[1] / "fixtures" / "run_of_version_1"

TRANSLATIONS = {
    1: [
        ("we have called a famous driver", "Wir sein Radihrert", -6.6480),
        ("the dog that chased a big hen is friendly", "Der Fl, dass kaufte die Flichen", -7.7726),
        ("the women swam slowly", "Der Bauer kannte die Flich", -7.4871),
        ("Samir is a doctor", "Samir ist dem St", -5.4189),
    ],
    5: [
        ("we have called a famous driver", "Wir wurde am", -5.2985),
        (
            "the king did not turn off the radio because he was too sad",
            "Die Schwester konnte die Tas nicht, weil er zu groß war",
            -5.3152,
        ),
        ("the women swam slowly", "Der Fahrer sein", -6.4025),
        ("Samir is a doctor", "Samir wurde", -4.5634),
    ],
}


@pytest.mark.parametrize("beam", TRANSLATIONS)
def test_it_translates_as_it_did(beam: int) -> None:
    translator = load_translator(OLD_RUN, "cpu", "float32")
    sources = [source for source, _, _ in TRANSLATIONS[beam]]
    translations = translator(sources, beam=beam)
    assert [translation.text for translation in translations] == [text for _, text, _ in TRANSLATIONS[beam]]
    scores = [score for _, _, score in TRANSLATIONS[beam]]
    assert [translation.score for translation in translations] == pytest.approx(scores, abs=1e-3)


def test_it_is_a_translation_run_with_its_fields_and_scores() -> None:
    bundle = load_bundle(OLD_RUN)
    assert bundle.recipe.task == "translation"
    assert list(bundle.tokenizers) == ["source", "target"]


def test_training_continues_from_its_checkpoint(tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(OLD_RUN, run)
    recipe = load(run / "recipe.toml", ["train.steps=402", "train.every=2"])
    events: list[Event] = list(train(recipe, run, "cpu"))
    started = next(event for event in events if isinstance(event, Started))
    progress = next(event for event in events if isinstance(event, Progress))
    validated = [event for event in events if isinstance(event, Validated)]
    assert started.step == 400
    assert progress.step == 401
    assert progress.loss == pytest.approx(3.478, abs=5e-3)
    assert [event.step for event in validated] == [402]
    assert load_translator(run, "cpu")("Samir is a doctor").text
