"""The command `regard translate`: pipes, signals, invalid bytes, columns and files of constraints."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.fork_server import forked_python
from typer.testing import CliRunner

from regard.cli import app
from regard.cli.flags import spell_flag
from regard.data.phrasebook import phrases
from regard.options import OptionError

KNOWN = [(phrase.source, phrase.target) for phrase in phrases("de", "train", 20)]


def start(*words: str | Path, python: str | None = None) -> subprocess.Popen[bytes]:
    command = [python or forked_python(), "-m", "regard", "translate", *map(str, words), "--device", "cpu"]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe)


def translate(run: Path, text: str | bytes, *words: str | Path) -> list[str]:
    """Return the output lines for an input, without a new process."""
    result = CliRunner().invoke(app, ["translate", str(run), "--device", "cpu", *map(str, words)], input=text)
    assert result.exit_code == 0, result.exception
    return result.stdout.split("\n")[:-1]


def test_a_line_is_translated_before_the_next_one_arrives_and_an_interrupt_exits_with_130(memorised: Path) -> None:
    # A new interpreter: a forked process could read the end of its input before the signal arrives.
    process = start(memorised, python=sys.executable)
    assert process.stdin is not None
    assert process.stdout is not None
    for source, target in KNOWN[:2]:
        process.stdin.write(source.encode() + b"\n")
        process.stdin.flush()
        assert process.stdout.readline().decode() == target + "\n"
    process.send_signal(signal.SIGINT)
    _, complaint = process.communicate(timeout=600)
    assert (process.returncode, b"Traceback" in complaint) == (130, False)


def test_a_closed_pipe_ends_the_command_without_an_error(memorised: Path, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("\n" * 200_000 + "a cat\n", encoding="utf-8")
    process = start(memorised, tmp_path / "in.txt", "--quiet")
    assert process.stdout is not None
    assert process.stdout.readline() == b"\n"
    process.stdout.close()
    process.stdout = None
    _, complaint = process.communicate(timeout=600)
    assert (process.returncode, complaint) == (0, b"")


def test_every_input_line_has_an_output_line_whatever_its_bytes(memorised: Path) -> None:
    source, target = KNOWN[0]
    hostile = [b"", source.encode(), b"\xff\xfe broken", b"   ", b"a\rb", b"\x00", "a b\x85c".encode(), source.encode()]
    process = start(memorised, "--quiet")
    output, complaint = process.communicate(b"\n".join(hostile), timeout=600)
    lines = output.decode().split("\n")
    assert len(lines) == len(hostile) + 1
    assert [lines[at] for at in (0, 1, 3, 7)] == ["", target, "", target]
    assert b"line 3: byte 1 (0xff) is not UTF-8" in complaint
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["nowhere"], "there is no run at nowhere"),
        (["."], "is not a run: it has no recipe.toml"),
        (["RUN", "nowhere.txt"], "nowhere.txt does not exist"),
        (["RUN", "--device", "gpu"], "there is no device 'gpu' here"),
        (["RUN", "--nbest", "9"], "a beam of 3 cannot give 9"),
        (["RUN", "--terms", "bad.tsv"], "bad.tsv, line 2: 'no tab here' is not a term"),
        (["RUN", "--constraints", "bad.tsv"], "bad.tsv has fewer lines than there are to translate"),
        (["RUN", "--constraints", "four.txt"], "four.txt has more lines than there are to translate"),
        (["RUN", "--prefix", "@four.txt"], "four.txt has more lines than there are to translate"),
        (["RUN", "--constraints", "four.txt", "--sample"], "leave out --sample, --mbr and --groups"),
        (
            ["RUN", "--length-penalty", "nan"],
            "--length-penalty must be a number of at least -10 and of at most 10, but is nan",
        ),
        (
            ["RUN", "--sample", "--temperature", "inf"],
            "--temperature must be a number above 0 and of at most 100, but is inf",
        ),
        (["RUN", "--min-length", "8", "--max-length", "4"], "--min-length is 8, which is more than --max-length, 4"),
        (["RUN", "--temperature", "0.5"], "--temperature has no effect on beam search; use --sample too"),
        (["RUN", "--quantize", "int8", "--dtype", "bfloat16"], "leave out --dtype bfloat16"),
    ],
    ids=lambda arguments: " ".join(arguments) if isinstance(arguments, list) else None,
)
def test_a_user_error_is_one_sentence(
    words: list[str], sentence: str, memorised: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bad.tsv").write_text("a\tb\nno tab here\n", encoding="utf-8")
    Path("four.txt").write_text("a\n" * 4, encoding="utf-8")
    command = ["translate", *(str(memorised) if word == "RUN" else word for word in words)]
    result = CliRunner().invoke(app, command, input="a\nb\nc\n")
    assert isinstance(result.exception, ValueError | OSError)
    error = result.exception
    assert sentence in (error.spelled(spell_flag) if isinstance(error, OptionError) else str(error))


def test_empty_input_gives_empty_output(memorised: Path) -> None:
    assert translate(memorised, "") == []
    assert translate(memorised, "\n\n") == ["", ""]


def test_columns_are_in_order(memorised: Path) -> None:
    source, target = KNOWN[0]
    (line,) = translate(memorised, source, "--scores", "--alignments")
    score, text, links = line.split("\t")
    assert (float(score) < 0, text) == (True, target)
    assert all(int(left) < len(source.split()) for left, _, _ in (link.partition("-") for link in links.split()))
    rows = [line.split("\t") for line in translate(memorised, f"{source}\n\n{source}", "--nbest", "2")]
    assert [row[0] for row in rows] == ["1", "1", "2", "3", "3"]
    assert rows[0][1] == target != rows[1][1]


def test_json_has_everything(memorised: Path) -> None:
    source, target = KNOWN[1]
    first, second = map(json.loads, translate(memorised, f"{source}\n\n", "--json", "--nbest", "2", "--alignments"))
    assert (first["source"], first["text"], len(first["nbest"])) == (source, target, 2)
    assert first["logprob"] == pytest.approx(sum(first["token_logprobs"]))
    assert first["alignment"]
    assert (second["text"], second["alignment"]) == ("", [])
    assert all("alignment" not in json.loads(line) for line in translate(memorised, f"{source}\n\n", "--json"))


def test_files_of_constraints_avoided_phrases_terms_and_prefixes_apply(memorised: Path, tmp_path: Path) -> None:
    source, target = KNOWN[0]
    word = target.split()[-1]
    (tmp_path / "must.tsv").write_text("Katze\tein Hund\n\n", encoding="utf-8")
    (tmp_path / "never.txt").write_text(f"{word}\n", encoding="utf-8")
    (tmp_path / "terms.tsv").write_text(f"# source, target\n{source.split()[1]}\tWauwau\n", encoding="utf-8")
    (tmp_path / "begin.txt").write_text("Wir\n\n", encoding="utf-8")
    twice = f"{source}\n{source}\n"
    constrained, plain = translate(memorised, twice, "--constraints", tmp_path / "must.tsv", "--beam", "8")
    assert "Katze" in constrained
    assert "ein Hund" in constrained
    assert plain == target
    assert word not in " ".join(translate(memorised, twice, "--avoid", tmp_path / "never.txt")).split()
    assert "Wauwau" in translate(memorised, source, "--terms", tmp_path / "terms.tsv", "--beam", "8")[0]
    first, second = translate(memorised, twice, "--prefix", f"@{tmp_path / 'begin.txt'}")
    assert (first.startswith("Wir"), second) == (True, target)
    assert translate(memorised, source, "--prefix", "Wir")[0].startswith("Wir")


def test_samples_depend_on_the_seed_only(memorised: Path) -> None:
    options = ("--sample", "--temperature", "2", "--nbest", "3", "--max-length", "8", "--seed")
    assert translate(memorised, "a cat", *options, "1") == translate(memorised, "a cat", *options, "1")
    assert translate(memorised, "a cat", *options, "1") != translate(memorised, "a cat", *options, "2")


def test_an_ensemble_of_a_run_with_itself_translates_like_the_run(memorised: Path) -> None:
    source, target = KNOWN[2]
    assert translate(memorised, source, "--with", memorised) == [target]


def test_a_line_of_ten_thousand_words_is_split_or_refused(memorised: Path, tmp_path: Path) -> None:
    (tmp_path / "long.txt").write_text(f"{'a ' * 10_000}\n{KNOWN[0][0]}\n", encoding="utf-8")
    lines = translate(memorised, "", tmp_path / "long.txt", "--beam", "1", "--max-length", "2")
    assert len(lines) == 2
    command = ["translate", str(memorised), str(tmp_path / "long.txt"), "--long", "error", "--device", "cpu"]
    refused = CliRunner().invoke(app, command)
    assert refused.stdout == f"\n{KNOWN[0][1]}\n"
    assert "1 of 2 lines could not be translated" in str(refused.exception)
