"""Use the explorer of a language model in a real browser as a person would."""

import re
from pathlib import Path
from typing import Any

import pytest
from tests.browser.conftest import PATIENCE, opened, playwright
from tests.browser.test_page import VIEWS, expect, focus, head, link, shown
from tests.conftest import ROOT

from regard.data.phrasebook import phrases
from regard.explore import inspect
from regard.predict import TextGenerator
from regard.tasks import load_generator

SENTENCES = [phrase.source for phrase in phrases("de", "train", 20)]
PROMPTS = [" ".join(sentence.split()[:3]) for sentence in SENTENCES]

PICTURE = ROOT / "build" / "browser" / "language-model"
"""Folder of the screenshots of all views."""


@pytest.fixture(scope="session")
def generator(memorised_text: Path) -> TextGenerator:
    """Return a second copy of the model: the explorer's own copy must not be used at the same time."""
    return load_generator(memorised_text, "cpu")


@pytest.fixture(autouse=True)
def long_timeouts() -> None:
    """Wait long for everything, because the machine may be busy."""
    playwright.expect.set_options(timeout=PATIENCE)


def continuation(page: Any) -> Any:
    return page.get_by_role("status", name="Continuation")


def prompt(page: Any) -> Any:
    return page.get_by_role("textbox", name=re.compile("^Prompt"))


def continued(generator: TextGenerator, text: str) -> str:
    return str(generator(text, beam=1, max_tokens=30))


def view(page: Any, name: str) -> None:
    page.get_by_role("navigation", name="Views").get_by_role("button", name=name).click()


def test_a_typed_prompt_is_continued_and_its_attention_drawn(page: Any, address: str, generator: TextGenerator) -> None:
    page.goto(link(address, model="english", text=PROMPTS[1], layer="1", head="1"))
    prompt(page).fill(PROMPTS[0])
    text = continued(generator, PROMPTS[0])
    expect(continuation(page)).to_have_text(text)
    shown(page, "Self-attention, layer 1, head 1")
    tokens = page.get_by_role("toolbar", name="Tokens", exact=True).get_by_role("button")
    prompt_ids = generator.tokenizer.encode(PROMPTS[0])
    for position in range(len(prompt_ids)):
        expect(tokens.nth(position)).to_have_attribute("data-mark", "prompt")
    expect(tokens.nth(len(prompt_ids))).not_to_have_attribute("data-mark", "prompt")
    grid = page.get_by_role("grid", name="Attention weights")
    expect(grid).to_have_attribute("aria-rowcount", str(tokens.count()))
    tokens.nth(2).hover()
    best = int(inspect(generator, PROMPTS[0], text[len(PROMPTS[0]) :]).weights["decoder", 0][0, 2].argmax())
    expect(focus(page)).to_contain_text(f"attends to '{['<s>', *tokens.all_inner_texts()][best]}'")


def test_keys_after_the_query_are_left_empty(page: Any, address: str, generator: TextGenerator) -> None:
    page.goto(link(address, model="english", text=PROMPTS[0], layer="2", head="2"))
    expect(continuation(page)).to_have_text(continued(generator, PROMPTS[0]))
    shown(page, "Self-attention, layer 2, head 2")
    expect(page.locator(".pair.stale")).to_have_count(0)
    opaque = page.evaluate(
        """() => {
            const canvas = document.querySelector("[aria-label='Heat map'] canvas")
            const size = Number(document.querySelector("[aria-label='Attention weights']").ariaRowCount)
            const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height)
            const middle = (place, length) => Math.floor((place + 0.5) * length / size)
            return Array.from({ length: size }, (_, row) => Array.from({ length: size }, (_, column) =>
                data[4 * (middle(row, canvas.height) * canvas.width + middle(column, canvas.width)) + 3] > 0))
        }"""
    )
    assert opaque == [[column <= row for column in range(len(opaque))] for row in range(len(opaque))]


def test_every_view_shows_a_language_model_and_mentions_no_source_or_target(
    page: Any, address: str, generator: TextGenerator
) -> None:
    page.goto(link(address, model="english", text=PROMPTS[0]))
    expect(continuation(page)).to_have_text(continued(generator, PROMPTS[0]))
    for name in VIEWS:
        page.evaluate("view => { location.hash = location.hash.replace(/view=[a-z]+&?/, '') + `&view=${view}` }", name)
        expect(page.locator("nav [aria-current=page]")).to_have_count(1)
        expect(page.locator("main .note", has_text="…")).to_have_count(0)
        text = page.evaluate(
            """() => {
                const body = document.body.cloneNode(true)
                body.querySelectorAll('option').forEach((option) => option.remove())
                const labelled = [...body.querySelectorAll('[aria-label], [title]')]
                return [body.textContent, ...labelled.map((part) => `${part.ariaLabel} ${part.title}`)].join(' ')
            }"""
        )
        assert re.findall(r"(?i)\w*(?:source|target|translat|cross-attention|encoder|decoder)\w*", text) == [], name
        PICTURE.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=PICTURE / f"{name}.png")


