"""The commands and examples of the documents run, their links lead to files, and the index links every page."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fork_server import forked_commands, forked_python

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").glob("*.md"))
DOCUMENTS = ["README.md", "CONTRIBUTING.md", "ARCHITECTURE.md", "CHANGELOG.md", *PAGES]
RUN_ELSEWHERE = {"docs/look-protocol.md", "docs/serve.md", "docs/translation.md", "docs/walk.md"}
"""Pages whose examples need a server or a model, and have tests of their own."""
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\((?!http)([^)#]+)(?:#[^)]*)?\)")
LINE_NUMBER = re.compile(r"\.(?:py|ts|svelte)(?::\d|#L\d|\W{1,3}lines? \d)")
WIDTH = 100
LONG_TRAINING, SHORT_TRAINING = re.compile(r"train\.minutes=\d+"), "train.steps=50"
"""What the README trains until its output makes sense, and what a test of its commands trains instead."""


def read(name: str) -> str:
    """Return the text of a document."""
    return (ROOT / name).read_text(encoding="utf-8")


def blocks(name: str, language: str) -> list[str]:
    """Return the code blocks of one language in a document, in order."""
    return [body for kind, body in BLOCK.findall(read(name)) if kind == language]


def prose(name: str) -> Iterator[tuple[int, str]]:
    """Yield the numbered lines of a document outside code blocks, tables and images."""
    in_block = False
    for number, line in enumerate(read(name).splitlines(), start=1):
        if line.lstrip().startswith("```"):
            in_block = not in_block
        elif not in_block and not line.lstrip().startswith(("|", "![")):
            yield number, line


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """Return a folder with the recipes, as in a clone of the repository."""
    shutil.copytree(ROOT / "recipes", tmp_path / "recipes")
    return tmp_path


def run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder, with the `regard` and `python` of a fork server first on the path."""
    path = os.pathsep.join([str(forked_commands()), str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "REGARD_CACHE": str(folder / "cache")}
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=environment)


@pytest.mark.parametrize(
    "name",
    [
        name
        for name in ["README.md", *PAGES]
        if name not in RUN_ELSEWHERE and (blocks(name, "sh") + blocks(name, "python"))
    ],
)
def test_the_commands_and_python_examples_of_a_document_run(name: str, clone: Path) -> None:
    # Commands that are shown but not run are in blocks of the language `text` or `console`.
    commands = [body for body in blocks(name, "sh") if "make demo" not in body]
    script = LONG_TRAINING.sub(SHORT_TRAINING, "set -eu\n" + "\n".join(commands))
    process = run(["bash", "-c", script], clone)
    assert process.returncode == 0, process.stderr
    process = run([forked_python(), "-W", "error", "-c", "\n".join(blocks(name, "python"))], clone)
    assert process.returncode == 0, process.stderr


def test_the_recipe_of_the_document_on_recipes_is_valid(clone: Path) -> None:
    (clone / "mine.toml").write_text(blocks("docs/recipes.md", "toml")[0], encoding="utf-8")
    process = run(["regard", "recipe", "check", "mine.toml"], clone)
    assert process.returncode == 0, process.stdout


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_link_leads_to_a_file(name: str) -> None:
    folder = (ROOT / name).parent
    assert [link for link in LINK.findall(read(name)) if not folder.joinpath(link).exists()] == []


def test_the_index_links_every_page() -> None:
    linked = {(ROOT / "docs" / link).resolve() for link in LINK.findall(read("docs/index.md"))}
    assert [name for name in PAGES if name != "docs/index.md" and (ROOT / name).resolve() not in linked] == []
    assert "docs/index.md" in LINK.findall(read("README.md"))


@pytest.mark.parametrize("name", ["README.md", *PAGES])
def test_prose_is_at_most_a_hundred_columns_wide(name: str) -> None:
    assert [number for number, line in prose(name) if len(line) > WIDTH and " " in line.strip()] == []


@pytest.mark.parametrize("name", ["README.md", *PAGES])
def test_prose_cites_no_line_numbers_of_source_files(name: str) -> None:
    assert [line for _, line in prose(name) if LINE_NUMBER.search(line)] == []
