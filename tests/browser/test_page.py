"""Use the explorer in a real browser as a person would."""

import re
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

import numpy as np
import pytest
from tests.browser.conftest import PATIENCE, opened, playwright, serving, violations

from regard.data.phrasebook import phrases
from regard.explore import inspect
from regard.explore.tokens import tokenize_output
from regard.plot.fonts import JOINER
from regard.predict import Translator
from regard.serve.explorer_models import LoadedModels
from regard.tasks import load_translator
from regard.text import END

GERMAN = [phrase.source for phrase in phrases("de", "train", 20)]
ARABIC = [phrase.source for phrase in phrases("ar", "train", 20)]
FIRST, SECOND = GERMAN[:2]
LAST = "اأإآدذرزوؤةءً"
"""Arabic letters of the phrasebook that never join the next letter, and a combining mark on such a letter."""
VIEWS = ("workbench", "atlas", "stepper", "whatif", "beam", "maths", "positions")


@pytest.fixture(scope="session")
def german(memorised: Path) -> Translator:
    """Return a second copy of the model: the explorer's own copy must not be used at the same time."""
    return load_translator(memorised, "cpu")


@pytest.fixture(scope="session")
def arabic(memorised_arabic: Path) -> Translator:
    return load_translator(memorised_arabic, "cpu")


@pytest.fixture(autouse=True)
def long_timeouts() -> None:
    """Wait long for everything, because the machine may be busy."""
    playwright.expect.set_options(timeout=PATIENCE)


def link(address: str, **state: str) -> str:
    return f"{address}#" + "&".join(f"{name}={quote_plus(value)}" for name, value in state.items())


def expect(locator: Any) -> Any:
    return playwright.expect(locator)


def translation(page: Any) -> Any:
    return page.get_by_role("status", name="Translation")


def source(page: Any) -> Any:
    return page.get_by_role("textbox", name=re.compile("^Source"))


def focus(page: Any) -> Any:
    return page.get_by_label("Focus", exact=True)


def head(page: Any, layer: int, number: int) -> Any:
    name = re.compile(rf"^layer {layer}, head {number}\b")
    return page.get_by_role("grid", name="Layers and heads").get_by_role("gridcell", name=name)


def shown(page: Any, name: str) -> None:
    """Wait until the heat map shows this attention."""
    expect(page.get_by_role("region", name="Heat map").get_by_role("heading")).to_have_text(name)


def test_a_typed_sentence_is_translated_and_its_attention_drawn(page: Any, address: str, german: Translator) -> None:
    page.goto(link(address, model="german", source=SECOND, layer="2", head="1"))
    source(page).fill(FIRST)
    expected = german(FIRST, beam=1).text
    expect(translation(page)).to_have_text(expected)
    inspection = inspect(german, FIRST, expected)
    weights = inspection.weights["cross", 1][0]
    grid = page.get_by_role("grid", name="Attention weights")
    expect(grid).to_have_attribute("aria-rowcount", str(len(inspection.target.tokens)))
    expect(grid).to_have_attribute("aria-colcount", str(len(inspection.source.tokens)))
    expect(page.locator(".pair.stale")).to_have_count(0)
    brightness = page.evaluate(
        """([rows, columns]) => {
            const canvas = document.querySelector("[aria-label='Heat map'] canvas")
            const context = canvas.getContext('2d')
            const { data } = context.getImageData(0, 0, canvas.width, canvas.height)
            const middle = (place, count, length) => Math.floor((place + 0.5) * length / count)
            return Array.from({ length: rows }, (_, row) => Array.from({ length: columns }, (_, column) => {
                const at = middle(row, rows, canvas.height) * canvas.width + middle(column, columns, canvas.width)
                return data[4 * at] + data[4 * at + 1]
            }))
        }""",
        list(weights.shape),
    )
    # Cividis becomes brighter with the weight, so brightness and weights must correlate.
    assert np.corrcoef(np.ravel(brightness), np.sqrt(weights).ravel())[0, 1] > 0.99