def test_heads_are_switched_and_steps_show_alternatives(page: Any, address: str, generator: TextGenerator) -> None:
    page.goto(link(address, model="english", text=PROMPTS[0], layer="1", head="1"))
    text = continued(generator, PROMPTS[0])
    expect(continuation(page)).to_have_text(text)
    head(page, 2, 2).click()
    shown(page, "Self-attention, layer 2, head 2")
    page.keyboard.press("ArrowLeft")
    shown(page, "Self-attention, layer 2, head 1")
    view(page, "Stepper")
    first = len(generator.tokenizer.encode(PROMPTS[0])) + 1
    candidates = page.get_by_role("region", name="Candidates", exact=True)
    expect(candidates.get_by_role("heading")).to_have_text(f"Step {first}: candidates")
    page.get_by_role("button", name="Step forward").click()
    expect(candidates.get_by_role("heading")).to_have_text(f"Step {first + 1}: candidates")
    weights = page.get_by_role("list", name="Weights at this step").get_by_role("listitem")
    expect(weights).to_have_count(first + 1)
    page.get_by_role("button", name=re.compile(rf"^force '.*' at step {first},")).nth(1).click()
    expect(page.get_by_label("Changes", exact=True)).to_contain_text("forced")
    expect(continuation(page)).not_to_have_text(text)
    page.get_by_role("button", name="Reset").click()
    expect(continuation(page)).to_have_text(text)


def test_the_computation_of_a_head_and_the_positions_are_shown(page: Any, address: str) -> None:
    page.goto(link(address, model="english", text=PROMPTS[0], layer="1", head="2", view="maths"))
    scores = page.get_by_role("region", name="Scores and weights")
    expect(scores.get_by_role("group", name="Stage scores")).to_be_visible()
    expect(scores.get_by_text("1, masked").first).to_be_attached()
    expect(scores.get_by_role("group", name="Calculation")).to_contain_text("weight = e^")
    page.get_by_role("button", name="Next query").click()
    expect(page.get_by_text("after reading")).to_be_visible()
    view(page, "Positions")
    expect(page.get_by_role("grid", name="Sinusoidal positions", exact=True)).to_be_visible()


def test_an_ablated_head_changes_the_probability_of_the_continuation(
    page: Any, address: str, generator: TextGenerator
) -> None:
    page.goto(link(address, model="english", text=PROMPTS[0], layer="1", head="1", view="whatif"))
    expect(continuation(page)).to_have_text(continued(generator, PROMPTS[0]))
    expect(page.get_by_role("region", name="Block source tokens")).to_have_count(0)
    page.get_by_role("button", name="Zero", exact=True).click()
    shift = page.get_by_role("region", name="Change of log-probability")
    expect(shift.get_by_role("heading")).to_have_text(re.compile(r"[−+]\d"))
    expect(page.get_by_label("Changes", exact=True)).to_contain_text("layer 1, head 1 set to zero")
    page.keyboard.press("Control+z")
    expect(page.get_by_text("Nothing is changed yet.")).to_be_visible()


def test_the_beam_tree_starts_after_the_prompt(page: Any, address: str, generator: TextGenerator) -> None:
    page.goto(link(address, model="english", text=PROMPTS[0], view="beam", beam="3"))
    best = generator(PROMPTS[0], beam=3, max_tokens=30)
    page.get_by_role("region", name="Finished hypotheses").get_by_role("button").first.click()
    chosen = page.get_by_role("region", name="Chosen hypothesis")
    expect(chosen.get_by_role("heading").first).to_have_text(best.text.strip())
    expect(page.get_by_role("grid", name="Attention of this hypothesis")).to_be_visible()


def test_the_text_of_each_task_stays_when_the_model_changes(page: Any, address: str) -> None:
    page.goto(link(address, model="german", source=SENTENCES[0]))
    expect(page.get_by_role("status", name="Translation")).not_to_be_empty()
    page.get_by_role("combobox", name="Model").select_option("english")
    prompt(page).fill(PROMPTS[2])
    expect(continuation(page)).to_contain_text(PROMPTS[2])
    page.get_by_role("combobox", name="Model").select_option("german")
    expect(page.get_by_role("textbox", name=re.compile("^Source"))).to_have_value(SENTENCES[0])
    page.get_by_role("combobox", name="Model").select_option("english")
    expect(prompt(page)).to_have_value(PROMPTS[2])


def test_a_saved_file_shows_a_language_model_offline(browser: Any, generator: TextGenerator, tmp_path: Path) -> None:
    file = generator.look(PROMPTS[0], state="layer=2&head=1").to_html(tmp_path / "look.html")
    with opened(browser, "a-language-model-offline", offline=True) as page:
        page.goto(file.as_uri())
        expect(continuation(page)).to_have_text(continued(generator, PROMPTS[0]))
        shown(page, "Self-attention, layer 2, head 1")
        for name, region in (("Beam tree", "Finished hypotheses"), ("The maths", "Scores and weights")):
            view(page, name)
            expect(page.get_by_role("region", name=region)).to_be_visible()
