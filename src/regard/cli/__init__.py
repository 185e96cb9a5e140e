"""The command line: one file a command; each parses, calls one function and prints.

Results go to stdout, progress and errors to stderr. What a user can mend is an error of one sentence; a traceback
reaches nobody, unless REGARD_DEBUG asks for it.
"""

import logging
import os
import sys
from importlib.metadata import version

import typer

from regard.cli import (
    align,
    demo,
    evaluate,
    figure,
    look,
    perplexity,
    phrasebook,
    prepare,
    race,
    recipe,
    score,
    serve,
    tokens,
    train,
    translate,
)

app = typer.Typer(
    name="regard",
    help="""Attention you can train, see and ship.

    \b
    regard demo                                  see it work, without data
    regard phrasebook --to de -n 5 --alignments  pairs from a grammar
    regard recipe show recipes/phrasebook.toml   every setting of a run
    regard prepare recipes/phrasebook.toml       vocabulary and token store
    regard tokens runs/phrasebook "I can go"     what a line becomes
    regard train recipes/phrasebook.toml         a trained model
    regard translate runs/phrasebook < in.txt    its translations
    regard evaluate runs/phrasebook              how good they are
    regard align runs/phrasebook --source in.txt --target out.txt
    regard perplexity runs/phrasebook --source in.txt --target out.txt
    regard figure runs/phrasebook "I can go" -o map.pdf
    regard score --hypothesis out.de --reference test.de
    regard race --quick                          families compared under one budget
    regard serve runs/phrasebook                 translations over HTTP
    regard look runs/phrasebook                  see it think, in the browser
    """,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"regard {version('regard')}")
        raise typer.Exit


@app.callback()
def _options(
    _version: bool = typer.Option(
        False, "--version", callback=_print_version, is_eager=True, help="Print the version."
    ),
) -> None:
    """Options that come before a command."""


app.command("demo")(demo.demo)
app.command("prepare")(prepare.prepare)
app.command("tokens")(tokens.tokens)
app.command("train")(train.train)
app.command("phrasebook")(phrasebook.phrasebook)
app.command("translate")(translate.translate)
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
    """Run the command line, and turn whatever goes wrong into a sentence and an exit code."""
    logging.basicConfig(format="regard: %(message)s")
    try:
        app()
    except BrokenPipeError:
        # Whoever read our output has left; point stdout elsewhere so that closing it at exit cannot fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except SystemExit as leaving:
        # Typer has met the reader's leaving before us and calls it a failure, which it is not: `regard … | head`.
        if isinstance(leaving.__context__, BrokenPipeError):
            leaving.code = 0
        raise
    except KeyboardInterrupt:
        _say("stopped")
        sys.exit(130)
    except (ValueError, OSError, MemoryError) as error:
        _show_traceback_if_asked()
        _say(f"error: {error}" if str(error) else f"error: {type(error).__name__}")
        sys.exit(1)
    except Exception as error:
        _show_traceback_if_asked()
        _say(f"internal error: {type(error).__name__}: {error}; this is a fault of regard. REGARD_DEBUG=1 shows where.")
        sys.exit(70)


def _say(sentence: str) -> None:
    print(f"regard: {sentence}", file=sys.stderr)


def _show_traceback_if_asked() -> None:
    if os.environ.get("REGARD_DEBUG"):
        import traceback

        traceback.print_exc()
