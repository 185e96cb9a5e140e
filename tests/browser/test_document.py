"""Use the explorer of a classifier in a real browser as a person would."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.browser.conftest import PATIENCE, opened, playwright, serving, violations
from tests.browser.test_page import expect, focus, link
from tests.classified import CLASSES, train_classifier

from regard.explore import ModelInfo
from regard.predict import TextClassifier
from regard.serve.explorer import page_folder
from regard.tasks import load_classifier

TEXT = "No dog sees the red cat. A cat runs. It is here."
ARABIC = "القطة حمراء جدا. A red dog."


@pytest.fixture(scope="session")
def classifier(classifier_run: Path) -> TextClassifier:
    """Return a second copy of the model: the explorer's own copy must not be used at the same time."""
    return load_classifier(classifier_run, "cpu")


@pytest.fixture(scope="module")
def address(classifier_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the address of a server with a hierarchical model, and one without attention weights."""
    if not (page_folder() / "index.html").is_file():
        pytest.skip("the page is not built here")
    mean = train_classifier(tmp_path_factory.mktemp("runs") / "mean", "rnn", "mean", several=True, steps=5)
    runs = {"han": classifier_run, "mean": mean}
    with serving({name: (load_classifier(run, "cpu"), ModelInfo(family=name)) for name, run in runs.items()}) as url:
        yield url


@pytest.fixture(autouse=True)
def long_timeouts() -> None:
    """Wait long for everything, because the machine may be busy."""
    playwright.expect.set_options(timeout=PATIENCE)


def sentence(page: Any, number: int) -> Any:
    """Return the button of a sentence, which is the first of its group; its words follow."""
    return page.get_by_role("group", name=f"Sentence {number}", exact=True).get_by_role("button")


def probability(page: Any, label: str) -> Any:
    return page.get_by_role("list", name="Classes").get_by_role("button", name=re.compile(f"^{label} "))


def signed(change: float, places: int = 2) -> str:
    """Return a change of a probability as the page shows it."""
    text = f"{change:.{places}f}"
    return text.replace("-", "") if float(text) == 0 else text.replace("-", "−") if change < 0 else f"+{text}"


def test_a_typed_text_shows_its_classes_its_weights_and_the_effects_of_erasing(
    page: Any, address: str, classifier: TextClassifier
) -> None:
    page.goto(link(address, model="han", text="A cat."))
    page.get_by_role("textbox", name="Text").fill(TEXT)
    result = classifier(TEXT, attention=True)
    assert result.words is not None
    assert result.sentences is not None
    expect(page.get_by_label("Prediction")).to_have_text(f"{result.label} probability {result.probability:.4f}")
    for label in CLASSES:
        expect(probability(page, label)).to_have_accessible_name(f"{label} {result.probabilities[label]:.4f}")
    expect(page.get_by_role("table", name="Largest effects").get_by_role("row")).not_to_have_count(2)
    rests = (
        "A cat runs. It is here.",
        "No dog sees the red cat.\n\nIt is here.",
        "No dog sees the red cat. A cat runs.",
    )
    for number, (span, rest) in enumerate(zip(result.sentences, rests, strict=True), 1):
        effect = classifier(rest).probabilities[result.label] - result.probability
        weight = f"{span.weight:.2f}" if span.weight >= 0.005 else "< 0.01"
        expect(sentence(page, number).first).to_have_text(re.compile(rf"{weight}\s*{re.escape(signed(effect))}$"))
        expect(sentence(page, number)).to_have_count(1 + len(TEXT[span.start : span.end].split()))
    sentence(page, 1).nth(5).hover()
    ranks = sorted((span.weight for span in result.words), reverse=True)
    effect = classifier("No dog sees the cat.\n\nA cat runs.\n\nIt is here.").probabilities[result.label]
    red = result.words[4].weight
    change = signed(effect - result.probability, 3)
    expect(focus(page)).to_have_text(
        f"word 'red', weight {red:.3f}, rank {ranks.index(red) + 1} of 12; "
        f"without it, p({result.label}) changes by {change}"
    )
    row = page.get_by_role("table", name="Largest effects").get_by_role("row", name="red")
    expect(row).to_have_class(re.compile("focused"))
    legend = page.get_by_role("figure", name=re.compile("^Legend of weights"))
    largest = max(span.weight for span in result.sentences)
    expect(legend).to_have_accessible_name(
        f"Legend of weights: words from 0 to {ranks[0]:.3f}, sentences from 0 to {largest:.3f}, sqrt scale"
    )


def test_sentences_and_words_are_erased_by_click_and_key_and_put_back(
    page: Any, address: str, classifier: TextClassifier
) -> None:
    page.goto(link(address, model="han", text=TEXT))
    whole = classifier(TEXT).probabilities
    expect(probability(page, "red")).to_have_accessible_name(f"red {whole['red']:.4f}")
    sentence(page, 2).first.click()
    without = classifier("No dog sees the red cat.\n\nIt is here.").probabilities
    expect(probability(page, "red")).to_have_accessible_name(
        f"red {without['red']:.4f} {signed(without['red'] - whole['red'], 4)}"
    )
    expect(sentence(page, 2).first).to_have_attribute("aria-pressed", "true")
    expect(page.get_by_label("Changes", exact=True)).to_contain_text("sentence 2 erased")
    page.keyboard.press("ArrowUp")
    for _ in range(5):
        page.keyboard.press("ArrowRight")
    expect(sentence(page, 1).nth(5)).to_be_focused()
    page.keyboard.press("Enter")
    less = classifier("No dog sees the cat.\n\nIt is here.")
    expect(probability(page, "red")).to_have_accessible_name(re.compile(f"^red {less.probabilities['red']:.4f} "))
    assert "changes=erase:sentence.2;erase:word.5" in page.evaluate("location.hash")
    page.reload()
    expect(page.get_by_label("Prediction")).to_have_text(f"{less.label} probability {less.probability:.4f}")
    expect(sentence(page, 1).nth(5)).to_have_attribute("aria-pressed", "true")
    sentence(page, 1).nth(5).click()
    expect(probability(page, "red")).to_have_accessible_name(re.compile(f"^red {without['red']:.4f} "))
    page.keyboard.press("Control+z")
    expect(probability(page, "red")).to_have_accessible_name(re.compile(f"^red {less.probabilities['red']:.4f} "))
    page.get_by_role("button", name="Reset").click()
    expect(probability(page, "red")).to_have_accessible_name(f"red {whole['red']:.4f}")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_document_is_accessible_with_and_without_changes(page: Any, address: str, theme: str) -> None:
    found = []
    for model in ("han", "mean"):
        page.goto(link(address, model=model, text=TEXT, theme=theme, changes="erase:word.2;erase:sentence.3"))
        expect(sentence(page, 3).first).to_have_attribute("aria-pressed", "true")
        expect(page.get_by_text("computing …")).to_have_count(0)
        found += violations(page)
        page.get_by_role("button", name="Reset").click()
        expect(sentence(page, 3).first).to_have_attribute("aria-pressed", "false")
        found += violations(page)
    assert found == []


def test_a_model_without_weights_shows_effects_on_the_chosen_class_in_any_direction(page: Any, address: str) -> None:
    page.goto(link(address, model="mean", text=ARABIC))
    expect(page.get_by_role("heading", name="The effect of erasing")).to_be_visible()
    expect(page.get_by_role("table", name="Largest weights")).to_have_count(0)
    expect(page.get_by_role("figure", name=re.compile("^Legend of weights"))).to_have_count(0)
    probability(page, "green").click()
    expect(page.get_by_role("figure", name=re.compile("of the probability of green"))).to_be_visible()
    assert "class=green" in page.evaluate("location.hash")
    expect(page.get_by_role("toolbar", name="Sentences and words")).to_have_attribute("dir", "rtl")
    directions = page.locator(".sentence p").evaluate_all("lines => lines.map((line) => line.dir)")
    assert directions == ["rtl", "ltr"]


def test_a_saved_file_shows_a_document_offline(browser: Any, classifier: TextClassifier, tmp_path: Path) -> None:
    file = classifier.look(TEXT).to_html(tmp_path / "look.html")
    result = classifier(TEXT)
    with opened(browser, "a-document-offline", offline=True) as page:
        page.goto(file.as_uri())
        expect(page.get_by_label("Prediction")).to_have_text(f"{result.label} probability {result.probability:.4f}")
        expect(page.get_by_role("table", name="Largest effects").get_by_role("row")).not_to_have_count(2)
        sentence(page, 1).first.click()
        expect(page.get_by_text("This is a recording")).to_be_visible()
