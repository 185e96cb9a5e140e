"""The command line: one module per command. Each parses its options, calls the library and prints the result.

Results go to stdout, progress and errors to stderr. An error that a user can fix is one sentence; a traceback appears
only if the environment variable REGARD_DEBUG is set.
"""

import logging
import os
import sys
from importlib.metadata import version

import typer

from regard.cli import (
    align,
    caption,
    chat,
    classify,
    demo,
    evaluate,
    figure,
    fill,
    forecast,
    generate,
    look,
    perplexity,
    phrasebook,
    prepare,
    race,
    recipe,
    scenes,
    score,
    serve,
    smalltalk,
    tag,
    tokens,
    train,
    translate,
)
from regard.cli.flags import spell_flag
from regard.cli.streams import replace_closed_streams
from regard.options import OptionError

app = typer.Typer(
    name="regard",
    help="""Attention you can train, see and ship.

    \b
    regard demo                                  try it, without data
    regard phrasebook --to de -n 5 --alignments  sentence pairs from a grammar
    regard smalltalk -n 5                        dialogues from a grammar
    regard scenes -n 5 --to de --out shapes      pictures of shapes with captions
    regard recipe new train.en train.de          a recipe for your files
    regard recipe show phrasebook                every setting of a run
    regard prepare phrasebook                    vocabulary and token store
    regard tokens runs/phrasebook "I can go"     tokens of a line
    regard train phrasebook                      train a model
    regard translate runs/phrasebook < in.txt    translate lines
    regard generate runs/shakespeare "ROMEO:"    continue a text
    regard chat runs/smalltalk                   talk to a chatbot
    regard classify runs/20news < texts.txt      label of each text
    regard tag runs/ewt < in.txt                 tag words
    regard forecast runs/etth1 ETTh1.csv         next rows of a table
    regard caption runs/scenes photo.jpg         describe a picture
    regard fill runs/masked "I can [MASK] alone" fill masks in a text
    regard evaluate runs/phrasebook              BLEU and chrF of a test set
    regard align runs/phrasebook --source in.txt --target out.txt
    regard perplexity runs/phrasebook --source in.txt --target out.txt
    regard figure runs/phrasebook "I can go" -o map.pdf
    regard score --hypothesis out.de --reference test.de
    regard race --quick                          compare model families
    regard serve runs/phrasebook                 HTTP API
    regard look runs/phrasebook                  explorer in the browser
    """,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(value: bool) -> None:
    if value:
        typer.echo(f"regard {version('regard')}")
        raise typer.Exit


@app.callback()
def _options(
    _version: bool = typer.Option(
        False, "--version", callback=_print_version, is_eager=True, help="Print the version."
    ),
) -> None:
    """Handle options that come before a command."""


app.command("demo")(demo.demo)
app.command("prepare")(prepare.prepare)
app.command("tokens")(tokens.tokens)
app.command("train")(train.train)
app.command("phrasebook")(phrasebook.phrasebook)
app.command("smalltalk")(smalltalk.smalltalk)
app.command("scenes")(scenes.scenes)
app.command("translate")(translate.translate)
app.command("generate")(generate.generate)
app.command("chat")(chat.chat)
app.command("classify")(classify.classify)
app.command("caption")(caption.caption)
app.command("tag")(tag.tag)
app.command("fill")(fill.fill)
app.command("forecast")(forecast.forecast)
app.command("evaluate")(evaluate.evaluate)
app.command("align")(align.align)
app.command("perplexity")(perplexity.perplexity)
app.command("figure")(figure.figure)
app.command("score")(score.score)
app.command("race")(race.race)
app.command("serve")(serve.serve)
app.command("look")(look.look)
app.add_typer(recipe.app, name="recipe")


def main() -> None:
    """Run the command line, and turn every exception into a message and an exit code."""
    replace_closed_streams()
    logging.basicConfig(format="regard: %(message)s")
    for handler in logging.getLogger().handlers:
        handler.addFilter(_spell_flags)
    try:
        app()
    except BrokenPipeError:
        # The reader of our output has closed it. Redirect stdout, so that closing it at exit does not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except SystemExit as leaving:
        # Typer exits with 1 on a broken pipe, but `regard … | head` has not failed.
        if isinstance(leaving.__context__, BrokenPipeError):
            leaving.code = 0
        raise
    except KeyboardInterrupt:
        _print_error("interrupted")
        sys.exit(130)
    except (ValueError, OSError, MemoryError) as error:
        _print_traceback_if_debugging()
        message = error.spelled(spell_flag) if isinstance(error, OptionError) else str(error)
        _print_error(f"error: {message or type(error).__name__}")
        sys.exit(1)
    except Exception as error:
        _print_traceback_if_debugging()
        hint = "this is a bug in regard; set REGARD_DEBUG=1 to see the traceback"
        _print_error(f"internal error: {type(error).__name__}: {error}; {hint}")
        sys.exit(70)


def _spell_flags(record: logging.LogRecord) -> bool:
    """Name options as flags in a warning that contains an `OptionError`."""
    if isinstance(record.args, tuple):
        record.args = tuple(arg.spelled(spell_flag) if isinstance(arg, OptionError) else arg for arg in record.args)
    return True


def _print_error(message: str) -> None:
    print(f"regard: {message}", file=sys.stderr)


def _print_traceback_if_debugging() -> None:
    if os.environ.get("REGARD_DEBUG"):
        import traceback

        traceback.print_exc()
