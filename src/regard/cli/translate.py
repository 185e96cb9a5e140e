"""`regard translate`: lines in, their translations out."""

import json
import sys
from collections.abc import Iterator
from itertools import chain, repeat
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from regard.cli.streams import Counter, blocks, counting, existing, put

if TYPE_CHECKING:
    from regard.translator import Options, Request, Translation, Translator

_SEARCH, _SAMPLE, _WISH, _OUT, _MACHINE = "Search", "Sampling", "What is asked for", "Output", "Machine"

Run = Annotated[str, typer.Argument(metavar="RUN", help="The folder of a trained run.")]
File = Annotated[str, typer.Argument(metavar="FILE", help="Lines, plain or .gz; standard input if none.")]
Beam = Annotated[int | None, typer.Option(min=1, help="Hypotheses kept; 1 is greedy.", rich_help_panel=_SEARCH)]
Nbest = Annotated[int, typer.Option(min=1, help="Translations, or samples, of each line.", rich_help_panel=_SEARCH)]
Penalty = Annotated[float | None, typer.Option(help="Reward for length; 0 is none.", rich_help_panel=_SEARCH)]
Coverage = Annotated[
    float | None, typer.Option(min=0, help="Penalty for words not looked at.", rich_help_panel=_SEARCH)
]
Groups = Annotated[int, typer.Option(min=1, help="Groups of beams kept apart.", rich_help_panel=_SEARCH)]
Diversity = Annotated[float, typer.Option(min=0, help="How far apart they are kept.", rich_help_panel=_SEARCH)]
NoRepeat = Annotated[
    int | None, typer.Option(min=0, help="No so many tokens in a row appear twice.", rich_help_panel=_SEARCH)
]
MinLength = Annotated[int, typer.Option(min=0, help="Fewest tokens of a translation.", rich_help_panel=_SEARCH)]
MaxLength = Annotated[int | None, typer.Option(min=1, help="Most tokens of a translation.", rich_help_panel=_SEARCH)]
Sample = Annotated[bool, typer.Option("--sample", help="Draw tokens instead of searching.", rich_help_panel=_SAMPLE)]
Temperature = Annotated[float, typer.Option(help="Below 1 draws the probable more often.", rich_help_panel=_SAMPLE)]
TopK = Annotated[int | None, typer.Option(min=1, help="Draw from so many best tokens.", rich_help_panel=_SAMPLE)]
TopP = Annotated[float, typer.Option(help="Draw from the fewest tokens this probable.", rich_help_panel=_SAMPLE)]
MinP = Annotated[float, typer.Option(help="Draw from tokens this near to the best.", rich_help_panel=_SAMPLE)]
Seed = Annotated[int, typer.Option(min=0, help="Where drawing starts.", rich_help_panel=_SAMPLE)]
Mbr = Annotated[
    int, typer.Option(min=0, help="Choose the one of so many samples most like the rest.", rich_help_panel=_SAMPLE)
]
Prefix = Annotated[str, typer.Option(help="How each translation begins; @FILE: line by line.", rich_help_panel=_WISH)]
Constraints = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="Phrases line i must have, tabs between.", rich_help_panel=_WISH),
]
Avoid = Annotated[
    str | None, typer.Option(metavar="FILE", help="Phrases no translation has, one a line.", rich_help_panel=_WISH)
]
TermFile = Annotated[
    str | None, typer.Option("--terms", metavar="FILE", help="Source phrase, tab, target.", rich_help_panel=_WISH)
]
Long = Annotated[
    Literal["split", "error"], typer.Option(help="What to do with lines too long for it.", rich_help_panel=_WISH)
]
Alignments = Annotated[bool, typer.Option("--alignments", help="Add word alignments.", rich_help_panel=_OUT)]
Scores = Annotated[bool, typer.Option("--scores", help="Put the score before each line.", rich_help_panel=_OUT)]
AsJson = Annotated[bool, typer.Option("--json", help="A JSON object a line, with everything.", rich_help_panel=_OUT)]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress.", rich_help_panel=_OUT)]
With = Annotated[
    list[str] | None,
    typer.Option("--with", metavar="RUN", help="Another run to translate together with.", rich_help_panel=_MACHINE),
]
Device = Annotated[str, typer.Option(help="cpu, cuda, cuda:1; a GPU if there is one.", rich_help_panel=_MACHINE)]
Dtype = Annotated[Literal["auto", "float32", "bfloat16"], typer.Option(help="Number format.", rich_help_panel=_MACHINE)]
Quantize = Annotated[Literal["int8"] | None, typer.Option(help="Weights in 8 bits.", rich_help_panel=_MACHINE)]
Workers = Annotated[
    int | None, typer.Option(min=1, help="Threads on a CPU; one a core if not told.", rich_help_panel=_MACHINE)
]
Batch = Annotated[
    int | None,
    typer.Option(min=1, help="Source tokens times beams at once; less needs less memory.", rich_help_panel=_MACHINE),
]

_OPTIONS = (
    *("beam", "nbest", "length_penalty", "coverage_penalty", "groups", "diversity", "no_repeat", "long", "alignments"),
    *("min_length", "max_length", "sample", "temperature", "top_k", "top_p", "min_p", "seed", "mbr"),
)