def test_hovering_a_token_describes_its_attention_and_clicking_pins_it(
    page: Any, address: str, german: Translator
) -> None:
    page.goto(link(address, model="german", source=FIRST, layer="2", head="2"))
    expect(translation(page)).to_have_text(german(FIRST, beam=1).text)
    tokens = page.get_by_role("toolbar", name="Target tokens").get_by_role("button")
    tokens.nth(1).hover()
    inspection = inspect(german, FIRST, german(FIRST, beam=1).text)
    best = int(inspection.weights["cross", 1][1, 1].argmax())
    label = inspection.source.tokens[best]
    expect(focus(page)).to_contain_text(f"attends to '{label.text or label.piece}'")
    tokens.nth(1).click()
    expect(tokens.nth(1)).to_have_attribute("aria-pressed", "true")
    expect(page).to_have_url(re.compile("pin=query"))
    page.keyboard.press("Escape")
    expect(tokens.nth(1)).to_have_attribute("aria-pressed", "false")


def test_head_and_layer_change_by_mouse_and_by_keyboard(page: Any, address: str) -> None:
    page.goto(link(address, model="german", source=FIRST, layer="1", head="1"))
    shown(page, "Cross-attention, layer 1, head 1")
    head(page, 2, 2).click()
    shown(page, "Cross-attention, layer 2, head 2")
    page.keyboard.press("ArrowLeft")
    shown(page, "Cross-attention, layer 2, head 1")
    page.keyboard.press("ArrowUp")
    shown(page, "Cross-attention, layer 1, head 1")
    head(page, 1, 2).click(modifiers=["Shift"])
    shown(page, "Cross-attention, layer 1, head 1 + 2")
    page.get_by_role("radio", name="Encoder").check()
    shown(page, "Encoder self-attention, layer 1, head 1 + 2")


def test_arrow_keys_move_through_the_heat_map(page: Any, address: str) -> None:
    page.goto(link(address, model="german", source=FIRST, layer="1", head="1"))
    grid = page.get_by_role("grid", name="Attention weights")
    grid.focus()
    cell = grid.get_by_role("gridcell")
    first = cell.get_attribute("aria-label")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    expect(cell).to_have_attribute("aria-colindex", "2")
    assert cell.get_attribute("aria-label") != first
    expect(focus(page)).to_contain_text("rank")


def test_an_ablated_head_is_shown_as_a_difference_and_undone(page: Any, address: str, german: Translator) -> None:
    page.goto(link(address, model="german", source=FIRST, layer="1", head="1", view="whatif"))
    page.get_by_role("button", name="Zero", exact=True).click()
    expect(page.get_by_role("region", name="Changed tokens")).to_be_visible()
    shift = page.get_by_role("region", name="Change of log-probability").get_by_role("heading")
    expect(shift).to_have_text(re.compile(r"[−+]\d"))
    assert "0.00" not in shift.inner_text()
    # The weights of the ablated head itself stay the same.
    page.get_by_role("group", name="Heads whose weights changed most").get_by_role("button").first.click()
    expect(page.get_by_role("grid", name="Change of attention weights")).to_be_visible()
    page.keyboard.press("Control+z")
    expect(page.get_by_text("Nothing is changed yet.")).to_be_visible()
    expect(translation(page)).to_have_text(german(FIRST, beam=1).text)


def test_a_blocked_token_is_listed(page: Any, address: str) -> None:
    page.goto(link(address, model="german", source=FIRST, view="whatif"))
    page.get_by_role("toolbar", name="Block source tokens").get_by_role("button").first.click()
    expect(page.get_by_label("Changes", exact=True)).to_contain_text(re.compile("block", re.IGNORECASE))
    expect(page.get_by_role("region", name="Changed tokens")).to_be_visible()


