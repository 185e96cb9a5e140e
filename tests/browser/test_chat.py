"""Use the explorer of a chatbot in a real browser as a person would."""

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.browser.conftest import PATIENCE, opened, playwright, serving, violations
from tests.browser.test_document import signed
from tests.browser.test_page import expect, focus, link
from tests.chat_turns import GREETING, QUESTION, UNKNOWN, WELCOME, train_chatbot

from regard.explore import ModelInfo
from regard.predict import Chatbot, reply_attention
from regard.serve.explorer import page_folder
from regard.tasks import load

HISTORY = [GREETING.format("Anna"), WELCOME, "It rains.", "Yes it does.", QUESTION]
CONVERSATION = "\n".join(HISTORY)
ARABIC = "اسمي آنا.\nNice to meet you.\nما اسمي؟"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return the runs of a chatbot that remembers names, and of one without attention."""
    folder = tmp_path_factory.mktemp("runs")
    return {name: train_chatbot(folder / name, name) for name in ("transformer", "sutskever")}


@pytest.fixture(scope="module")
def chatbot(runs: dict[str, Path]) -> Chatbot:
    """Return a second copy of the model: the explorer's own copy must not be used at the same time."""
    loaded = load(runs["transformer"], "cpu")
    assert isinstance(loaded, Chatbot)
    return loaded


@pytest.fixture(scope="module")
def address(runs: dict[str, Path]) -> Iterator[str]:
    """Return the address of a server with both models."""
    if not (page_folder() / "index.html").is_file():
        pytest.skip("the page is not built here")
    examples = (CONVERSATION, "Hello!")
    with serving({name: (load(run, "cpu"), ModelInfo(examples=examples)) for name, run in runs.items()}) as url:
        yield url


@pytest.fixture(autouse=True)
def long_timeouts() -> None:
    """Wait long for everything, because the machine may be busy."""
    playwright.expect.set_options(timeout=PATIENCE)


def turn(page: Any, number: int) -> Any:
    """Return the group of a turn, with its words as buttons, and then what can be done with it."""
    return page.get_by_role("group", name=re.compile(rf"^Turn {number}, (user|bot)$"))


def word(page: Any, number: int, text: str) -> Any:
    return turn(page, number).get_by_role("button", name=text, exact=True)


def reply(page: Any) -> Any:
    return page.get_by_role("group", name="Reply", exact=True)


def words(page: Any) -> Any:
    """Return the words of the reply."""
    return reply(page).get_by_role("button")


def brightness(locator: Any) -> float:
    """Return the shade of a bubble or word, from 0 to 1."""
    return float(locator.evaluate("e => e.style.getPropertyValue('--shade') || e.style.getPropertyValue('--weight')"))


def test_bubbles_and_words_are_shaded_by_attention_beside_the_effect_of_dropping(
    page: Any, address: str, chatbot: Chatbot
) -> None:
    page.goto(link(address, model="transformer", history=CONVERSATION, scale="linear"))
    answer = chatbot(HISTORY, beam=1)
    expect(words(page)).to_have_text(answer.text.split())
    expect(page.get_by_text("computing …")).to_have_count(0)
    attention = reply_attention(chatbot, HISTORY, answer.text)
    (before,) = chatbot.token_logprobs([HISTORY], [answer.text])
    expect(page.get_by_label("Log-probability", exact=True)).to_have_text(f"log p {before.sum():.2f}".replace("-", "−"))
    largest = max(attended.weight for attended in attention.turns)
    for number, attended in enumerate(attention.turns):
        (after,) = chatbot.token_logprobs([[*HISTORY[:number], "", *HISTORY[number + 1 :]]], [answer.text])
        effect = signed(float((after - before).sum()))
        expect(turn(page, number + 1)).to_contain_text(f"{attended.weight:.2f}")
        expect(turn(page, number + 1)).to_contain_text(effect)
        assert brightness(turn(page, number + 1).locator(".bubble")) == pytest.approx(
            attended.weight / largest, abs=2e-3
        )
    sides = [turn(page, number).locator(".bubble").bounding_box()["x"] for number in range(1, 6)]
    assert min(sides[0::2]) > max(sides[1::2])
    most = max(mean for attended in attention.turns for mean in attended.word_means)
    name = attention.turns[0].word_means[3]
    assert brightness(word(page, 1, "Anna.")) == pytest.approx(name / most, abs=2e-3)
    (without,) = chatbot.token_logprobs([["My name is", *HISTORY[1:]]], [answer.text])
    word(page, 1, "Anna.").hover()
    order = sorted((mean for attended in attention.turns for mean in attended.word_means), reverse=True)
    change = signed(float((without - before).sum()), 3)
    expect(focus(page)).to_have_text(
        f"turn 1, word 'Anna.', weight {name:.3f}, rank {order.index(name) + 1} of {len(order)}; "
        f"without it, log p(reply) changes by {change}"
    )
    legend = page.get_by_role("figure", name=re.compile("^Legend of weights"))
    expect(legend).to_have_accessible_name(
        f"Legend of weights: words from 0 to {most:.3f}, turns from 0 to {largest:.3f}, linear scale"
    )


