"""`regard translate`: translate lines of text."""

import json
import sys
from collections.abc import Iterator
from itertools import chain, repeat
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from regard.cli.flags import Device, Dtype, File, Quantize, Quiet, Run, Workers, given, precision_of, with_options
from regard.cli.streams import existing_file, line_counter, print_line, read_blocks
from regard.options import TranslationOptions
from regard.options.decoding import CONSTRAINTS, MACHINE, OUTPUT

if TYPE_CHECKING:
    from regard.predict import Translation, TranslationRequest

Prefix = Annotated[
    str,
    typer.Option(
        help="Text that every translation starts with; @FILE: line i starts translation i.",
        rich_help_panel=CONSTRAINTS,
    ),
]
Constraints = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="Line i lists tab-separated phrases that translation i must contain.",
        rich_help_panel=CONSTRAINTS,
    ),
]
Avoid = Annotated[
    str | None,
    typer.Option(
        metavar="FILE", help="Phrases, one per line, that no translation may contain.", rich_help_panel=CONSTRAINTS
    ),
]
Terms = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="Terminology: each line is a source phrase, a tab and the translation it must have.",
        rich_help_panel=CONSTRAINTS,
    ),
]
Scores = Annotated[
    bool, typer.Option("--scores", help="Print the score before each translation.", rich_help_panel=OUTPUT)
]
AsJson = Annotated[
    bool, typer.Option("--json", help="Print one JSON object per line, with all results.", rich_help_panel=OUTPUT)
]
With = Annotated[
    list[str] | None,
    typer.Option(
        "--with",
        metavar="RUN",
        help="Ensemble with another run of the same vocabulary; repeat for more.",
        rich_help_panel=MACHINE,
    ),
]


@with_options(TranslationOptions)
def translate(
    run: Run,
    file: File = "-",
    prefix: Prefix = "",
    constraints: Constraints = None,
    avoid: Avoid = None,
    terms: Terms = None,
    scores: Scores = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
    ensemble: With = None,
    device: Device = "auto",
    dtype: Dtype = "auto",
    quantize: Quantize = None,
    workers: Workers = None,
    **options: Any,
) -> None:
    """Translate lines of text.

    \b
    regard translate runs/phrasebook < in.txt > out.txt
    echo "I can go alone" | regard translate runs/phrasebook --scores --alignments
    regard translate runs/phrasebook in.txt --nbest 3 --json
    regard translate runs/phrasebook in.txt --sample --top-p 0.9 --seed 1
    regard translate runs/phrasebook in.txt --terms terms.tsv --avoid never.txt
    regard translate runs/phrasebook/weights/best.safetensors in.txt
    regard translate runs/phrasebook/checkpoints/step-400 --with runs/phrasebook < in.txt

    There is one output line per input line, in the same order; with --nbest, up to N lines. Columns are separated by
    tabs: the line number with --nbest, the score with --scores, the text, the alignment with --alignments. A line that
    cannot be translated gives an empty line and a warning, and the exit code is 1.
    """
    from regard.options.terminology import Terminology, read_phrases
    from regard.tasks import load_translator

    precision = precision_of(dtype, quantize)
    translator = load_translator(run, device, precision)
    if ensemble:
        translator = translator.ensemble_with([load_translator(other, device, precision) for other in ensemble])
    translator.workers = workers or translator.workers
    chosen = translator.options.override(
        **given(options),
        prefix="" if prefix.startswith("@") else prefix,
        avoid=read_phrases(existing_file(avoid)) if avoid else (),
        terms=Terminology.read(existing_file(terms)) if terms else Terminology(),
    )
    if constraints:
        # Each line has its own phrases; any phrase shows whether the other options allow constraints.
        chosen.override(constraints=("phrase",))
    columns = _Columns(as_json, chosen.nbest > 1, scores, chosen.alignments)
    failed, number = 0, 1
    with line_counter("translated", quiet) as count:
        for requests in _requests(file, prefix, constraints):
            for translation in translator.stream(requests, chosen, count, number):
                failed += bool(translation.fault)
                columns.print(translation, number)
                number += 1
            sys.stdout.flush()
    if failed:
        raise ValueError(f"{failed} of {number - 1} lines could not be translated; see the warnings above")


def _requests(file: str, prefix: str, constraints: str | None) -> Iterator[Iterator["TranslationRequest"]]:
    """Yield requests block by block as lines arrive, each with its line of the prefix and constraint files."""
    from regard.predict import TranslationRequest

    prefix_file = prefix[1:] if prefix.startswith("@") else None
    prefixes, phrases = _lines(prefix_file), _lines(constraints)
    for lines in read_blocks(file):
        yield (
            TranslationRequest(
                line,
                _next_line(prefix_file, prefixes),
                tuple(filter(None, map(str.strip, _next_line(constraints, phrases).split("\t")))),
            )
            for line in lines
        )
    for name, remaining in ((prefix_file, prefixes), (constraints, phrases)):
        if name is not None and next(remaining, None) is not None:
            raise ValueError(f"{name} has more lines than there are to translate; does it belong to another text?")


def _lines(file: str | None) -> Iterator[str]:
    """Return the lines of a file that has one for each line to translate; without a file, empty lines."""
    from regard.files import read_lines

    return repeat("") if file is None else chain.from_iterable(read_lines(existing_file(file)))


def _next_line(file: str | None, lines: Iterator[str]) -> str:
    line = next(lines, None)
    if line is None:
        raise ValueError(f"{file} has fewer lines than there are to translate; it needs one for each")
    return line


class _Columns(NamedTuple):
    """The columns of an output line."""

    as_json: bool
    number: bool
    score: bool
    alignment: bool

    def print(self, translation: "Translation", number: int) -> None:
        """Print the hypotheses for line `number`."""
        if self.as_json:
            print_line(json.dumps(translation.to_json(), ensure_ascii=False))
            return
        for hypothesis in translation.nbest:
            columns = [str(number)] * self.number + [f"{hypothesis.score:.4f}"] * self.score + [hypothesis.line]
            print_line("\t".join(columns + [hypothesis.pharaoh()] * self.alignment))