def translate(
    run: Run,
    file: File = "-",
    beam: Beam = None,
    nbest: Nbest = 1,
    length_penalty: Penalty = None,
    coverage_penalty: Coverage = None,
    groups: Groups = 1,
    diversity: Diversity = 0.5,
    no_repeat: NoRepeat = None,
    min_length: MinLength = 0,
    max_length: MaxLength = None,
    sample: Sample = False,
    temperature: Temperature = 1.0,
    top_k: TopK = None,
    top_p: TopP = 1.0,
    min_p: MinP = 0.0,
    seed: Seed = 0,
    mbr: Mbr = 0,
    prefix: Prefix = "",
    constraints: Constraints = None,
    avoid: Avoid = None,
    terms: TermFile = None,
    long: Long = "split",
    alignments: Alignments = False,
    scores: Scores = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
    together: With = None,
    device: Device = "auto",
    dtype: Dtype = "auto",
    quantize: Quantize = None,
    workers: Workers = None,
    batch: Batch = None,
) -> None:
    """Translate lines, in their order.

    \b
    regard translate runs/phrasebook < in.txt > out.txt
    echo "I can go alone" | regard translate runs/phrasebook --scores --alignments
    regard translate runs/phrasebook in.txt --nbest 3 --json
    regard translate runs/phrasebook in.txt --sample --top-p 0.9 --seed 1
    regard translate runs/phrasebook in.txt --terms terms.tsv --avoid never.txt

    As many lines come out as go in; with --nbest up to so many of each, and at least one. Columns are parted by tabs:
    number of the line with --nbest, score with --scores, text, alignment with --alignments. A line that fails comes
    out empty, with a warning; the exit code is then 1.
    """
    told = locals()
    translator = _load(run, together or [], device, precision_of(dtype, quantize))
    translator.workers = workers or translator.workers
    options = _options(translator, told)
    with counting("translated", quiet) as count:
        failed, lines = _stream(translator, options, count, told)
    if failed:
        raise ValueError(f"{failed} of {lines} lines could not be translated; they are named above")


def _stream(translator: "Translator", options: "Options", count: Counter, told: dict[str, Any]) -> tuple[int, int]:
    """Translate and print what comes, as it comes; how many lines failed, and how many there were."""
    failed, first = 0, 1
    for requests in _requests(told["file"], told["prefix"], told["constraints"]):
        for translation in translator.stream(requests, options, count, first):
            failed += bool(translation.fault)
            _print(translation, first, told)
            first += 1
        sys.stdout.flush()
    return failed, first - 1


def precision_of(dtype: str, quantize: str | None) -> str:
    """What --dtype and --quantize mean together."""
    if quantize and dtype == "bfloat16":
        raise ValueError(f"--quantize {quantize} computes in float32 beside its 8 bits; leave --dtype {dtype} out")
    return quantize or dtype


def _load(run: str, others: list[str], device: str, precision: str) -> "Translator":
    """A run, or several that translate together."""
    from regard.translator import load

    translator = load(run, device, precision)
    return translator.joined_by([load(other, device, precision) for other in others]) if others else translator


def _options(translator: "Translator", told: dict[str, Any]) -> "Options":
    """The options of a translation; what was not told is the recipe's to say."""
    from regard.translator import Terms
    from regard.translator.terms import read_phrases

    asked = {name: told[name] for name in _OPTIONS if told[name] is not None}
    if told["constraints"] and (told["sample"] or told["mbr"] or told["groups"] > 1):
        raise ValueError("--constraints are searched for by a plain beam: not by --sample or --mbr, not in --groups")
    return translator.options.told(
        **asked,
        tokens=told["batch"],
        prefix="" if told["prefix"].startswith("@") else told["prefix"],
        avoid=read_phrases(existing(told["avoid"])) if told["avoid"] else (),
        terms=Terms.read(existing(told["terms"])) if told["terms"] else Terms(),
    )


def _requests(file: str, prefix: str, constraints: str | None) -> Iterator[Iterator["Request"]]:
    """The lines as they come, block by block, each with what its line in other files asks for it."""
    from regard.translator import Request

    prefixes = _lines(prefix[1:]) if prefix.startswith("@") else repeat("")
    phrases = _lines(constraints) if constraints else repeat("")
    for lines in blocks(file):
        yield (
            Request(
                line,
                _beside(prefix[1:], prefixes),
                tuple(filter(None, map(str.strip, _beside(constraints, phrases).split("\t")))),
            )
            for line in lines
        )
    for name, beside in ((prefix[1:], prefixes), (constraints, phrases)):
        if not isinstance(beside, repeat) and next(beside, None) is not None:
            raise ValueError(f"{name} has more lines than there were to translate; is it for another text?")


def _lines(file: str) -> Iterator[str]:
    """The lines of a file that has one for each line to translate."""
    from regard.files import read_lines

    return chain.from_iterable(read_lines(existing(file)))


def _beside(file: str | None, lines: Iterator[str]) -> str:
    """The next line of such a file."""
    line = next(lines, None)
    if line is None:
        raise ValueError(f"{file} has fewer lines than there are to translate; give it one for each")
    return line


def _print(translation: "Translation", number: int, told: dict[str, Any]) -> None:
    """One line of output, or with --nbest as many as there are."""
    if told["as_json"]:
        put(json.dumps(translation.to_json(), ensure_ascii=False))
        return
    for each in translation.nbest:
        columns = [str(number)] * (told["nbest"] > 1) + [f"{each.score:.4f}"] * told["scores"] + [each.line]
        put("\t".join(columns + [each.pharaoh()] * told["alignments"]))
