"""The command `regard score`."""

import gzip
import json
from pathlib import Path

import pytest
import sacrebleu
import typer
from typer.testing import CliRunner, Result

from regard.cli.score import score

app = typer.Typer()
app.command()(score)

REFERENCE = ["Der Hund läuft über die Straße.", "Ich kann allein gehen.", "Er war zu müde.", "Zwei Männer warten."] * 5
OUTPUT = ["Der Hund läuft über eine Straße.", "Ich kann allein gehen.", "er war müde.", "Zwei Männer warten."] * 5
OTHER = ["Ein Hund rennt auf einer Straße.", "Ich gehe.", "Er schläft.", "Zwei Leute."] * 5


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, lines in {"test.de": REFERENCE, "out.de": OUTPUT, "other.de": OTHER}.items():
        Path(name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    Path("gold.align").write_text("0-0 1p1\n0-1\n", encoding="utf-8")
    Path("out.align").write_text("0-0\n0-1 1-0\n", encoding="utf-8")
    return tmp_path


def run(line: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(app, line.split(), input=stdin)


def output(line: str, stdin: str | None = None) -> str:
    result = run(line, stdin)
    assert result.exit_code == 0, result.output
    return result.stdout


def error(line: str) -> str:
    result = run(line)
    assert isinstance(result.exception, ValueError | OSError)
    assert result.stdout == ""
    return str(result.exception)


def test_each_row_has_name_value_and_signature() -> None:
    lines = output("--hypothesis out.de --reference test.de --metric bleu --metric ter").splitlines()
    bleu = sacrebleu.BLEU()
    assert lines[0].split() == ["score", "value", "signature"]
    value = bleu.corpus_score(OUTPUT, [REFERENCE]).score
    assert lines[1].split() == ["BLEU", f"{value:.2f}", str(bleu.get_signature())]
    assert lines[2].startswith("TER (lower is better)  ")
    assert len({line.index("nrefs:") for line in lines[1:]} | {lines[0].index("signature")}) == 1


def test_bleu_and_chrf_are_the_default_metrics() -> None:
    assert [line.split()[0] for line in output("--hypothesis out.de --reference test.de").splitlines()[1:]] == [
        "BLEU",
        "chrF2",
    ]


def test_json_has_all_digits() -> None:
    printed = json.loads(output("--hypothesis out.de --reference test.de --metric chrf++ --metric exact --json"))
    assert [score["name"] for score in printed] == ["chrF2++", "exact match"]
    assert printed[0]["value"] == sacrebleu.CHRF(word_order=2).corpus_score(OUTPUT, [REFERENCE]).score
    assert printed[1]["value"] == 50


def test_the_hypothesis_may_be_stdin_and_references_may_be_several_and_gzipped() -> None:
    with gzip.open("more.de.gz", "wt", encoding="utf-8") as stream:
        stream.write("\n".join(OUTPUT))
    printed = output("--hypothesis - --reference test.de --reference more.de.gz --metric exact", "\n".join(OUTPUT))
    assert "100.00  nrefs:2|" in printed


def test_lower_cased_tokenised_bleu_has_its_own_row() -> None:
    lines = output("--hypothesis out.de --reference test.de --metric bleu --lowercase-tokenised").splitlines()
    assert lines[1].startswith("BLEU  ")
    assert "case:mixed" in lines[1]
    assert lines[2].startswith("BLEU (lower-cased, tokenised)  ")
    assert "case:lc|eff:no|tok:13a|smooth:none" in lines[2]


@pytest.mark.parametrize(("test", "mark"), [("bootstrap", "bs"), ("randomisation", "ar")])
def test_a_baseline_adds_the_difference_and_its_significance(test: str, mark: str) -> None:
    line = f"--hypothesis out.de --reference test.de --baseline other.de --test {test} --samples 200 --seed 3"
    heads, *rows = output(line).splitlines()
    assert heads.split()[:4] == ["score", "system", "baseline", "difference"]
    for row in rows:
        assert "  0.0050  " in row  # 1 / 201
        assert f"nrefs:1|{mark}:200|seed:3|" in row
    assert output(line) == "\n".join([heads, *rows, ""])


def test_a_comparison_in_json_has_both_scores_and_the_interval() -> None:
    command = "--hypothesis out.de --reference test.de --baseline out.de --metric bleu --samples 20 --json"
    (printed,) = json.loads(output(command))
    assert printed["system"] == printed["baseline"]
    assert (printed["difference"], printed["p_value"], printed["interval"]) == (0, 1, [0, 0])


def test_alignments_are_scored_in_either_format() -> None:
    lines = output("--alignment out.align --gold gold.align").splitlines()
    assert [line.split()[0] for line in lines] == ["score", "AER", "precision", "recall", "F1"]
    assert "20.00%  pairs:2|sure:2|possible:3|proposed:3|formula:och-ney" in lines[1]
    Path("gold.naacl").write_text("1 1 1 S\n1 2 2 P\n2 1 2\n", encoding="utf-8")
    assert output("--alignment out.align --gold gold.naacl").splitlines() == lines


def test_alignments_in_json_have_rates_counts_and_signature() -> None:
    printed = json.loads(output("--alignment out.align --gold gold.align --json"))
    assert printed["aer"] == 0.2
    assert printed["counts"]["proposed_sure"] == 2
    assert printed["signature"].startswith("pairs:2|")


def test_a_pharaoh_file_may_count_from_1() -> None:
    Path("gold1.align").write_text("1-1 2p2\n1-2\n", encoding="utf-8")
    counted = output("--alignment out.align --gold gold1.align --one-based gold")
    assert counted == output("--alignment out.align --gold gold.align")


def test_links_are_checked_against_the_sentences() -> None:
    Path("s").write_text("a b\na b\n", encoding="utf-8")
    Path("t").write_text("a b\na b\n", encoding="utf-8")
    assert "AER" in output("--alignment out.align --gold gold.align --text s t")
    Path("t").write_text("a b\na\n", encoding="utf-8")
    assert "gold.align:2: link 0-1" in error("--alignment out.align --gold gold.align --text s t")
    Path("t").write_text("a b\n", encoding="utf-8")
    assert "s has 2 lines but t has 1" in error("--alignment out.align --gold gold.align --text s t")


def test_tokenised_output_gives_a_warning_on_stderr() -> None:
    Path("tok.de").write_text("Ich gehe .\n" * 20, encoding="utf-8")
    result = run("--hypothesis tok.de --reference test.de")
    assert "20 lines of tok.de end in ' .'" in result.stderr
    assert "tok.de" not in result.stdout
    assert run("--hypothesis tok.de --reference test.de --tokenize none").stderr == ""
    assert run("--hypothesis out.de --reference test.de").stderr == ""


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "give --hypothesis and --reference"),
        ("--hypothesis out.de", "give --hypothesis and --reference"),
        ("--gold gold.align", "--alignment is missing"),
        ("--alignment out.align", "--gold is missing"),
        ("--alignment out.align --gold gold.align --reference test.de", "use one pair of them"),
        ("--alignment out.align --gold gold.align --one-based both", "--one-based takes alignment or gold, not both"),
        ("--alignment - --gold gold.align", "not from standard input"),
        ("--hypothesis out.de --reference -", "only --hypothesis reads standard input"),
        ("--hypothesis out.de --reference nowhere.de", "nowhere.de does not exist"),
        ("--hypothesis out.de --reference .", "is a directory"),
        ("--hypothesis out.de --reference gold.align", "out.de has 20 lines but gold.align has 2"),
        ("--hypothesis out.de --reference test.de --metric meteor", "choose from bleu, chrf"),
        ("--hypothesis out.de --reference test.de --tokenize moses", "no tokenizer 'moses'"),
        ("--hypothesis out.de --reference test.de --baseline gold.align", "gold.align has 2"),
        ("--hypothesis out.de --reference test.de --baseline other.de --samples 0", "samples must be at least 1"),
        ("--alignment out.de --gold gold.align", "out.de:1: 'Der' is not a Pharaoh link"),
    ],
)
def test_invalid_arguments_are_an_error_with_a_remedy(line: str, message: str) -> None:
    assert message in error(line)


def test_alignments_of_different_numbers_of_sentences_are_an_error() -> None:
    Path("three.align").write_text("0-0\n0-0\n0-0\n", encoding="utf-8")
    message = error("--alignment three.align --gold gold.align")
    assert "three.align aligns 3 sentence pairs but gold.align has 2" in message
