"""What a person does with the explorer, done in a real browser."""

import re
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

import numpy as np
import pytest
from tests.browser.conftest import PATIENCE, opened, playwright, serving
from tests.conftest import ROOT

from regard.analysis.look import read_pair
from regard.analysis.look.tokens import target_side
from regard.data.phrasebook import phrases
from regard.plot.lettering import JOINER
from regard.serve.look import Known
from regard.translator import Translator, load

GERMAN = [phrase.source for phrase in phrases("de", "train", 20)]
ARABIC = [phrase.source for phrase in phrases("ar", "train", 20)]
FIRST, SECOND = GERMAN[:2]
LAST = "اأإآدذرزوؤةءً"
"""Letters of the phrasebook's Arabic that never join the one after them; a mark on such a letter stands among them."""
VIEWS = ("workbench", "atlas", "stepper", "whatif", "beam", "maths", "positions")

# One browser and one pair of models serve them all, so one worker runs them all.
pytestmark = pytest.mark.xdist_group("browser")


@pytest.fixture(scope="session")
def german(memorised: Path) -> Translator:
    """The same model once more, because the one that is looked at is nobody else's to use meanwhile."""
    return load(memorised, "cpu")


@pytest.fixture(scope="session")
def arabic(memorised_arabic: Path) -> Translator:
    return load(memorised_arabic, "cpu")


@pytest.fixture(autouse=True)
def patient() -> None:
    """Nothing is timed here; cores may be busy."""
    playwright.expect.set_options(timeout=PATIENCE)


def link(address: str, **state: str) -> str:
    return f"{address}#" + "&".join(f"{name}={quote_plus(value)}" for name, value in state.items())


def seen(locator: Any) -> Any:
    return playwright.expect(locator)


def translation(page: Any) -> Any:
    return page.get_by_role("status", name="Translation")


def source(page: Any) -> Any:
    return page.get_by_role("textbox", name=re.compile("^Source"))


def live(page: Any) -> Any:
    return page.get_by_label("Looked at")


def head(page: Any, layer: int, number: int) -> Any:
    name = re.compile(rf"^layer {layer}, head {number}\b")
    return page.get_by_role("grid", name="Layers and heads").get_by_role("gridcell", name=name)


def shown(page: Any, name: str) -> None:
    """The heat map is the one of this name."""
    seen(page.get_by_role("region", name="Heat map").get_by_role("heading")).to_have_text(name)


def test_a_typed_sentence_is_translated_and_its_attention_drawn(page: Any, address: str, german: Translator) -> None:
    page.goto(link(address, model="german", source=SECOND, layer="2", head="1"))
    source(page).fill(FIRST)
    said = german(FIRST, beam=1).text
    seen(translation(page)).to_have_text(said)
    reading = read_pair(german, FIRST, said)
    weights = reading.weights["cross", 1][0]
    grid = page.get_by_role("grid", name="Attention weights")
    seen(grid).to_have_attribute("aria-rowcount", str(len(reading.target.pieces)))
    seen(grid).to_have_attribute("aria-colcount", str(len(reading.source.pieces)))
    seen(page.locator(".faces.stale")).to_have_count(0)
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
    # Cividis grows brighter with the weight: what is painted must be in the order of what the model has.
    assert np.corrcoef(np.ravel(brightness), np.sqrt(weights).ravel())[0, 1] > 0.99


def test_hovering_a_word_says_where_it_looks_and_clicking_pins_it(page: Any, address: str, german: Translator) -> None:
    page.goto(link(address, model="german", source=FIRST, layer="2", head="2"))
    seen(translation(page)).to_have_text(german(FIRST, beam=1).text)
    tokens = page.get_by_role("toolbar", name="Target tokens").get_by_role("button")
    tokens.nth(1).hover()
    reading = read_pair(german, FIRST, german(FIRST, beam=1).text)
    best = int(reading.weights["cross", 1][1, 1].argmax())
    label = reading.source.pieces[best]
    seen(live(page)).to_contain_text(f"looks at '{label.text or label.piece}'")
    tokens.nth(1).click()
    seen(tokens.nth(1)).to_have_attribute("aria-pressed", "true")
    seen(page).to_have_url(re.compile("pin=query"))
    page.keyboard.press("Escape")
    seen(tokens.nth(1)).to_have_attribute("aria-pressed", "false")


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


def test_arrow_keys_walk_the_heat_map(page: Any, address: str) -> None:
    page.goto(link(address, model="german", source=FIRST, layer="1", head="1"))
    grid = page.get_by_role("grid", name="Attention weights")
    grid.focus()
    cell = grid.get_by_role("gridcell")
    first = cell.get_attribute("aria-label")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    seen(cell).to_have_attribute("aria-colindex", "2")
    assert cell.get_attribute("aria-label") != first
    seen(live(page)).to_contain_text("rank")