def test_a_forced_candidate_begins_the_translation(page: Any, address: str, german: Translator) -> None:
    page.goto(link(address, model="german", source=FIRST, view="stepper"))
    expected = german(FIRST, beam=1).text
    expect(translation(page)).to_have_text(expected)
    other = page.get_by_role("button", name=re.compile(r"^force '.*' at step 1,")).nth(1)
    name = re.match(r"force '(.*)' at step", other.get_attribute("aria-label") or "")
    assert name is not None
    other.click()
    expect(page.get_by_label("Changes", exact=True)).to_contain_text("prefix")
    expect(translation(page)).not_to_have_text(expected)
    expect(page.get_by_role("toolbar", name="Target tokens").get_by_role("button").first).to_contain_text(name[1])
    page.get_by_role("button", name="Reset").click()
    expect(translation(page)).to_have_text(expected)


def test_arrow_keys_move_through_the_beam_tree_and_show_each_hypothesis(
    page: Any, address: str, german: Translator
) -> None:
    page.goto(link(address, model="german", source=FIRST, view="beam", beam="3"))
    nodes = page.get_by_role("treeitem")
    expect(nodes.first).to_be_attached()
    best = german(FIRST, beam=3).text
    chosen = page.get_by_role("region", name="Chosen hypothesis")
    page.get_by_role("region", name="Finished hypotheses").get_by_role("button").first.click()
    expect(chosen.get_by_role("heading").first).to_contain_text(best)
    expect(page.get_by_role("grid", name="Attention of this hypothesis")).to_be_visible()
    nodes.first.focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("[role=treeitem][aria-selected=true]")).to_have_attribute("aria-level", "2")
    page.keyboard.press("ArrowLeft")
    expect(page.locator("[role=treeitem][aria-selected=true]")).to_have_attribute("aria-level", "1")


def test_a_link_restores_the_whole_state(page: Any, address: str) -> None:
    page.goto(link(address, view="atlas", model="arabic", source=ARABIC[1], layer="2", head="2", part="decoder"))
    expect(page.get_by_role("button", name="Atlas")).to_have_attribute("aria-current", "page")
    expect(page.get_by_role("combobox", name="Model")).to_have_value("arabic")
    expect(source(page)).to_have_value(ARABIC[1])
    chosen = page.get_by_role("region", name="Chosen head").get_by_role("heading").first
    expect(chosen).to_have_text("Decoder self-attention, layer 2, head 2")
    page.get_by_role("grid", name="All layers and heads").focus()
    page.keyboard.press("ArrowLeft")
    expect(chosen).to_have_text("Decoder self-attention, layer 2, head 1")
    page.reload()
    expect(chosen).to_have_text("Decoder self-attention, layer 2, head 1")


def test_arabic_runs_right_to_left_and_stays_joined(page: Any, address: str, arabic: Translator) -> None:
    page.goto(link(address, model="arabic", source=ARABIC[0], layer="1", head="1"))
    expected = arabic(ARABIC[0], beam=1)
    expect(translation(page)).to_have_text(expected.text)
    expect(translation(page)).to_have_attribute("dir", "rtl")
    tokens = page.get_by_role("toolbar", name="Target tokens").get_by_role("button")
    tokenized = tokenize_output([*arabic.tokenizers["target"].encode(expected.text), END], arabic.tokenizers["target"])
    expect(tokens).to_have_count(len(tokenized.tokens))
    boxes = [tokens.nth(i).bounding_box() for i in range(2)]
    assert boxes[0]["x"] > boxes[1]["x"]
    texts = tokens.all_inner_texts()
    pieces = [token.piece for token in tokenized.tokens[:-1]]
    inside = [i for i in range(1, len(pieces)) if not pieces[i].startswith("▁") and pieces[i - 1] != "▁"]
    cut = [i for i in inside if pieces[i - 1][-1] not in LAST]
    assert cut, "a word is cut between two letters that join"
    assert all(texts[i].startswith(JOINER) and texts[i - 1].endswith(JOINER) for i in cut)
    assert not any(texts[i].startswith(JOINER) for i in set(inside) - set(cut))
    expect(page.get_by_role("toolbar", name="Source tokens")).to_have_attribute("dir", "ltr")


