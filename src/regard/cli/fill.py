"""`regard fill`: fill masks in texts with a trained masked language model."""

import json
from typing import Annotated

import typer

from regard.cli.flags import Device
from regard.cli.streams import print_line, read_blocks

Run = Annotated[str, typer.Argument(metavar="RUN", help="Folder of a trained masked language model.")]
Text = Annotated[
    str | None, typer.Argument(metavar="TEXT", help="Text with masks; default: each line of standard input.")
]
Top = Annotated[int, typer.Option(min=1, help="Number of candidates for each mask.")]
Joint = Annotated[bool, typer.Option("--joint", help="Fill all masks of a text together, from left to right.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object per text.")]
Precision = Annotated[str, typer.Option(help="Number format: auto, float32 or bfloat16.")]


def fill(
    run: Run,
    text: Text = None,
    top: Top = 5,
    joint: Joint = False,
    as_json: AsJson = False,
    device: Device = "auto",
    precision: Precision = "auto",
) -> None:
    """Fill the masks of a text, or of each line of stdin; print the filled text and the candidates of each mask.

    \b
    regard fill runs/masked "the animal did not [MASK] the street"
    regard fill runs/masked "the [MASK] did not [MASK] the street" --joint --top 3
    regard fill runs/masked --json < texts.txt

    A mask is written [MASK] or <mask>, and stands for one token. Below the text, a line for each candidate has the
    number of its mask, its probability and the word; ## begins a token that continues the word before it.
    With --joint, a line has the probability of all words together and the text with them.
    """
    from regard.tasks import load_mask_filler

    filler = load_mask_filler(run, device, precision)
    blocks = iter([[text]]) if text is not None else read_blocks("-")
    for lines in blocks:
        for result in filler(lines, top=top, joint=joint):
            if as_json:
                print_line(json.dumps(result.to_json(), ensure_ascii=False))
                continue
            print_line(result.filled)
            if joint:
                for together in result.joint:
                    print_line(f"{together.probability:.4f}\t{together.text}")
                continue
            for number, candidates in enumerate(result.masks, start=1):
                for candidate in candidates:
                    print_line(f"{number}\t{candidate.probability:.4f}\t{candidate.word}")
