"""docs/walk.md runs and prints what it says; docs/papers.md quotes lines that its source files hold."""

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"```python\n(.*?)```\n(?:```text\n(.*?)```)?", re.DOTALL)
QUOTE = re.compile(r"\]\(\.\./(src/[^)#]+)\) `` (.+?) ``")


def walked(text: str) -> list[tuple[str, str]]:
    """What each block of a walk is said to print, and what it prints."""
    names: dict[str, Any] = {}
    both = []
    for code, said in BLOCK.findall(text):
        heard = io.StringIO()
        with contextlib.redirect_stdout(heard):
            exec(compile(code, "docs/walk.md", "exec"), names)
        both.append((said.rstrip(), "\n".join(line.rstrip() for line in heard.getvalue().splitlines()).rstrip()))
    return both


def test_every_block_of_the_walk_prints_what_stands_under_it() -> None:
    blocks = walked((ROOT / "docs" / "walk.md").read_text(encoding="utf-8"))
    assert len(blocks) > 10
    for said, heard in blocks:
        assert heard == said


def quotes() -> list[tuple[str, str]]:
    return QUOTE.findall((ROOT / "docs" / "papers.md").read_text(encoding="utf-8"))


@pytest.mark.parametrize(("path", "quote"), quotes())
def test_every_line_quoted_by_papers_stands_in_its_file(path: str, quote: str) -> None:
    assert quote in (ROOT / path).read_text(encoding="utf-8")


def test_papers_quotes_many_lines() -> None:
    assert len(quotes()) > 30
