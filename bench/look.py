"""Response times of the explorer, measured by the page in Chromium.

    python bench/look.py                      # a base model of random weights, 30 tokens
    python bench/look.py --size small --rounds 40
    python bench/look.py --run runs/multi30k --sentence "two men are sitting on a bench"

The server is a process of its own on loopback; the browser runs on the same cores. Every result is a
`performance.measure` of the page, from the key press or pointer event until the result is on the screen. Random weights
never generate the end symbol, so the translation has the maximum length, which is about that of the source. The table
shows targets next to the results, but asserts nothing.
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

from measure import percentile
from regard.data.phrasebook import phrases
from regard.explore import read_frame
from regard.text import Tokenizers
from server_process import make_run, served

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
    """Return a line of phrasebook words with about `count` tokens."""
    tokenizers = Tokenizers.load(folder / "tokenizer")
    words = [word for phrase in phrases("de", "test", 40) for word in phrase.source.split()]
    most = max(at for at in range(1, len(words)) if len(tokenizers["source"].encode(" ".join(words[:at]))) < count)
    return " ".join(words[:most])


def explorer_command(run: Path) -> list[str]:
    """Return the command that starts the explorer."""
    return [sys.executable, "-m", "regard", "look", f"model={run}", "--no-browser", "--port", "0"]


def wait_until_idle(page: Page) -> None:
    """Wait until the page is idle: past the pause it makes after a key press, until its request is answered."""
    page.wait_for_timeout(150)
    page.wait_for_selector("output.translation:not(.waiting)")
    page.wait_for_selector("[aria-label='Target tokens'] button")


def use(page: Page, address: str, sentence: str, rounds: int) -> int:
    """Repeat the actions of a user, and return the number of bytes of the attention of the sentence."""
    sizes: list[int] = []

    def on_frame(frame: Any) -> None:
        if isinstance(frame, bytes) and read_frame(frame)[0]["kind"] == "attention":
            sizes.append(len(frame))

    page.on("websocket", lambda socket: socket.on("framereceived", on_frame))
    page.goto(f"{address}#source={quote_plus(sentence)}&layer=1&head=1")
    wait_until_idle(page)
    total = sum(sizes)
    source = page.get_by_role("textbox", name=re.compile("^Source"))
    for number in range(rounds):
        # Every letter makes a new sentence, so that no answer comes from a cache.
        source.press("End")
        source.press_sequentially("the"[number % 3] if number % 4 else " ")
        wait_until_idle(page)
    cells = page.locator("[aria-label='Layers and heads'] [role=gridcell]")
    tokens = page.locator("[aria-label='Target tokens'] button")
    for number in range(rounds):
        cells.nth(number % cells.count()).click()
        tokens.nth(number % tokens.count()).hover()
        wait_until_idle(page)
    page.get_by_role("button", name="What if").click()
    for _ in range(max(3, rounds // 2)):
        page.get_by_role("button", name="Zero", exact=True).click()
        page.wait_for_selector("[aria-label='Changed tokens'][role=toolbar]")
        wait_until_idle(page)
        page.get_by_role("button", name="Undo").click()
        wait_until_idle(page)
    page.get_by_role("button", name="Atlas").click()
    for number in range(rounds):
        page.get_by_role("radio", name=("Confidence", "Layer")[number % 2]).check()
        wait_until_idle(page)
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, help="a trained run, instead of random weights")
    parser.add_argument("--size", default="base")
    parser.add_argument("--tokens", type=int, default=30)
    parser.add_argument("--sentence", help="the text to type, instead of words of the phrasebook")
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    chromium = next(
        (path for path in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if path), None
    )
    if chromium is None:
        sys.exit("Chromium was not found: install it (apt-get install chromium)")
    with tempfile.TemporaryDirectory() as folder:
        run = options.run or Path(folder)
        if options.run is None:
            make_run(run, options.size, beam=1, longest=0.7)
        sentence = options.sentence or sentence_of(run, options.tokens)
        with served(explorer_command(run)) as server, sync_playwright() as started:
            browser = started.chromium.launch(executable_path=chromium, args=FLAGS)
            page = browser.new_page(viewport={"width": 1360, "height": 900})
            page.set_default_timeout(120_000)
            size = use(page, f"http://127.0.0.1:{server.port}/", sentence, options.rounds)
            entries = page.evaluate(
                "performance.getEntriesByType('measure').map((entry) => [entry.name, entry.duration])"
            )
            browser.close()
    print(f"{'action':34s} {'p50':>7s} {'p95':>7s} {'n':>4s}   target")
    for name, text, target in ROWS:
        durations = [duration for entry, duration in entries if entry == f"regard:{name}"]
        if durations:
            p50, p95 = statistics.median(durations), percentile(durations, 0.95)
            print(f"{text:34s} {p50:7.1f} {p95:7.1f} {len(durations):4d}   {target}")
    print(f"{'bytes of all attention':34s} {size / 1e6:7.2f} MB {'':9s}  ≤ 2 MB at 100 tokens")


if __name__ == "__main__":
    main()
