"""`regard generate`: continue prompts with a trained language model."""

import json
import sys
from typing import Annotated, Any

import typer

from regard.cli.flags import Device, given, with_options
from regard.cli.streams import print_line, read_blocks
from regard.options import GenerationOptions
from regard.options.decoding import MACHINE

Run = Annotated[str, typer.Argument(metavar="RUN", help="Folder of a trained language model.")]
Prompt = Annotated[
    str | None, typer.Argument(metavar="PROMPT", help="Text to continue; default: each line of standard input.")
]
File = Annotated[str | None, typer.Option("--file", metavar="FILE", help="Continue each line of a file, plain or .gz.")]
Stream = Annotated[bool, typer.Option("--stream", help="Print the text while it is generated.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object per prompt.")]
Greedy = Annotated[
    bool, typer.Option("--greedy", help="Choose the most probable token at each step; same as --beam 1.")
]
Precision = Annotated[
    str, typer.Option(help="Number format: auto, float32, bfloat16 or int8.", rich_help_panel=MACHINE)
]


@with_options(GenerationOptions)
def generate(
    run: Run,
    prompt: Prompt = None,
    *,
    file: File = None,
    stream: Stream = False,
    greedy: Greedy = False,
    as_json: AsJson = False,
    device: Device = "auto",
    precision: Precision = "auto",
    **options: Any,
) -> None:
    """Continue a prompt, or each line of a file or of stdin; print prompt and continuation.

    \b
    regard generate runs/shakespeare "ROMEO:"
    regard generate runs/shakespeare "ROMEO:" --stream --max-tokens 500 --temperature 0.7 --seed 3
    regard generate runs/shakespeare "To be" --greedy --stop "."
    regard generate runs/shakespeare "To be" --beam 4 --nbest 2 --json
    """
    from regard.tasks import load_generator

    generator = load_generator(run, device, precision)
    chosen = given(options) | ({"beam": 1} if greedy else {})
    if file is None and prompt is not None:
        prompts = iter([prompt])
    else:
        prompts = (line for lines in read_blocks(file or "-") for line in lines)
    for text in prompts:
        if stream:
            sys.stdout.write(text)
            for piece in generator.stream(text, **chosen):
                sys.stdout.write(piece)
                sys.stdout.flush()
            print_line("")
            continue
        result = generator(text, **chosen)
        if as_json:
            print_line(json.dumps(result.to_json(), ensure_ascii=False))
        else:
            for continuation in result.nbest:
                print_line(str(continuation))
