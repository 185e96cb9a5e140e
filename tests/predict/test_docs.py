"""What docs/translation.md tells to type works as typed."""

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


def type_in(line: str) -> None:
    """Run a line as a shell would; `regard` itself without a new process, which would import torch each time."""
    if not line.startswith("regard "):
        subprocess.run(["bash", "-ec", line], check=True)
        return
    words = shlex.split(line)[1:]
    files = {mark: words[words.index(mark) + 1] for mark in "<>" if mark in words}
    for mark, name in files.items():
        words = [word for word in words if word not in (mark, name)]
    given = Path(files["<"]).read_bytes() if "<" in files else None
    said = CliRunner().invoke(app, words, input=given)
    assert said.exit_code == 0, f"{line}: {said.exception}"
    if ">" in files:
        Path(files[">"]).write_text(said.stdout, encoding="utf-8")


def test_its_commands_and_its_python_run_as_typed(
    memorised: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(memorised, "runs/phrasebook")
    commands = [line for body in blocks("sh") for line in body.splitlines()]
    assert len(commands) > 12
    for line in commands:
        type_in(line)
    assert Path("out.txt").read_text(encoding="utf-8").count("\n") == 3
    exec(compile("\n".join(blocks("python")), "docs/translation.md", "exec"), {})


def test_every_link_leads_somewhere() -> None:
    links = re.findall(r"\]\((?!http)([^)#]+)\)", TEXT)
    assert links
    assert [link for link in links if not (ROOT / "docs" / link).exists()] == []


def test_every_option_of_the_command_is_told() -> None:
    assert [each.flag for each in TranslationOptions.declared() if each.flag and each.flag not in TEXT] == []
