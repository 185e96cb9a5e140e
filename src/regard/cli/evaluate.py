"""`regard evaluate`: translate a test set and score it."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.streams import counting, existing
from regard.cli.translate import Batch, Beam, Device, Dtype, Penalty, Quantize, Run, precision_of

if TYPE_CHECKING:
    from regard.translator import Options, Translator
    from regard.translator.evaluation import Evaluation

_DEFAULT = ("bleu", "chrf")

Source = Annotated[str | None, typer.Option(metavar="FILE", help="Source lines; the recipe's test text if none.")]
Reference = Annotated[
    list[str] | None, typer.Option(metavar="FILE", help="What they should become; repeat for more references.")
]
Against = Annotated[
    str | None, typer.Option(metavar="RUN|FILE", help="Another run, or lines: tests if the difference is chance.")
]
Metrics = Annotated[
    list[str] | None, typer.Option(metavar="NAME", help="bleu, chrf, chrf++, ter or exact; repeat for more.")
]
Tokenize = Annotated[str, typer.Option(metavar="NAME", help="BLEU's tokenizer: 13a, intl, char, zh, none and others.")]
Output = Annotated[str | None, typer.Option(metavar="FILE", help="Keep the translations here.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, numbers in full.")]


def evaluate(
    run: Run,
    source: Source = None,
    reference: Reference = None,
    against: Against = None,
    metric: Metrics = None,
    tokenize: Tokenize = "13a",
    output: Output = None,
    beam: Beam = None,
    length_penalty: Penalty = None,
    as_json: AsJson = False,
    device: Device = "auto",
    dtype: Dtype = "auto",
    quantize: Quantize = None,
    batch: Batch = None,
) -> None:
    """Translate a test set and score it: with signatures, by length, and beside another system.

    \b
    regard evaluate runs/phrasebook
    regard evaluate runs/phrasebook --source test.en --reference test.de
    regard evaluate runs/phrasebook --source test.en --reference test.de --against runs/other
    regard evaluate runs/phrasebook --source test.en --reference test.de --against out.de --json
    """
    from regard.translator import load
    from regard.translator.evaluation import evaluate as judge

    precision, metrics = precision_of(dtype, quantize), metric or _DEFAULT
    sources, references = _texts(run, source, reference or [])
    _check(metrics, tokenize)  # before a long translation, not after it
    other = _lines(against, len(sources)) if against and not Path(against).is_dir() else None
    translator = load(run, device, precision)
    told = {"beam": beam, "length_penalty": length_penalty, "tokens": batch}
    options = translator.options.told(**{name: value for name, value in told.items() if value is not None})
    said = _translated(translator, sources, options)
    if against and other is None:
        other = _other(against, sources, (device, precision), told)
    if output:
        Path(output).write_text("".join(f"{line}\n" for line in said), encoding="utf-8")
    found = judge(
        sources,
        said,
        references,
        metrics,
        tokenize=tokenize,
        against=other,
        search=options.signature,
    )
    _print(found, as_json)


def _texts(run: str, source: str | None, reference: list[str]) -> tuple[list[str], list[list[str]]]:
    """The sources and their references: those of the files, or the recipe's test text."""
    from regard.names import RECIPE
    from regard.recipe import load
    from regard.score import read_lines
    from regard.translator.given import pairs_of

    if bool(source) != bool(reference):
        raise ValueError(f"{'--reference' if source else '--source'} is missing; give both, or none for the test text")
    if source:
        sides = {path: read_lines(path) for path in (source, *reference)}
        for path in reference:
            if len(sides[path]) != len(sides[source]):
                raise ValueError(
                    f"{source} has {len(sides[source])} lines but {path} has {len(sides[path])}; "
                    "line i of each must belong to the same sentence"
                )
        return sides[source], [sides[path] for path in reference]
    recipe = load(existing(str(Path(run, RECIPE))))
    if recipe.data.test is None:
        raise ValueError(f"the recipe of {run} has no data.test; give --source and --reference")
    pairs, _ = pairs_of(recipe.data.test, recipe)
    return [one for one, _ in pairs], [[other for _, other in pairs]]


def _translated(translator: "Translator", sources: list[str], options: "Options") -> list[str]:
    with counting("translated") as count:
        return [each.line for each in translator.stream(sources, options, count)]


def _check(metrics: Sequence[str], tokenize: str) -> None:
    """Refuse metrics and tokenizers that there are not."""
    from regard.score import score

    for name in metrics:
        score(name, ["a"], [["a"]], tokenize=tokenize)


def _lines(against: str, many: int) -> list[str]:
    """What another system said, from a file."""
    from regard.score import read_lines

    lines = read_lines(against)
    if len(lines) != many:
        raise ValueError(f"{against} has {len(lines)} lines, but there are {many} to compare with")
    return lines


def _other(against: str, sources: list[str], machine: tuple[str, str], told: dict[str, Any]) -> list[str]:
    """What another run says, searched in the same way."""
    from regard.translator import load

    translator = load(against, *machine)
    options = translator.options.told(**{name: value for name, value in told.items() if value is not None})
    return _translated(translator, sources, options)


def _print(found: "Evaluation", as_json: bool) -> None:
    from regard.cli.score import print_comparisons, print_scores, print_table

    if as_json:
        typer.echo(json.dumps(found.to_json(), ensure_ascii=False, indent=2))
        return
    typer.echo(f"{len(found.hypotheses):,} sentences, {found.search}\n")
    print_scores(list(found.scores), as_json=False)
    if len(found.buckets) > 1:
        names = [score.name for score in found.scores]
        rows = [
            (bucket.label, f"{bucket.sentences:,}", *(f"{score.value:.2f}" for score in bucket.scores))
            for bucket in found.buckets
        ]
        typer.echo()
        print_table(("source words", "sentences", *names), rows)
    if found.comparisons:
        typer.echo()
        print_comparisons(list(found.comparisons), as_json=False)