def test_a_word_of_the_reply_shows_where_it_comes_from_and_stays_pinned(
    page: Any, address: str, chatbot: Chatbot
) -> None:
    page.goto(link(address, model="transformer", history=CONVERSATION))
    expect(page.get_by_text("computing …")).to_have_count(0)
    answer = chatbot(HISTORY, beam=1)
    attention = reply_attention(chatbot, HISTORY, answer.text)
    weights = {number + 1: float(attended.weights_Q[3]) for number, attended in enumerate(attention.turns)}
    expect(turn(page, 1)).to_contain_text(f"{attention.turns[0].weight:.2f}")
    words(page).nth(3).hover()
    for number, weight in weights.items():
        expect(turn(page, number)).to_contain_text(f"{weight:.2f}" if weight >= 0.005 else "< 0.01")
    first, second = sorted(weights, key=lambda number: -weights[number])[:2]
    probability = math.exp(answer.token_logprobs[3])
    said = f"'Anna.', p {probability:.3f}; attends to turn {first} {weights[first]:.3f}, turn {second} "
    expect(focus(page)).to_contain_text(said)
    expect(page.get_by_role("heading", name=f"'Anna.' p {probability:.3f}")).to_be_visible()
    words(page).nth(3).click()
    expect(words(page).nth(3)).to_have_attribute("aria-pressed", "true")
    page.mouse.move(5, 5)
    expect(focus(page)).to_contain_text(said)
    assert "pin=query:3" in page.evaluate("location.hash")
    page.keyboard.press("ArrowLeft")
    expect(words(page).nth(2)).to_be_focused()
    expect(focus(page)).to_contain_text("'is', p ")
    page.keyboard.press("ArrowUp")
    expect(word(page, 5, "my")).to_be_focused()
    expect(focus(page)).to_contain_text("turn 5, word 'my', weight")
    page.keyboard.press("Home")
    page.keyboard.press("ArrowLeft")
    expect(page.get_by_role("button", name="Drop turn 4")).to_be_focused()
    page.keyboard.press("Escape")
    expect(words(page).nth(3)).to_have_attribute("aria-pressed", "false")
    assert "pin" not in page.evaluate("location.hash")


