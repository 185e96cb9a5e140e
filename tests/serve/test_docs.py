"""The commands in docs/serve.md work, and its tables of options are true."""

import os
import re
import subprocess
from pathlib import Path
from typing import Any

from tests.fork_server import forked_python
from tests.serve.client import SECONDS, Server
from typer.main import get_command

from regard.cli import app
from regard.serve.settings import ServerLimits

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "serve.md").read_text(encoding="utf-8")

KNOWN = "Das Hemd kostet zwölf Euro"


def code(language: str) -> str:
    return "".join(re.findall(rf"^```{language}\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE))


def output(command: list[str], server: Server) -> str:
    """Run a command against the test server instead of port 8000, and return what it prints."""
    words = [word.replace("127.0.0.1:8000", f"127.0.0.1:{server.port}") for word in command]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=SECONDS, env=os.environ)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_curl_command_works(server: Server) -> None:
    commands = re.split(r"\n(?=curl )", code("sh"))
    assert len(commands) > 8
    for command in commands:
        printed = output(["bash", "-c", command.replace("curl -s", "curl --fail-with-body -s")], server)
        if "shirt costs" in command and "sample" not in command and "/tokens" not in command:
            assert ("Hemd" in printed and "zwölf" in printed) if "constraints" in command else KNOWN in printed


def test_every_curl_command_of_chat_works(server_of_labels: Server) -> None:
    commands = re.split(r"\n(?=curl )", code("bash"))
    assert len(commands) == 4
    for command in commands:
        printed = output(["bash", "-c", command.replace("curl -s", "curl --fail-with-body -s")], server_of_labels)
        assert '"text"' in printed or '"choices"' in printed


def test_the_python_client_works(server: Server) -> None:
    printed = output([forked_python(), "-W", "error", "-c", code("python")], server).splitlines()
    assert printed[0].startswith("Wir haben einen berühmten Fahrer angerufen")
    assert printed[-2] == "Der Hund, der ein großes Huhn verfolgte, ist freundlich"
    assert "this server allows 8" in printed[-1]
    assert len(printed) > 6


def test_the_table_of_limits_has_the_defaults_and_every_option_exists() -> None:
    rows = dict(re.findall(r"^\| `--(?:max-)?([a-z-]+)` \| ([\d,.]+) \|", TEXT, re.MULTILINE))
    defaults = {name.replace("_", "-"): float(value) for name, value in vars(ServerLimits()).items()}
    assert {name: float(value.replace(",", "")) for name, value in rows.items()} == defaults
    commands: Any = get_command(app)
    options = {name for parameter in commands.commands["serve"].params for name in parameter.opts}
    assert set(re.findall(r"`(--[a-z-]+)`", TEXT)) <= options


def test_every_link_leads_somewhere() -> None:
    for name in ("serve.md", "security.md"):
        text = (ROOT / "docs" / name).read_text(encoding="utf-8")
        links = re.findall(r"\]\((?!http)([^)#]+)\)", text)
        assert links
        assert [link for link in links if not (ROOT / "docs" / link).exists()] == []
