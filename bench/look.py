"""The explorer's answers as a person waits for them: measured by the page itself, in a real Chromium.

    python bench/look.py                      # a base model of random weights, 30 tokens
    python bench/look.py --size small --rounds 40
    python bench/look.py --run runs/multi30k --sentence "two men are sitting on a bench"

The server is a process of its own on loopback; the browser has the same cores. Every figure is a `performance.measure`
the page leaves from the key or the pointer until what was drawn for it is on the screen. Random weights have no use for
an end, so the translation is as long as it may be: about as long as the source. Targets are told beside what was found;
nothing is asserted.
"""

import argparse
import re
import shutil
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

from playwright.sync_api import Page, sync_playwright

from regard.analysis.look import read_frame
from regard.data.phrasebook import phrases
from regard.text import Tokenizers
from serving import make_run, percentile, served

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
FLAGS += ["--disable-sync", "--no-first-run"]

ROWS = (
    ("tokens", "keystroke → tokens redrawn", "30 / 80 ms"),
    ("encoder", "keystroke → encoder attention", "150 / 300 ms"),
    ("first-target", "first target token", "250 ms"),
    ("next-target", "each next one, greedy", "40 ms"),
    ("what-if", "ablate → difference drawn", "300 / 600 ms"),
    ("hover", "hover, linked views", "≤ 16 ms"),
    ("head-switch", "switch head", "5 ms"),
    ("atlas", "repaint the atlas", "60 ms"),
    ("ready", "first paint with the models", "500 ms"),
)


def sentence_of(folder: Path, count: int) -> str:
    """A line of the phrasebook's words with about so many tokens."""
    tokenizers = Tokenizers.load(folder / "tokenizer")
    words = [word for phrase in phrases("de", "test", 40) for word in phrase.source.split()]
    most = max(at for at in range(1, len(words)) if len(tokenizers.source.encode(" ".join(words[:at]))) < count)
    return " ".join(words[:most])


def ours(run: Path) -> list[str]:
    """The command of the explorer."""
    return [sys.executable, "-m", "regard", "look", f"model={run}", "--no-browser", "--port", "0"]


def settled(page: Page) -> None:
    """Wait until the page waits for nothing: past the pause it makes after a key, until its question is answered."""
    page.wait_for_timeout(150)
    page.wait_for_selector("output.translation:not(.waiting)")
    page.wait_for_selector("[aria-label='Target tokens'] button")


def work(page: Page, address: str, sentence: str, rounds: int) -> int:
    """What a person does, again and again; the answer is how many bytes the attention of the sentence took."""
    sizes: list[int] = []

    def heard(frame: Any) -> None:
        if isinstance(frame, bytes) and read_frame(frame)[0]["kind"] == "attention":
            sizes.append(len(frame))

    page.on("websocket", lambda socket: socket.on("framereceived", heard))
    page.goto(f"{address}#source={quote_plus(sentence)}&layer=1&head=1")
    settled(page)
    whole = sum(sizes)
    source = page.get_by_role("textbox", name=re.compile("^Source"))
    for number in range(rounds):
        # Every letter makes a sentence that nobody has asked for yet, so no answer is one that was kept.
        source.press("End")
        source.press_sequentially("the"[number % 3] if number % 4 else " ")
        settled(page)
    cells = page.locator("[aria-label='Layers and heads'] [role=gridcell]")
    tokens = page.locator("[aria-label='Target tokens'] button")
    for number in range(rounds):
        cells.nth(number % cells.count()).click()
        tokens.nth(number % tokens.count()).hover()
        settled(page)
    page.get_by_role("button", name="What if").click()
    for _ in range(max(3, rounds // 2)):
        page.get_by_role("button", name="Silence", exact=True).click()
        page.wait_for_selector("[aria-label='Changed tokens'][role=toolbar]")
        settled(page)
        page.get_by_role("button", name="Undo").click()
        settled(page)
    page.get_by_role("button", name="Atlas").click()
    for number in range(rounds):
        page.get_by_role("radio", name=("Confidence", "Layer")[number % 2]).check()
        settled(page)
    return whole


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, help="a trained run, instead of random weights")
    parser.add_argument("--size", default="base")
    parser.add_argument("--tokens", type=int, default=30)
    parser.add_argument("--sentence", help="what is typed, instead of words of the phrasebook")
    parser.add_argument("--rounds", type=int, default=20)
    told = parser.parse_args()
    chromium = next(
        (each for each in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if each), None
    )
    if chromium is None:
        sys.exit("there is no Chromium here; install one (apt-get install chromium)")
    with tempfile.TemporaryDirectory() as folder:
        run = told.run or Path(folder)
        if told.run is None:
            make_run(run, told.size, beam=1, longest=0.7)
        sentence = told.sentence or sentence_of(run, told.tokens)
        with served(ours(run)) as server, sync_playwright() as started:
            browser = started.chromium.launch(executable_path=chromium, args=FLAGS)
            page = browser.new_page(viewport={"width": 1360, "height": 900})
            page.set_default_timeout(120_000)
            size = work(page, f"http://127.0.0.1:{server.port}/", sentence, told.rounds)
            entries = page.evaluate("performance.getEntriesByType('measure').map((each) => [each.name, each.duration])")
            browser.close()
    print(f"{'action':34s} {'p50':>7s} {'p95':>7s} {'n':>4s}   target")
    for name, text, target in ROWS:
        found = [took for each, took in entries if each == f"regard:{name}"]
        if found:
            middle, late = statistics.median(found), percentile(found, 0.95)
            print(f"{text:34s} {middle:7.1f} {late:7.1f} {len(found):4d}   {target}")
    print(f"{'bytes of all attention':34s} {size / 1e6:7.2f} MB {'':9s}  ≤ 2 MB at 100 tokens")


if __name__ == "__main__":
    main()
