"""Which tests of a parallel run (pytest-xdist) go to one worker, and which start first.

Tests of a file share fixtures that take seconds, such as a trained model or a server, so they run on one worker. Files
that take long come first, so that at the end no worker waits long for another. xdist can group tests by markers itself,
but this has no effect with pytest 9.2.
"""

import os
from collections.abc import Generator
from pathlib import PurePosixPath
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

FOLDERS = {"tests/browser", "tests/serve"}
"""Folders whose files share fixtures that take long: a browser, a server."""
INDEPENDENT = {"tests/test_docs.py", "tests/train/test_loop.py", "tests/train/test_resume.py"}
"""Files that take long and whose tests share little."""
LONG = ["tests/browser", "tests/serve", "tests/test_docs.py", "tests/train/test_distributed.py", "tests/train"]
LONG += ["tests/data/test_build_processes.py", "tests/models/test_compiled.py", "tests/cli", "tests/race"]
"""Folders and files that take long, in the order in which they start; all others follow."""


def group(nodeid: str) -> str:
    """Return the group of a test; tests of one group go to one worker."""
    file = nodeid.partition("::")[0]
    folder = str(PurePosixPath(file).parent)
    if folder in FOLDERS:
        return folder
    return nodeid if file in INDEPENDENT else file


class FileScheduling(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """Sends the tests of a group to one worker."""

    def _split_scope(self, nodeid: str) -> str:
        return group(nodeid)


def start_position(nodeid: str) -> int:
    """Return the position of a test's file or folder in `LONG`."""
    file = PurePosixPath(nodeid.partition("::")[0])
    return next((at for at, name in enumerate(LONG) if file.is_relative_to(name)), len(LONG))


@pytest.hookimpl(optionalhook=True, wrapper=True)
def pytest_xdist_auto_num_workers() -> Generator[None, int, int]:
    """Start one worker more than there are cores with `-n auto`: tests of servers and browsers wait for much."""
    cores = yield
    return cores if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ else cores + 1


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> FileScheduling | None:
    """Distribute groups of tests with `--dist loadgroup`."""
    if config.getvalue("dist") != "loadgroup":
        return None
    config.option.loadscopereorder = False  # they are in order already
    return FileScheduling(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Start with what takes long if several processes run the tests."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: start_position(item.nodeid))