def test_a_dropped_or_edited_turn_changes_the_reply_and_is_put_back(page: Any, address: str) -> None:
    page.goto(link(address, model="transformer", history=CONVERSATION))
    expect(words(page)).to_have_text(["Your", "name", "is", "Anna."])
    page.get_by_role("button", name="Drop turn 1").click()
    expect(words(page)).to_have_text(UNKNOWN.split())
    expect(reply(page).get_by_role("deletion")).to_have_text(["Your", "name", "is", "Anna."])
    expect(turn(page, 1)).to_contain_text("dropped")
    expect(page.get_by_label("Changes", exact=True)).to_contain_text("turn 1 dropped")
    page.get_by_role("button", name="Put back turn 1").click()
    expect(words(page)).to_have_text(["Your", "name", "is", "Anna."])
    page.get_by_role("button", name="Edit turn 1").click()
    field = page.get_by_role("textbox", name="Text of turn 1")
    expect(field).to_be_focused()
    field.fill("My name is Carla.")
    field.press("Enter")
    expect(words(page)).to_have_text(["Your", "name", "is", "Carla."])
    expect(reply(page).get_by_role("deletion")).to_have_text(["Anna."])
    expect(turn(page, 1).get_by_role("deletion")).to_have_text(HISTORY[0])
    expect(page.get_by_role("button", name="Edit turn 1")).to_be_focused()
    assert "changes=edit:1:My+name+is+Carla." in page.evaluate("location.hash")
    page.reload()
    expect(words(page)).to_have_text(["Your", "name", "is", "Carla."])
    expect(word(page, 1, "Carla.")).to_be_visible()
    page.get_by_role("button", name="Edit turn 1").click()
    field.press("Escape")
    expect(field).to_have_count(0)
    page.get_by_role("button", name="Reset").click()
    expect(words(page)).to_have_text(["Your", "name", "is", "Anna."])
    page.keyboard.press("Control+z")
    expect(words(page)).to_have_text(["Your", "name", "is", "Carla."])


def test_a_conversation_goes_on_and_back_and_reads_fewer_turns(page: Any, address: str) -> None:
    page.goto(link(address, model="transformer", history="Hello!"))
    expect(words(page)).to_have_text(["Hi", "there!"])
    field = page.get_by_role("textbox", name="Next turn")
    field.fill(GREETING.format("Dan"))
    field.press("Enter")
    expect(words(page)).to_have_text(WELCOME.split())
    field.fill(QUESTION)
    field.press("Enter")
    expect(words(page)).to_have_text(["Your", "name", "is", "Dan."])
    expect(turn(page, 3)).to_have_accessible_name("Turn 3, user")
    expect(turn(page, 4)).to_have_accessible_name("Turn 4, bot")
    page.get_by_role("slider", name=re.compile("^Turns read")).fill("1")
    expect(words(page)).to_have_text(UNKNOWN.split())
    expect(turn(page, 4)).to_contain_text("not read")
    assert "turns=1" in page.evaluate("location.hash")
    page.get_by_role("slider", name=re.compile("^Turns read")).fill("6")
    expect(words(page)).to_have_text(["Your", "name", "is", "Dan."])
    page.get_by_role("button", name="End here, with turn 3").click()
    expect(words(page)).to_have_text(WELCOME.split())
    expect(turn(page, 4)).to_have_count(0)
    page.get_by_role("button", name="Take back").click()
    expect(words(page)).to_have_text(["Hi", "there!"])
    page.get_by_role("button", name="New conversation").click()
    expect(page.get_by_text("Type a turn below")).to_be_visible()
    page.get_by_label("Examples").select_option(CONVERSATION)
    expect(words(page)).to_have_text(["Your", "name", "is", "Anna."])


def test_a_link_restores_search_and_given_reply(page: Any, address: str, chatbot: Chatbot) -> None:
    page.goto(link(address, model="transformer", history=CONVERSATION, seed="3", temperature="4"))
    sampled = chatbot(HISTORY, sample=True, seed=3, temperature=4.0).text
    expect(reply(page).locator(".bubble")).to_have_text(re.compile(rf"^\s*{re.escape(sampled)}\s*$"))
    expect(page.get_by_role("radio", name="Sample")).to_be_checked()
    expect(page.get_by_role("spinbutton", name="Temperature")).to_have_value("4")
    page.get_by_role("radio", name="Beam").check()
    expect(page.get_by_role("spinbutton", name="Width")).to_have_value("5")
    expect(words(page)).to_have_text(chatbot(HISTORY, beam=5).text.split())
    page.get_by_role("checkbox", name="Score a given reply").check()
    page.get_by_role("textbox", name="Given reply").fill("Your name is Ben.")
    expect(words(page)).to_have_text(["Your", "name", "is", "Ben."])
    (logprobs,) = chatbot.token_logprobs([HISTORY], ["Your name is Ben."])
    expect(page.get_by_label("Log-probability", exact=True)).to_have_text(
        f"log p {logprobs.sum():.2f}".replace("-", "−")
    )
    page.reload()
    expect(page.get_by_role("textbox", name="Given reply")).to_have_value("Your name is Ben.")
    expect(words(page)).to_have_text(["Your", "name", "is", "Ben."])