def test_a_silenced_head_is_shown_as_a_difference_and_undone(page: Any, address: str, german: Translator) -> None:
    page.goto(link(address, model="german", source=FIRST, layer="1", head="1", view="whatif"))
    page.get_by_role("button", name="Silence", exact=True).click()
    seen(page.get_by_role("region", name="Changed tokens")).to_be_visible()
    shift = page.get_by_role("region", name="Change of log-probability").get_by_role("heading")
    seen(shift).to_have_text(re.compile(r"[−+]\d"))
    assert "0.00" not in shift.inner_text()
    seen(page.get_by_role("grid", name="Change of attention weights")).to_be_visible()
    page.keyboard.press("Control+z")
    seen(page.get_by_text("Nothing is changed yet.")).to_be_visible()
    seen(translation(page)).to_have_text(german(FIRST, beam=1).text)


def test_a_blocked_word_is_marked_and_named(page: Any, address: str) -> None:
    page.goto(link(address, model="german", source=FIRST, view="whatif"))
    page.get_by_role("toolbar", name="Block source tokens").get_by_role("button").first.click()
    seen(page.get_by_label("Changes", exact=True)).to_contain_text(re.compile("block", re.IGNORECASE))
    seen(page.get_by_role("region", name="Changed tokens")).to_be_visible()


def test_a_forced_candidate_begins_the_translation(page: Any, address: str, german: Translator) -> None:
    page.goto(link(address, model="german", source=FIRST, view="stepper"))
    said = german(FIRST, beam=1).text
    seen(translation(page)).to_have_text(said)
    other = page.get_by_role("button", name=re.compile(r"^force '.*' at step 1,")).nth(1)
    name = re.match(r"force '(.*)' at step", other.get_attribute("aria-label") or "")
    assert name is not None
    other.click()
    seen(page.get_by_label("Changes", exact=True)).to_contain_text("begins with")
    seen(translation(page)).not_to_have_text(said)
    seen(page.get_by_role("toolbar", name="Target tokens").get_by_role("button").first).to_contain_text(name[1])
    page.get_by_role("button", name="Reset").click()
    seen(translation(page)).to_have_text(said)


def test_the_beam_tree_is_walked_and_shows_each_hypothesis(page: Any, address: str, german: Translator) -> None:
    page.goto(link(address, model="german", source=FIRST, view="beam", beam="3"))
    nodes = page.get_by_role("treeitem")
    seen(nodes.first).to_be_attached()
    best = german(FIRST, beam=3).text
    chosen = page.get_by_role("region", name="Chosen hypothesis")
    page.get_by_role("region", name="Finished translations").get_by_role("button").first.click()
    seen(chosen.get_by_role("heading").first).to_contain_text(best)
    seen(page.get_by_role("grid", name="Attention of this hypothesis")).to_be_visible()
    nodes.first.focus()
    page.keyboard.press("ArrowRight")
    seen(page.locator("[role=treeitem][aria-selected=true]")).to_have_attribute("aria-level", "2")
    page.keyboard.press("ArrowLeft")
    seen(page.locator("[role=treeitem][aria-selected=true]")).to_have_attribute("aria-level", "1")


def test_a_link_restores_all_it_was_made_of(page: Any, address: str) -> None:
    page.goto(link(address, view="atlas", model="arabic", source=ARABIC[1], layer="2", head="2", part="decoder"))
    seen(page.get_by_role("button", name="Atlas")).to_have_attribute("aria-current", "page")
    seen(page.get_by_role("combobox", name="Model")).to_have_value("arabic")
    seen(source(page)).to_have_value(ARABIC[1])
    chosen = page.get_by_role("region", name="Chosen head").get_by_role("heading").first
    seen(chosen).to_have_text("Decoder self-attention, layer 2, head 2")
    page.get_by_role("grid", name="All layers and heads").focus()
    page.keyboard.press("ArrowLeft")
    seen(chosen).to_have_text("Decoder self-attention, layer 2, head 1")
    page.reload()
    seen(chosen).to_have_text("Decoder self-attention, layer 2, head 1")


def test_arabic_runs_right_to_left_and_stays_joined(page: Any, address: str, arabic: Translator) -> None:
    page.goto(link(address, model="arabic", source=ARABIC[0], layer="1", head="1"))
    said = arabic(ARABIC[0], beam=1)
    seen(translation(page)).to_have_text(said.text)
    seen(translation(page)).to_have_attribute("dir", "rtl")
    tokens = page.get_by_role("toolbar", name="Target tokens").get_by_role("button")
    side = target_side(arabic.tokenizers.target.encode(said.text), arabic.tokenizers.target)
    seen(tokens).to_have_count(len(side.pieces))
    places = [tokens.nth(at).bounding_box() for at in range(2)]
    assert places[0]["x"] > places[1]["x"]
    texts = tokens.all_inner_texts()
    pieces = [each.piece for each in side.pieces[:-1]]
    inside = [at for at in range(1, len(pieces)) if not pieces[at].startswith("▁") and pieces[at - 1] != "▁"]
    cut = [at for at in inside if pieces[at - 1][-1] not in LAST]
    assert cut, "a word is cut between two letters that join"
    assert all(texts[at].startswith(JOINER) and texts[at - 1].endswith(JOINER) for at in cut)
    assert not any(texts[at].startswith(JOINER) for at in set(inside) - set(cut))
    seen(page.get_by_role("toolbar", name="Source tokens")).to_have_attribute("dir", "ltr")


