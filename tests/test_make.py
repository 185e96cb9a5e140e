"""The Makefile's own words, when a machine is not ready for it."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A folder with nothing but what `make` reads before it installs anything."""
    if shutil.which("make") is None:
        pytest.skip("no make on this machine")
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


def python_that(folder: Path, body: str) -> Path:
    """A program that answers like a Python of some other machine."""
    program = folder / "other-python"
    program.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
    program.chmod(0o755)
    return program


def make(folder: Path, python: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["make", "demo", f"PYTHON={python}"], cwd=folder, capture_output=True, text=True, check=False)


def test_an_old_python_is_named_and_a_remedy_told(bare: Path) -> None:
    old = python_that(bare, 'case "$1" in --version) echo "Python 3.9.2";; *) exit 1;; esac')
    said = make(bare, old)
    assert said.returncode != 0
    assert "needs Python 3.11 or newer; found: Python 3.9.2" in said.stderr
    assert "make PYTHON=/path/to/python3.12 demo" in said.stderr


def test_no_python_at_all_is_told_too(bare: Path) -> None:
    said = make(bare, bare / "no-such-python")
    assert said.returncode != 0
    assert "needs Python 3.11 or newer" in said.stderr


def test_a_python_without_venv_is_told_what_to_install(bare: Path) -> None:
    plain = python_that(bare, 'case "$2" in *version_info*) exit 0;; *) exit 1;; esac')
    said = make(bare, plain)
    assert said.returncode != 0
    assert "apt-get install python3-venv" in said.stderr
    assert not (bare / ".venv").exists()