def test_a_conversation_without_any_turn_left_to_read_says_so(page: Any, address: str) -> None:
    page.goto(link(address, model="transformer", history=CONVERSATION, turns="1", changes="drop:5"))
    expect(page.get_by_role("alert")).to_contain_text("all turns that would be read are dropped")
    expect(reply(page)).to_contain_text("no reply")
    page.get_by_role("button", name="Put back turn 5").click()
    expect(words(page)).to_have_text(UNKNOWN.split())
    expect(page.get_by_role("alert")).to_have_count(0)


def test_a_model_without_attention_shows_effects_and_says_so(page: Any, address: str) -> None:
    page.goto(link(address, model="sutskever", history=ARABIC))
    expect(page.get_by_text("computing …")).to_have_count(0)
    expect(page.get_by_role("heading", name="The effect of dropping on the reply")).to_be_visible()
    expect(page.get_by_text("This model has no attention to its history")).to_be_visible()
    expect(page.get_by_role("figure", name=re.compile("^Legend of weights"))).to_have_count(0)
    expect(turn(page, 3)).to_contain_text(re.compile(r"[+−]?\d+\.\d\d"))
    directions = page.locator(".bubble").evaluate_all("bubbles => bubbles.map((bubble) => bubble.dir)")
    assert directions[:3] == ["rtl", "ltr", "rtl"]
    first, second = (word(page, 1, text).bounding_box()["x"] for text in ("اسمي", "آنا."))
    assert first > second


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_conversation_is_accessible_with_and_without_changes(page: Any, address: str, theme: str) -> None:
    found = []
    for model in ("transformer", "sutskever"):
        changes = {"changes": "edit:1:My name is Ben.;drop:4", "turns": "4", "pin": "query:0"}
        page.goto(link(address, model=model, history=CONVERSATION, theme=theme, seed="1", **changes))
        expect(turn(page, 4)).to_contain_text("dropped")
        expect(page.get_by_text("computing …")).to_have_count(0)
        found += violations(page)
        page.get_by_role("button", name="Reset").click()
        expect(turn(page, 4)).not_to_contain_text("dropped")
        page.get_by_role("button", name="Edit turn 2").click()
        page.set_viewport_size({"width": 420, "height": 900})
        expect(page.get_by_text("computing …")).to_have_count(0)
        found += violations(page)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        page.set_viewport_size({"width": 1360, "height": 900})
    assert found == []


def test_a_saved_file_shows_a_conversation_offline(browser: Any, chatbot: Chatbot, tmp_path: Path) -> None:
    file = chatbot.look(HISTORY).to_html(tmp_path / "look.html")
    with opened(browser, "a-conversation-offline", offline=True) as page:
        page.goto(file.as_uri())
        expect(words(page)).to_have_text(["Your", "name", "is", "Anna."])
        expect(page.get_by_role("table", name="Largest effects").get_by_role("row")).not_to_have_count(2)
        expect(page.get_by_role("textbox", name="Next turn")).to_have_count(0)
        page.get_by_role("button", name="Drop turn 1").click()
        expect(page.get_by_text("This is a recording")).to_be_visible()
        expect(reply(page)).to_contain_text("no reply")
        page.get_by_role("button", name="Put back turn 1").click()
        expect(words(page)).to_have_text(["Your", "name", "is", "Anna."])


def test_the_figure_of_a_conversation_is_saved_under_its_changes(page: Any, address: str) -> None:
    page.goto(link(address, model="transformer", history=CONVERSATION, changes="drop:1"))
    expect(words(page)).to_have_text(UNKNOWN.split())
    page.get_by_role("button", name="Save", exact=True).click()
    with page.expect_download() as download:
        page.get_by_role("button", name="Save Conversation as SVG").click()
    assert download.value.suggested_filename == "transformer-dialogue.svg"
    assert "Saved transformer-dialogue.svg" in page.get_by_text("Saved").inner_text()