def test_three_hundred_tokens_leave_the_page_alive(page: Any, address: str, german: Translator) -> None:
    page.goto(link(address, model="german", source=FIRST, layer="1", head="1", part="encoder"))
    long = " ".join([*GERMAN] * 9)
    while len(german.tokenizers.source.encode(long)) > 300:
        long = long.rpartition(" ")[0]
    source(page).fill(long)
    tokens = page.get_by_role("toolbar", name="Source tokens").get_by_role("button")
    count = len(german.tokenizers.source.encode(long)) + 1
    seen(tokens).to_have_count(count)
    grid = page.get_by_role("grid", name="Attention weights")
    seen(grid).to_have_attribute("aria-rowcount", str(count))
    seen(page.locator(".faces.stale")).to_have_count(0)
    tokens.nth(120).hover()
    seen(live(page)).to_contain_text("looks at")
    page.get_by_role("button", name="Atlas").click()
    seen(page.get_by_role("grid", name="All layers and heads")).to_be_visible()
    # One element a pair would be ninety thousand of them.
    assert page.evaluate("document.querySelectorAll('*').length") < 10 * count


def test_two_browsers_look_at_once(browser: Any, address: str, german: Translator) -> None:
    with opened(browser) as one, opened(browser) as other:
        one.goto(link(address, model="german", source=FIRST))
        other.goto(link(address, model="german", source=SECOND))
        for number in (2, 3, 4):
            source(one).fill(GERMAN[number])
            source(other).fill(GERMAN[-number])
        seen(translation(one)).to_have_text(german(GERMAN[4], beam=1).text)
        seen(translation(other)).to_have_text(german(GERMAN[-4], beam=1).text)


def test_a_server_that_stops_is_told_of_and_found_again(browser: Any, models: Known, german: Translator) -> None:
    # A refused connection is what the browser must complain of here, and nothing else.
    with opened(browser, "a-server-that-stops", faults=("WebSocket connection to", "ERR_CONNECTION_REFUSED")) as page:
        with serving(models) as address:
            page.goto(link(address, model="german", source=FIRST))
            seen(translation(page)).to_have_text(german(FIRST, beam=1).text)
            source(page).fill(SECOND)
        seen(page.get_by_role("alert")).to_contain_text("Connection lost")
        with serving(models, int(re.findall(r":(\d+)/", address)[0])):
            seen(page.get_by_role("alert")).to_have_count(0)
            seen(translation(page)).to_have_text(german(SECOND, beam=1).text)


def test_figures_and_their_python_can_be_had_from_the_page(browser: Any, address: str) -> None:
    with opened(browser, permissions=["clipboard-read", "clipboard-write"]) as page:
        page.goto(link(address, model="german", source=FIRST, layer="2", head="1"))
        shown(page, "Cross-attention, layer 2, head 1")
        page.get_by_role("button", name="Save", exact=True).click()
        with page.expect_download() as coming:
            page.get_by_role("button", name=re.compile("as PDF$")).first.click()
        assert Path(coming.value.path()).read_bytes().startswith(b"%PDF-")
        page.get_by_role("button", name="Copy Python").click()
        seen(page.get_by_text("Python copied")).to_be_visible()
        assert "layer=1" in page.evaluate("navigator.clipboard.readText()")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_view_can_be_used_by_everybody(page: Any, address: str, theme: str) -> None:
    axe = ROOT / "web" / "node_modules" / "axe-core" / "axe.min.js"
    if not axe.is_file():
        pytest.skip("axe-core is not installed; it is a development dependency of web/")
    page.goto(link(address, model="german", source=FIRST, layer="1", head="1", theme=theme))
    shown(page, "Cross-attention, layer 1, head 1")
    page.evaluate(axe.read_text(encoding="utf-8"))
    found = []
    for name in VIEWS:
        page.evaluate("view => { location.hash = location.hash.replace(/view=[a-z]+&?/, '') + `&view=${view}` }", name)
        seen(page.locator("nav [aria-current=page]")).to_have_count(1)
        seen(page.locator("main .note", has_text="…")).to_have_count(0)
        violations = page.evaluate("axe.run(document, { resultTypes: ['violations'] }).then((said) => said.violations)")
        found += [(name, each["id"], each["nodes"][0]["html"][:200]) for each in violations]
    assert found == []
