"""The code of docs/walk.md prints the output shown there; docs/papers.md quotes lines of the source files."""

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"```python\n(.*?)```\n(?:```text\n(.*?)```)?", re.DOTALL)
QUOTE = re.compile(r"\]\(\.\./(src/[^)#]+)\) `` (.+?) ``")


def outputs(text: str) -> list[tuple[str, str]]:
    """Run the code blocks of a document; return the output shown after each, and the output printed."""
    names: dict[str, Any] = {}
    pairs = []
    for code, shown in BLOCK.findall(text):
        stdout = io.StringIO()
        with contextlib.redirect_stdout(stdout):
            exec(compile(code, "docs/walk.md", "exec"), names)
        pairs.append((shown.rstrip(), "\n".join(line.rstrip() for line in stdout.getvalue().splitlines()).rstrip()))
    return pairs


def test_every_code_block_prints_the_output_shown_after_it() -> None:
    blocks = outputs((ROOT / "docs" / "walk.md").read_text(encoding="utf-8"))
    assert len(blocks) > 10
    for shown, printed in blocks:
        assert printed == shown


def quotes() -> list[tuple[str, str]]:
    return QUOTE.findall((ROOT / "docs" / "papers.md").read_text(encoding="utf-8"))


@pytest.mark.parametrize(("path", "quote"), quotes())
def test_every_line_quoted_in_papers_is_in_its_file(path: str, quote: str) -> None:
    assert quote in (ROOT / path).read_text(encoding="utf-8")


def test_papers_quotes_many_lines() -> None:
    assert len(quotes()) > 30
