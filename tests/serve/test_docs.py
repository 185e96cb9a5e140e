"""What docs/serve.md tells to type works as typed, and what it tells of options is true."""

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.serve.talk import SECONDS, Server
from typer.testing import CliRunner

from regard.cli import app
from regard.serve.settings import Limits

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "serve.md").read_text(encoding="utf-8")

KNOWN = "Das Hemd kostet zwölf Euro"


def block(language: str) -> str:
    return "".join(re.findall(rf"^```{language}\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE))


def said(command: list[str], server: Server) -> str:
    """What a command prints that talks to our server instead of that on port 8000."""
    words = [word.replace("127.0.0.1:8000", f"127.0.0.1:{server.port}") for word in command]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=SECONDS, env=os.environ)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_curl_is_answered(server: Server) -> None:
    lines = block("sh").splitlines()
    assert len(lines) > 8
    for line in lines:
        printed = said(["bash", "-c", line.replace("curl -s", "curl --fail-with-body -s")], server)
        if "shirt costs" in line and "sample" not in line and "/tokens" not in line:
            assert ("Hemd" in printed and "zwölf" in printed) if "constraints" in line else KNOWN in printed


def test_the_client_in_python_runs(server: Server) -> None:
    printed = said([sys.executable, "-W", "error", "-c", block("python")], server).splitlines()
    assert printed[0].startswith("Wir haben einen berühmten Fahrer angerufen")
    assert printed[-2] == "Der Hund, der ein großes Huhn verfolgte, ist freundlich"
    assert "this server allows 8" in printed[-1]
    assert len(printed) > 6


def test_every_limit_is_told_as_it_is() -> None:
    limits, table = Limits(), dict(re.findall(r"^\| `--(?:max-)?([a-z]+)` \| ([\d,.]+) \|", TEXT, re.MULTILINE))
    assert {name: float(value.replace(",", "")) for name, value in table.items()} == {
        name: float(getattr(limits, name)) for name in table
    }
    assert len(table) == 7
    usage = CliRunner().invoke(app, ["serve", "--help"], terminal_width=200).output
    assert [name for name in re.findall(r"`(--[a-z-]+)`", TEXT) if name not in usage] == ["--memory"] * TEXT.count(
        "`--memory`"
    )


def test_every_link_leads_somewhere() -> None:
    for name in ("serve.md", "security.md"):
        text = (ROOT / "docs" / name).read_text(encoding="utf-8")
        links = re.findall(r"\]\((?!http)([^)#]+)\)", text)
        assert links
        assert [link for link in links if not (ROOT / "docs" / link).exists()] == []
