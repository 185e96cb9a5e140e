"""How the tests are distributed among processes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.scheduling import FOLDERS, INDEPENDENT, LONG, group, start_position

ROOT = Path(__file__).resolve().parents[1]


def test_every_name_is_that_of_a_file_or_folder() -> None:
    assert [name for name in (*FOLDERS, *INDEPENDENT, *LONG) if not (ROOT / name).exists()] == []


@pytest.mark.parametrize(
    ("nodeid", "expected"),
    [
        ("tests/nn/test_tap.py::test_one[a/b::c]", "tests/nn/test_tap.py"),
        ("tests/nn/test_tap.py::TestLaws::test_two", "tests/nn/test_tap.py"),
        ("tests/serve/test_api.py::test_one", "tests/serve"),
        ("tests/test_docs.py::test_one[README.md]", "tests/test_docs.py::test_one[README.md]"),
    ],
)
def test_the_tests_of_a_file_or_folder_are_a_group(nodeid: str, expected: str) -> None:
    assert group(nodeid) == expected


def test_what_takes_long_starts_first() -> None:
    tests = ["tests/data/test_order.py::test_one", "tests/train/test_log.py::test_one", "tests/browser/test_page.py::a"]
    assert sorted(tests, key=start_position) == tests[::-1]


def test_a_parallel_run_sends_the_tests_of_a_file_to_one_worker(tmp_path: Path) -> None:
    program = """
import os, pathlib, pytest

@pytest.mark.parametrize("number", range(8))
def test(number):
    pathlib.Path(__file__).with_suffix(f".{os.environ['PYTEST_XDIST_WORKER']}").touch()
"""
    for name in "abcd":
        (tmp_path / f"test_{name}.py").write_text(program, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-n", "2", "--dist", "loadgroup", "--rootdir", str(tmp_path)]
    options = ["-c", os.devnull, "-p", "xdist", "-p", "tests.scheduling", "-p", "no:cacheprovider", str(tmp_path)]
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    subprocess.run([*command, *options], cwd=ROOT, check=True, capture_output=True, env=environment)
    workers = [[file.suffix for file in tmp_path.glob(f"test_{name}.gw*")] for name in "abcd"]
    assert [len(names) for names in workers] == [1] * 4
    assert len({names[0] for names in workers}) == 2
