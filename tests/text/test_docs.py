"""The examples of docs/text.md run."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_the_examples_in_the_docs_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "text.md").read_text(encoding="utf-8")
    examples = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(examples) == 2
    for example in examples:
        exec(compile(example, "docs/text.md", "exec"), {})
    assert (tmp_path / "runs" / "some" / "tokenizer" / "joint.model").is_file()
