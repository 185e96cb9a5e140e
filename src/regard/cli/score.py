"""`regard score`: score translations or word alignments against references, each score with its signature."""

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
    typer.Option(metavar="FILE", help="Output of a system, one sentence per line; - is stdin.", rich_help_panel=_TEXT),
]
Reference = Annotated[
    list[str] | None,
    typer.Option(metavar="FILE", help="Reference translations; repeat for more references.", rich_help_panel=_TEXT),
]
Baseline = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="Output of another system; adds a significance test.", rich_help_panel=_TEXT),
]
Metrics = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="A metric, such as chrf++, ter or exact; repeat for more. Default: bleu and chrf.",
        rich_help_panel=_TEXT,
    ),
]
Compatible = Annotated[
    bool,
    typer.Option("--lowercase-tokenised", help="Add BLEU on lower-cased, tokenised text.", rich_help_panel=_TEXT),
]
Tokenize = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="Tokenizer of BLEU: 13a, intl, char, zh, ja-mecab, ko-mecab or none.",
        rich_help_panel=_TEXT,
    ),
]
Test = Annotated[
    Literal["bootstrap", "randomisation"],
    typer.Option(help="Significance test against the baseline.", rich_help_panel=_TEXT),
]
Samples = Annotated[int, typer.Option(help="Samples of the significance test.", rich_help_panel=_TEXT)]
Seed = Annotated[int, typer.Option(help="Random seed of the significance test.", rich_help_panel=_TEXT)]
Predicted = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="Predicted links, in Pharaoh or NAACL format.", rich_help_panel=_LINKS),
]
Gold = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="Gold links, sure and possible, in either format.", rich_help_panel=_LINKS),
]
OneBased = Annotated[
    list[str] | None,
    typer.Option(metavar="alignment|gold", help="The Pharaoh file that counts words from 1.", rich_help_panel=_LINKS),
]
Text = Annotated[
    tuple[str, str] | None,
    typer.Option(
        metavar="SOURCE TARGET", help="Files of the sentences, to check the links against.", rich_help_panel=_LINKS
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, with all digits.")]


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

    Files may be gzipped. BLEU, chrF and TER are computed by sacrebleu.
    """
    if alignment or gold:
        if hypothesis or reference or baseline:
            raise ValueError(
                "--alignment and --gold score alignments, --hypothesis and --reference score text; use one pair of them"
            )
        if not (alignment and gold):
            raise ValueError(f"{'--gold' if alignment else '--alignment'} is missing; give both files")
        print_alignment(_alignment_score(alignment, gold, one_based or [], text), as_json)
        return
    if not (hypothesis and reference):
        raise ValueError(
            "give --hypothesis and --reference to score text, or --alignment and --gold to score alignments"
        )
    names = list(
        dict.fromkeys([*(metric or ("bleu", "chrf")), *(["bleu-lowercase-tokenised"] if lowercase_tokenised else [])])
    )
    lines, streams = read_parallel_lines(hypothesis, reference, baseline)
    _warn_if_tokenised(hypothesis, lines[0], tokenize)
    if baseline:
        print_comparisons(_compare(lines, streams, names, tokenize, (test, samples, seed)), as_json)
    else:
        from regard.score import score as measure

        print_scores([measure(name, lines[0], streams, tokenize=tokenize) for name in names], as_json)


def read_parallel_lines(
    hypothesis: str, reference: list[str], baseline: str | None = None
) -> tuple[list[list[str]], list[list[str]]]:
    """Read hypothesis and baseline, and the references; all must have the same number of lines."""
    from regard.score import read_sentences

    others = [*([baseline] if baseline else []), *reference]
    if "-" in others:
        raise ValueError("only --hypothesis reads standard input; give files for the others")
    lines = {path: read_sentences(path) for path in [hypothesis, *others]}
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
            f"regard: {ends} lines of {path} end in ' .' like tokenised text; detokenise it, or the scores are not "
            "comparable with others",
            err=True,
        )


def _compare(
    lines: list[list[str]], streams: list[list[str]], names: list[str], tokenize: str, test: tuple[str, int, int]
) -> "list[Comparison]":
    from regard.score import paired_bootstrap, paired_randomisation

    name_of_test, samples, seed = test
    paired = paired_bootstrap if name_of_test == "bootstrap" else paired_randomisation
    system, baseline = lines
    return [
        paired(system, baseline, streams, metric=name, samples=samples, seed=seed, tokenize=tokenize) for name in names
    ]


def _alignment_score(
    alignment: str, gold: str, one_based: Sequence[str], text: tuple[str, str] | None
) -> "AlignmentScore":
    from regard.score import alignment_error_rate, read_alignments, read_sentences

    if "-" in (alignment, gold):
        raise ValueError("alignments are read from files, not from standard input")
    if unknown := set(one_based) - {"alignment", "gold"}:
        raise ValueError(f"--one-based takes alignment or gold, not {', '.join(sorted(unknown))}")
    lengths = None
    if text:
        source, target = (read_sentences(path) for path in text)
        if len(source) != len(target):
            raise ValueError(
                f"{text[0]} has {len(source)} lines but {text[1]} has {len(target)}; they must be parallel"
            )
        lengths = [
            (len(line.split()), len(translation.split())) for line, translation in zip(source, target, strict=True)
        ]
    gold_links = read_alignments(gold, one_based="gold" in one_based, lengths=lengths)
    # A NAACL file ends at its last link, so the number of sentence pairs comes from the gold file.
    links = read_alignments(alignment, one_based="alignment" in one_based, lengths=lengths, pairs=len(gold_links))
    if len(links) != len(gold_links):
        raise ValueError(
            f"{alignment} aligns {len(links)} sentence pairs but {gold} has {len(gold_links)}; align the same sentences"
        )
    return alignment_error_rate(links, gold_links)


def print_scores(scores: "list[Score]", as_json: bool) -> None:
    """Print scores as a table, or as JSON."""
    if as_json:
        typer.echo(json.dumps([asdict(score) for score in scores], ensure_ascii=False, indent=2))
        return
    print_table(
        ("score", "value", "signature"), [(_label(score), f"{score.value:.2f}", score.signature) for score in scores]
    )


def print_comparisons(comparisons: "list[Comparison]", as_json: bool) -> None:
    """Print the comparison of two systems as a table, or as JSON."""
    if as_json:
        typer.echo(json.dumps([asdict(comparison) for comparison in comparisons], ensure_ascii=False, indent=2))
        return
    rows = []
    for comparison in comparisons:
        values = f"{comparison.system.value:.2f}", f"{comparison.baseline.value:.2f}", f"{comparison.difference:+.2f}"
        limits = comparison.interval
        interval = f"[{limits[0]:+.2f}, {limits[1]:+.2f}]" if limits else "-"
        p_value = f"{comparison.p_value:.4f}"
        rows.append((_label(comparison.system), *values, interval, p_value, comparison.signature))
    print_table(("score", "system", "baseline", "difference", "95 %", "p", "signature"), rows)


def _label(score: "Score") -> str:
    return score.name if score.higher_is_better else f"{score.name} (lower is better)"


def print_alignment(result: "AlignmentScore", as_json: bool) -> None:
    """Print the error rate, precision, recall and F1 of alignments as a table, or as JSON."""
    rates = {"AER": result.aer, "precision": result.precision, "recall": result.recall, "F1": result.f1}
    if as_json:
        by_name = {name.lower(): rate for name, rate in rates.items()}
        typer.echo(json.dumps({**by_name, "counts": asdict(result), "signature": result.signature}, indent=2))
        return
    labels = {"AER": "AER (lower is better)"}
    rows = [(labels.get(name, name), f"{rate:.2%}", result.signature) for name, rate in rates.items()]
    print_table(("score", "value", "signature"), rows)


def print_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print columns of plain text, names to the left and numbers to the right; headings are bold in a terminal."""
    widths = [max(map(len, column)) for column in zip(headings, *rows, strict=True)]
    for row in [headings, *rows]:
        cells = []
        for heading, cell, width in zip(headings, row, widths, strict=True):
            name = heading in ("score", "class")
            padded = cell.ljust(width) if name else cell if heading == "signature" else cell.rjust(width)
            # A signature longer than the terminal wraps and can still be copied, which borders would prevent.
            cells.append(typer.style(padded, bold=row is headings or None, dim=heading == "signature" or None))
        typer.echo("  ".join(cells))
