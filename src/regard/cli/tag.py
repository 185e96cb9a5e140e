"""`regard tag`: tag the words of sentences."""

import json
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.flags import Device, Dtype, Quiet
from regard.cli.streams import line_counter, print_line, read_blocks
from regard.options.decoding import OUTPUT

if TYPE_CHECKING:
    from regard.predict import TaggedSentence

Run = Annotated[str, typer.Argument(metavar="RUN", help="Folder of a trained tagger, or other weights in it.")]
File = Annotated[
    str,
    typer.Argument(
        metavar="FILE",
        help="A sentence on each line, its words separated by white space, or by tabs if it has some; plain or .gz; "
        "default: standard input.",
        show_default=False,
    ),
]
Conllu = Annotated[bool, typer.Option("--conllu", help="Print CoNLL-U.", rich_help_panel=OUTPUT)]
AsJson = Annotated[
    bool, typer.Option("--json", help="Print one JSON object per line, with probabilities.", rich_help_panel=OUTPUT)
]


def tag(
    run: Run,
    file: File = "-",
    conllu: Conllu = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
    device: Device = "auto",
    dtype: Dtype = "auto",
) -> None:
    """Tag the words of sentences.

    \b
    regard tag runs/ewt < in.txt > out.txt
    echo "I can go ." | regard tag runs/ewt
    regard tag runs/ewt in.txt --conllu > out.conllu
    regard tag runs/ewt in.txt --json

    There is one output line per input line, in the same order: its words, each followed by _ and its tag. Words are not
    separated from punctuation; give them as the training data have them. With --conllu, lines without words are left
    out.
    """
    from regard.bundle import load_bundle_recipe
    from regard.run_path import find_run
    from regard.tasks import load_tagger

    if conllu and as_json:
        raise ValueError("--conllu and --json are two formats; choose one of them")
    tagger = load_tagger(run, device, dtype)
    column = _column(load_bundle_recipe(find_run(run).folder).data.train[0]) if conllu else ""
    number = 0
    with line_counter("tagged", quiet) as count:
        for lines in read_blocks(file):
            for sentence in tagger(lines):
                number += 1
                if as_json:
                    print_line(json.dumps(sentence.to_json(), ensure_ascii=False))
                elif not conllu:
                    print_line(str(sentence))
                elif sentence.words:
                    print_line(conllu_lines(sentence, number, column))
            sys.stdout.flush()
            count(len(lines))


def conllu_lines(sentence: "TaggedSentence", number: int, column: str = "upos") -> str:
    """Return a sentence in CoNLL-U, with its tags in the given column, and the blank line after it."""
    rows = [f"# sent_id = {number}", f"# text = {' '.join(sentence.words)}"]
    places = {"upos": 3, "xpos": 4, "deprel": 7}
    for index, (word, label) in enumerate(zip(sentence.words, sentence.tags, strict=True), start=1):
        cells = [str(index), word, *["_"] * 8]
        if column in places:
            cells[places[column]] = label
        elif label != "_":
            cells[5] = f"{column}={label}"
        rows.append("\t".join(cells))
    return "\n".join(rows) + "\n"


def _column(corpus: object) -> str:
    """Return the column of CoNLL-U that the tags of a training corpus belong to."""
    from regard.recipe import ConlluCorpus

    return corpus.column if isinstance(corpus, ConlluCorpus) else "upos"
