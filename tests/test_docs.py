"""What the documents tell a newcomer to type works as typed."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def blocks(name: str, language: str) -> list[str]:
    """The code blocks of one language in a document, in order."""
    return [body for kind, body in BLOCK.findall((ROOT / name).read_text(encoding="utf-8")) if kind == language]


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    """A folder with the recipes in it, as one has after a clone."""
    shutil.copytree(ROOT / "recipes", tmp_path / "recipes")
    return tmp_path


def run(command: list[str], desk: Path) -> subprocess.CompletedProcess[str]:
    """Run as a person would, with the `regard` of this Python first on the path."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "REGARD_CACHE": str(desk / "cache")}
    return subprocess.run(command, cwd=desk, capture_output=True, text=True, check=False, env=environment)


@pytest.mark.parametrize(
    "name",
    [
        "README.md",
        "docs/families.md",
        "docs/figures.md",
        "docs/look.md",
        "docs/phrasebook.md",
        "docs/race.md",
        "docs/recipes.md",
        "docs/scores.md",
        "docs/search.md",
        "docs/speed.md",
        "docs/text.md",
        "docs/training.md",
    ],
)
def test_the_commands_of_a_document_run_and_then_its_python(name: str, desk: Path) -> None:
    # What shows a page without its running it is fenced as `text` or `console`.
    commands = [body for body in blocks(name, "sh") if "make demo" not in body]
    said = run(["bash", "-c", "set -eu\n" + "\n".join(commands)], desk)
    assert said.returncode == 0, said.stderr
    said = run([sys.executable, "-W", "error", "-c", "\n".join(blocks(name, "python"))], desk)
    assert said.returncode == 0, said.stderr


def test_the_recipe_in_the_document_is_one(desk: Path) -> None:
    (desk / "mine.toml").write_text(blocks("docs/recipes.md", "toml")[0], encoding="utf-8")
    said = run(["regard", "recipe", "check", "mine.toml"], desk)
    assert said.returncode == 0, said.stdout


@pytest.mark.parametrize(
    "name",
    [
        "README.md",
        "CONTRIBUTING.md",
        "ARCHITECTURE.md",
        "docs/data.md",
        "docs/families.md",
        "docs/look.md",
        "docs/race.md",
    ],
)
def test_every_link_leads_somewhere(name: str) -> None:
    links = re.findall(r"\]\((?!http)([^)#]+)\)", (ROOT / name).read_text(encoding="utf-8"))
    assert [link for link in links if not (ROOT / name).parent.joinpath(link).exists()] == []
