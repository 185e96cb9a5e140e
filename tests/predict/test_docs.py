"""The commands and the Python code of docs/translation.md run, and it lists every option."""

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from regard.cli import app
from regard.options import TranslationOptions

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "translation.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)


def run(line: str) -> None:
    """Run a line as a shell would; `regard` itself without a new process, which would import torch each time."""
    if not line.startswith("regard "):
        subprocess.run(["bash", "-ec", line], check=True)
        return
    arguments = shlex.split(line)[1:]
    files = {mark: arguments[arguments.index(mark) + 1] for mark in "<>" if mark in arguments}
    for mark, name in files.items():
        arguments = [argument for argument in arguments if argument not in (mark, name)]
    stdin = Path(files["<"]).read_bytes() if "<" in files else None
    result = CliRunner().invoke(app, arguments, input=stdin)
    assert result.exit_code == 0, f"{line}: {result.exception}"
    if ">" in files:
        Path(files[">"]).write_text(result.stdout, encoding="utf-8")


def test_the_commands_and_the_python_code_run(memorised: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(memorised, "runs/phrasebook")
    commands = [line for body in blocks("sh") for line in body.splitlines()]
    assert len(commands) > 12
    for line in commands:
        run(line)
    assert Path("out.txt").read_text(encoding="utf-8").count("\n") == 3
    exec(compile("\n".join(blocks("python")), "docs/translation.md", "exec"), {})


def test_every_link_leads_to_a_file() -> None:
    links = re.findall(r"\]\((?!http)([^)#]+)\)", TEXT)
    assert links
    assert [link for link in links if not (ROOT / "docs" / link).exists()] == []


def test_every_option_of_the_command_is_documented() -> None:
    assert [option.flag for option in TranslationOptions.declared() if option.flag and option.flag not in TEXT] == []
