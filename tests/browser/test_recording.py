"""Open a file written by `to_html` from disk, without a network."""

import re
from pathlib import Path
from typing import Any

from tests.browser.conftest import PATIENCE, opened, playwright

from regard.data.phrasebook import phrases
from regard.tasks import load_translator

SENTENCE = next(phrase.source for phrase in phrases("de", "train", 20))


def test_a_file_shows_every_view_offline_and_reports_missing_answers(
    browser: Any, memorised: Path, tmp_path: Path
) -> None:
    translator = load_translator(memorised, "cpu")
    file = translator.look(SENTENCE, state="layer=2&head=1").to_html(tmp_path / "look.html")
    with opened(browser, "a-file-opened-offline", offline=True) as page:
        playwright.expect.set_options(timeout=PATIENCE)
        page.goto(file.as_uri())
        expect = playwright.expect
        expect(page.get_by_role("status", name="Translation")).to_have_text(translator(SENTENCE, beam=1).text)
        heading = page.get_by_role("region", name="Heat map").get_by_role("heading")
        expect(heading).to_have_text("Cross-attention, layer 2, head 1")
        page.get_by_role("button", name="Atlas").click()
        expect(page.get_by_role("grid", name="All layers and heads")).to_be_visible()
        page.get_by_role("button", name="Beam tree").click()
        expect(page.get_by_role("treeitem").first).to_be_attached()
        page.get_by_role("button", name="Workbench").click()
        page.get_by_role("textbox", name=re.compile("^Source")).fill("something else")
        expect(page.get_by_text("This is a recording")).to_be_visible()