def test_the_page_handles_three_hundred_tokens(page: Any, address: str, german: Translator) -> None:
    page.goto(link(address, model="german", source=FIRST, layer="1", head="1", part="encoder"))
    long = " ".join([*GERMAN] * 9)
    while len(german.tokenizers["source"].encode(long)) > 300:
        long = long.rpartition(" ")[0]
    source(page).fill(long)
    tokens = page.get_by_role("toolbar", name="Source tokens").get_by_role("button")
    count = len(german.tokenizers["source"].encode(long)) + 1
    expect(tokens).to_have_count(count)
    grid = page.get_by_role("grid", name="Attention weights")
    expect(grid).to_have_attribute("aria-rowcount", str(count))
    expect(page.locator(".pair.stale")).to_have_count(0)
    tokens.nth(120).hover()
    expect(focus(page)).to_contain_text("attends to")
    page.get_by_role("button", name="Atlas").click()
    expect(page.get_by_role("grid", name="All layers and heads")).to_be_visible()
    # One element for each pair of tokens would be ninety thousand elements.
    assert page.evaluate("document.querySelectorAll('*').length") < 10 * count


def test_two_browsers_use_one_server(browser: Any, address: str, german: Translator) -> None:
    with opened(browser) as first, opened(browser) as second:
        first.goto(link(address, model="german", source=FIRST))
        second.goto(link(address, model="german", source=SECOND))
        for number in (2, 3, 4):
            source(first).fill(GERMAN[number])
            source(second).fill(GERMAN[-number])
        expect(translation(first)).to_have_text(german(GERMAN[4], beam=1).text)
        expect(translation(second)).to_have_text(german(GERMAN[-4], beam=1).text)


def test_the_page_reconnects_to_a_restarted_server(browser: Any, models: LoadedModels, german: Translator) -> None:
    # The browser reports a refused connection here, and nothing else.
    with opened(browser, "a-server-that-stops", faults=("WebSocket connection to", "ERR_CONNECTION_REFUSED")) as page:
        with serving(models) as address:
            page.goto(link(address, model="german", source=FIRST))
            expect(translation(page)).to_have_text(german(FIRST, beam=1).text)
            source(page).fill(SECOND)
        expect(page.get_by_role("alert")).to_contain_text("Connection lost")
        with serving(models, int(re.findall(r":(\d+)/", address)[0])):
            expect(page.get_by_role("alert")).to_have_count(0)
            expect(translation(page)).to_have_text(german(SECOND, beam=1).text)


def test_figures_are_saved_and_their_python_copied(browser: Any, address: str) -> None:
    with opened(browser, permissions=["clipboard-read", "clipboard-write"]) as page:
        page.goto(link(address, model="german", source=FIRST, layer="2", head="1"))
        shown(page, "Cross-attention, layer 2, head 1")
        page.get_by_role("button", name="Save", exact=True).click()
        with page.expect_download() as coming:
            page.get_by_role("button", name=re.compile("as PDF$")).first.click()
        assert Path(coming.value.path()).read_bytes().startswith(b"%PDF-")
        page.get_by_role("button", name="Copy Python").click()
        expect(page.get_by_text("Python copied")).to_be_visible()
        assert "layer=1" in page.evaluate("navigator.clipboard.readText()")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_view_is_accessible(page: Any, address: str, theme: str) -> None:
    page.goto(link(address, model="german", source=FIRST, layer="1", head="1", theme=theme))
    shown(page, "Cross-attention, layer 1, head 1")
    violations_found = []
    for name in VIEWS:
        page.evaluate("view => { location.hash = location.hash.replace(/view=[a-z]+&?/, '') + `&view=${view}` }", name)
        expect(page.locator("nav [aria-current=page]")).to_have_count(1)
        expect(page.locator("main .note", has_text="…")).to_have_count(0)
        violations_found += [(name, *violation) for violation in violations(page)]
    assert violations_found == []
