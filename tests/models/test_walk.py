"""docs/walk.md runs and prints what it says; docs/papers.md points at lines that say what it claims."""

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"```python\n(.*?)```\n(?:```text\n(.*?)```)?", re.DOTALL)
ANCHOR = re.compile(r"\[`[^`]+:(\d+)`\]\(\.\./([^)#]+)#L(\d+)\) `` (.+?) ``")


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


def anchors() -> list[tuple[str, str, str, str]]:
    return ANCHOR.findall((ROOT / "docs" / "papers.md").read_text(encoding="utf-8"))


@pytest.mark.parametrize(("shown", "path", "line", "claim"), anchors())
def test_every_anchor_of_papers_points_at_what_it_claims(shown: str, path: str, line: str, claim: str) -> None:
    lines = (ROOT / path).read_text(encoding="utf-8").splitlines()
    there = [number for number, each in enumerate(lines, 1) if claim in each]
    assert shown == line
    assert int(line) in there, f"{path}: '{claim}' is at {there}, not at {line}"


def test_papers_has_anchors_and_every_link_of_it_is_one() -> None:
    text = (ROOT / "docs" / "papers.md").read_text(encoding="utf-8")
    assert len(anchors()) == text.count("#L") > 30
