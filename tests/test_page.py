"""The build hook of the explorer: when it builds, what it requires, and its errors."""

import gzip
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from hatch_build import (
    BUILT,
    NODE_WHEEL,
    OUTPUTS,
    SKIP,
    STAMP,
    PageHook,
    build,
    fingerprint,
    is_stale,
    machine_node,
    wheel_node,
)
from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder

from regard.recipe import shipped_recipes

ROOT = Path(__file__).resolve().parents[1]
MOST = 300_000
"""Largest number of bytes of the compressed page; the aim is 150,000."""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A project with sources of a page that has not been built yet."""
    web = tmp_path / "web"
    (web / "node_modules").mkdir(parents=True)
    for name in ("package.json", "package-lock.json", "index.html"):
        (web / name).write_text("{}", encoding="utf-8")
    return tmp_path


def pretend_built(clone: Path) -> None:
    for name in OUTPUTS:
        path = clone / BUILT / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("", encoding="utf-8")
    (clone / BUILT / STAMP).write_text(fingerprint(clone / "web"), encoding="ascii")


def programs(folder: Path, node: str, npm: str = "exit 0") -> str:
    """A folder with a Node and an npm that run these commands, as the only ones on the path."""
    folder.mkdir(exist_ok=True)
    for name, body in (("node", node), ("npm", npm)):
        (folder / name).write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
        (folder / name).chmod(stat.S_IRWXU)
    return str(folder)


def hook(root: Path) -> PageHook:
    nothing: Any = None  # this hook does not use these arguments
    return PageHook(str(root), {}, nothing, nothing, str(root), "wheel")


def test_without_sources_there_is_nothing_to_build(tmp_path: Path) -> None:
    assert not is_stale(tmp_path)
    assert hook(tmp_path).dependencies() == []
    hook(tmp_path).initialize("standard", {})


def test_a_page_built_from_the_same_sources_is_kept(clone: Path) -> None:
    assert is_stale(clone)
    pretend_built(clone)
    assert not is_stale(clone)
    (clone / "web" / "node_modules" / "tool.js").write_text("", encoding="utf-8")
    assert not is_stale(clone)
    (clone / "web" / "index.html").write_text("changed", encoding="utf-8")
    assert is_stale(clone)


def test_a_build_with_a_missing_file_is_repeated(clone: Path) -> None:
    pretend_built(clone)
    (clone / BUILT / "widget.js").unlink()
    assert is_stale(clone)


def test_node_is_a_build_dependency_only_if_none_is_installed(
    clone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    assert hook(clone).dependencies() == [NODE_WHEEL]
    monkeypatch.setenv("PATH", programs(tmp_path / "old", "echo v18.19.0"))
    assert hook(clone).dependencies() == [NODE_WHEEL]
    monkeypatch.setenv("PATH", programs(tmp_path / "new", "echo v20.19.0"))
    assert hook(clone).dependencies() == []
    assert machine_node() == tmp_path / "new" / "node"
    pretend_built(clone)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    assert hook(clone).dependencies() == []


def test_a_build_installs_the_locked_packages_and_then_builds(
    clone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = tmp_path / "calls"
    monkeypatch.setenv("PATH", programs(tmp_path / "new", "echo v22.1.0", f'echo "$1 $2" >> {calls}'))
    (clone / BUILT).mkdir(parents=True)
    build(clone)
    assert calls.read_text().splitlines() == ["ci --no-audit", "run build"]
    note = clone / "web" / "node_modules" / ".package-lock.json"
    note.write_text("{}", encoding="utf-8")
    os.utime(note, (2e9, 2e9))
    build(clone)
    assert calls.read_text().splitlines()[2:] == ["run build"]
    assert (clone / BUILT / STAMP).read_text().strip() == fingerprint(clone / "web")


def test_the_error_of_a_failed_build_says_why_and_how_to_skip_it(
    clone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", programs(tmp_path / "new", "echo v22.1.0", "echo no network >&2; exit 7"))
    with pytest.raises(
        RuntimeError, match=rf"npm ci --no-audit in .* failed with exit code 7; .*set {SKIP}=1(.|\n)*no network"
    ):
        build(clone)
    monkeypatch.setenv(SKIP, "1")
    assert not is_stale(clone)


def test_the_error_of_a_missing_node_names_the_remedies(
    clone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if wheel_node() is not None:
        pytest.skip("Node is installed here as a wheel")
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    with pytest.raises(RuntimeError, match=r"no Node 20\.19 or newer; install it, let pip isolate the build"):
        build(clone)


@pytest.fixture
def page() -> Path:
    """The built page of this clone."""
    folder = ROOT / BUILT
    if not (folder / "page" / "index.html").is_file():
        pytest.skip("the page is not built here")
    return folder


def test_the_page_is_small(page: Path) -> None:
    files = [file for file in (page / "page").rglob("*") if file.is_file()]
    whole = sum(len(gzip.compress(file.read_bytes(), 9)) for file in files)
    widget = sum(len(gzip.compress((page / name).read_bytes(), 9)) for name in ("widget.js", "widget.css"))
    print(f"page {whole / 1000:.1f} kB gzipped, widget {widget / 1000:.1f} kB; the aim is 150 kB")
    assert max(whole, widget) <= MOST


def test_wheel_and_sdist_contain_the_page(page: Path) -> None:
    outputs = {f"src/regard/web/{name}" for name in OUTPUTS}
    for builder in (WheelBuilder(str(ROOT)), SdistBuilder(str(ROOT))):
        with builder.config.set_build_data({"artifacts": [], "force_include": {}, "build_hooks": ()}):
            files = {path.relative_path for path in builder.recurse_included_files()}
        assert outputs <= files
        assert not any("node_modules" in path for path in files)
    assert "web/package.json" in files


def test_a_wheel_holds_the_recipes_that_help_texts_name() -> None:
    builder = WheelBuilder(str(ROOT))
    with builder.config.set_build_data({"artifacts": [], "force_include": {}, "build_hooks": ()}):
        packed = {file.distribution_path for file in builder.recurse_included_files()}
    assert {f"regard/recipes/{name}.toml" for name in shipped_recipes()} <= packed
    assert "phrasebook" in shipped_recipes()
