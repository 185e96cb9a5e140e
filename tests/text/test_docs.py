"""The example of docs/text.md runs as it stands."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_the_example_in_the_docs_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    example = re.search(r"```python\n(.*?)```", (ROOT / "docs" / "text.md").read_text(encoding="utf-8"), re.DOTALL)
    assert example is not None
    exec(compile(example[1], "docs/text.md", "exec"), {})
    assert (tmp_path / "runs" / "some" / "tokenizer" / "joint.model").is_file()
