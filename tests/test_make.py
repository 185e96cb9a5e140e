"""The error messages of the Makefile without a suitable Python."""

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """Return a folder with only the files that `make` reads before it installs anything."""
    if shutil.which("make") is None:
        pytest.skip("no make on this machine")
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


def fake_python(folder: Path, body: str) -> Path:
    """Write a shell script that takes the place of a Python interpreter."""
    program = folder / "other-python"
    program.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
    program.chmod(0o755)
    return program


def make(folder: Path, python: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["make", "demo", f"PYTHON={python}"], cwd=folder, capture_output=True, text=True, check=False)


def test_the_error_of_an_old_python_names_its_version_and_a_remedy(bare: Path) -> None:
    old = fake_python(bare, 'case "$1" in --version) echo "Python 3.9.2";; *) exit 1;; esac')
    result = make(bare, old)
    assert result.returncode != 0
    assert "needs Python 3.11 or newer; found: Python 3.9.2" in result.stderr
    assert "make PYTHON=/path/to/python3.12 demo" in result.stderr


def test_a_missing_python_is_an_error(bare: Path) -> None:
    result = make(bare, bare / "no-such-python")
    assert result.returncode != 0
    assert "needs Python 3.11 or newer" in result.stderr


def test_the_error_of_a_python_without_venv_says_what_to_install(bare: Path) -> None:
    plain = fake_python(bare, 'case "$2" in *version_info*) exit 0;; *) exit 1;; esac')
    result = make(bare, plain)
    assert result.returncode != 0
    assert "apt-get install python3-venv" in result.stderr
    assert not (bare / ".venv").exists()


def test_the_package_limits_no_version_upwards_and_make_installs_the_tested_ones() -> None:
    """Users can take a newer PyTorch; developers and CI get the versions of `constraints.txt`."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pinned = dict(
        line.lower().split("==")
        for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
        if not line.startswith("#")
    )
    for requirement in map(Requirement, project["dependencies"]):
        assert {specifier.operator for specifier in requirement.specifier} == {">="}, requirement
        assert requirement.specifier.contains(pinned[re.sub(r"[-_.]+", "_", requirement.name.lower())]), requirement
    installs = re.findall(r"\$\(PIP\) install .*", (ROOT / "Makefile").read_text(encoding="utf-8"))
    assert len(installs) >= 3
    assert all("--constraint constraints.txt" in command for command in installs)
