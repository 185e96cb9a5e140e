"""`regard score`: judge translations or word alignments against references, with the signature beside each number."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from regard.score import AlignmentScore, Comparison, Score

_TEXT, _LINKS = "Translations", "Word alignments"

Hypothesis = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="A system's output, one sentence a line; - for stdin.", rich_help_panel=_TEXT),
]
Reference = Annotated[
    list[str] | None,
    typer.Option(metavar="FILE", help="What it should be; repeat for more references.", rich_help_panel=_TEXT),
]
Baseline = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="Another output; tests if the difference is chance.", rich_help_panel=_TEXT),
]
Metrics = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="bleu, chrf, chrf++, ter or exact; repeat for more; bleu and chrf if none is named.",
        rich_help_panel=_TEXT,
    ),
]
Compatible = Annotated[
    bool,
    typer.Option("--lowercase-tokenised", help="Add the BLEU of lower-cased, tokenised text.", rich_help_panel=_TEXT),
]
Tokenize = Annotated[
    str,
    typer.Option(
        metavar="NAME", help="BLEU's tokenizer: 13a, intl, char, zh, ja-mecab, ko-mecab, none.", rich_help_panel=_TEXT
    ),
]
Test = Annotated[
    Literal["bootstrap", "randomisation"],
    typer.Option(help="How to test against the baseline.", rich_help_panel=_TEXT),
]
Samples = Annotated[int, typer.Option(help="Draws of that test.", rich_help_panel=_TEXT)]
Seed = Annotated[int, typer.Option(help="Seed of that test.", rich_help_panel=_TEXT)]
Predicted = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="Predicted links, Pharaoh or NAACL format.", rich_help_panel=_LINKS),
]
Gold = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="Gold links, sure and possible, either format.", rich_help_panel=_LINKS),
]
OneBased = Annotated[
    list[str] | None,
    typer.Option(metavar="alignment|gold", help="This Pharaoh file counts words from 1.", rich_help_panel=_LINKS),
]
Text = Annotated[
    tuple[str, str] | None,
    typer.Option(metavar="SOURCE TARGET", help="The sentences, to check links against.", rich_help_panel=_LINKS),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, numbers in full.")]


def score(
    hypothesis: Hypothesis = None,
    reference: Reference = None,
    baseline: Baseline = None,
    metric: Metrics = None,
    lowercase_tokenised: Compatible = False,
    tokenize: Tokenize = "13a",
    test: Test = "bootstrap",
    samples: Samples = 1000,
    seed: Seed = 12345,
    alignment: Predicted = None,
    gold: Gold = None,
    one_based: OneBased = None,
    text: Text = None,
    as_json: AsJson = False,
) -> None:
    """Score translations (BLEU, chrF, TER, exact match) or word alignments (AER), with signatures.

    \b
    regard score --hypothesis out.de --reference test.de
    regard score --hypothesis out.de --reference test.de --metric ter
    regard score --hypothesis out.de --reference test.de --baseline other.de
    regard score --hypothesis out.de --reference test.de --lowercase-tokenised
    regard score --alignment out.align --gold gold.align

    Files may be gzipped. Numbers are sacrebleu's, to the last digit.
    """
    if alignment or gold:
        if hypothesis or reference or baseline:
            raise ValueError("--alignment and --gold judge alignments, --hypothesis and --reference text; ask for one")
        if not (alignment and gold):
            raise ValueError(f"{'--gold' if alignment else '--alignment'} is missing; both files are needed")
        print_alignment(_alignment_score(alignment, gold, one_based or [], text), as_json)
        return
    if not (hypothesis and reference):
        raise ValueError(
            "give --hypothesis and --reference to score text, or --alignment and --gold to score alignments"
        )
    names = list(
        dict.fromkeys([*(metric or ("bleu", "chrf")), *(["bleu-lowercase-tokenised"] if lowercase_tokenised else [])])
    )
    lines, streams = _read_text(hypothesis, reference, baseline)
    _warn_if_tokenised(hypothesis, lines[0], tokenize)
    if baseline:
        print_comparisons(_compare(lines, streams, names, tokenize, (test, samples, seed)), as_json)
    else:
        from regard.score import score as measure

        print_scores([measure(name, lines[0], streams, tokenize=tokenize) for name in names], as_json)


def _read_text(hypothesis: str, reference: list[str], baseline: str | None) -> tuple[list[list[str]], list[list[str]]]:
    """Lines of hypothesis and baseline, and of the references, as many in each."""
    from regard.score import read_lines

    others = [*([baseline] if baseline else []), *reference]
    if "-" in others:
        raise ValueError("only --hypothesis reads standard input; give files for the rest")
    lines = {path: read_lines(path) for path in [hypothesis, *others]}
    for path in others:
        if len(lines[path]) != len(lines[hypothesis]):
            raise ValueError(
                f"{hypothesis} has {len(lines[hypothesis])} lines but {path} has {len(lines[path])}; "
                "line i of each must belong to the same sentence"
            )
    systems = [lines[hypothesis], *([lines[baseline]] if baseline else [])]
    return systems, [lines[path] for path in reference]


def _warn_if_tokenised(path: str, lines: list[str], tokenize: str) -> None:
    ends = sum(line.endswith(" .") for line in lines)
    if tokenize != "none" and ends >= min(100, len(lines) / 2):  # sacrebleu warns from 100 on
        typer.echo(
            f"regard: {ends} lines of {path} end in ' .', as tokenised text does; scores that can be compared need "
            "detokenised text",
            err=True,
        )


def _compare(
    lines: list[list[str]], streams: list[list[str]], names: list[str], tokenize: str, test: tuple[str, int, int]
) -> "list[Comparison]":
    from regard.score import paired_bootstrap, paired_randomisation

    how, samples, seed = test
    paired = paired_bootstrap if how == "bootstrap" else paired_randomisation
    system, other = lines
    return [
        paired(system, other, streams, metric=name, samples=samples, seed=seed, tokenize=tokenize) for name in names
    ]


def _alignment_score(
    alignment: str, gold: str, one_based: Sequence[str], text: tuple[str, str] | None
) -> "AlignmentScore":
    from regard.score import alignment_error_rate, read_alignments, read_lines

    if "-" in (alignment, gold):
        raise ValueError("alignments are read from files, not from standard input")
    if unknown := set(one_based) - {"alignment", "gold"}:
        raise ValueError(f"--one-based takes alignment or gold, not {', '.join(sorted(unknown))}")
    lengths = None
    if text:
        source, target = (read_lines(path) for path in text)
        if len(source) != len(target):
            raise ValueError(
                f"{text[0]} has {len(source)} lines but {text[1]} has {len(target)}; they must be parallel"
            )
        lengths = [(len(one.split()), len(other.split())) for one, other in zip(source, target, strict=True)]
    truth = read_alignments(gold, one_based="gold" in one_based, lengths=lengths)
    # A NAACL file ends at its last link, so the gold file says how many sentence pairs there are.
    found = read_alignments(alignment, one_based="alignment" in one_based, lengths=lengths, pairs=len(truth))
    if len(found) != len(truth):
        raise ValueError(
            f"{alignment} aligns {len(found)} sentence pairs but {gold} has {len(truth)}; both need the same sentences"
        )
    return alignment_error_rate(found, truth)


def print_scores(scores: "list[Score]", as_json: bool) -> None:
    """Scores as a table, or as JSON."""
    if as_json:
        typer.echo(json.dumps([asdict(each) for each in scores], ensure_ascii=False, indent=2))
        return
    print_table(
        ("score", "value", "signature"), [(_arrow(each), f"{each.value:.2f}", each.signature) for each in scores]
    )


def print_comparisons(comparisons: "list[Comparison]", as_json: bool) -> None:
    """Two systems beside each other as a table, or as JSON."""
    if as_json:
        typer.echo(json.dumps([asdict(each) for each in comparisons], ensure_ascii=False, indent=2))
        return
    rows = []
    for each in comparisons:
        between = f"[{each.interval[0]:+.2f}, {each.interval[1]:+.2f}]" if each.interval else "-"
        numbers = (f"{each.system.value:.2f}", f"{each.baseline.value:.2f}", f"{each.difference:+.2f}", between)
        rows.append((_arrow(each.system), *numbers, f"{each.p_value:.4f}", each.signature))
    print_table(("score", "system", "baseline", "difference", "95 %", "p", "signature"), rows)


def _arrow(score: "Score") -> str:
    return score.name if score.higher_is_better else f"{score.name} (lower is better)"


def print_alignment(result: "AlignmentScore", as_json: bool) -> None:
    """The rates of an alignment as a table, or as JSON."""
    rates = {"AER": result.aer, "precision": result.precision, "recall": result.recall, "F1": result.f1}
    if as_json:
        rated = {name.lower(): rate for name, rate in rates.items()}
        typer.echo(json.dumps({**rated, "counts": asdict(result), "signature": result.signature}, indent=2))
        return
    labels = {"AER": "AER (lower is better)"}
    rows = [(labels.get(name, name), f"{rate:.2%}", result.signature) for name, rate in rates.items()]
    print_table(("score", "value", "signature"), rows)


def print_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Columns of plain text, words to the left and numbers to the right; a terminal sees the heads in bold."""
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    for row in [heads, *rows]:
        cells = []
        for head, cell, width in zip(heads, row, widths, strict=True):
            padded = cell.ljust(width) if head == "score" else cell if head == "signature" else cell.rjust(width)
            # A signature longer than the terminal wraps as a whole and can still be copied, which a drawn table breaks.
            cells.append(typer.style(padded, bold=row is heads or None, dim=head == "signature" or None))
        typer.echo("  ".join(cells))
