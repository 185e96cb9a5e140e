"""`regard prepare`: learn the vocabulary of a recipe and tokenise its corpora."""

import json
import sys
from pathlib import Path

import typer

from regard.cli.recipe import Overrides, RecipeFile


def prepare(
    file: RecipeFile,
    overrides: Overrides = None,
    run: str | None = typer.Option(None, help="Folder of the run. Default: runs/NAME."),
    workers: int | None = typer.Option(None, min=1, help="Threads that tokenise. Default: one per core."),
    as_json: bool = typer.Option(False, "--json", help="Print the report as JSON."),
) -> None:
    """Learn the vocabulary of a recipe, filter and tokenise its corpora, and report on both.

    \b
    regard prepare phrasebook
    regard prepare multi30k data.root=path/to/multi30k text.size=6000

    Results are cached: a second call with the same text and settings returns at once.
    regard train prepares a run by itself.
    """
    from regard.cli.progress import preparation_progress
    from regard.data.prepare import prepare as prepare_data
    from regard.data.prepare import write_run_files
    from regard.recipe import load
    from regard.run_files import CHECKPOINTS, WEIGHTS
    from regard.tasks import make_task

    recipe = load(file, overrides or [])
    folder = Path(run or Path("runs", recipe.name))
    trained = (folder / WEIGHTS).exists() or (folder / CHECKPOINTS).exists()
    with preparation_progress() as show:
        prepared = prepare_data(recipe, make_task(recipe), folder, show, workers)
    if not trained:
        write_run_files(recipe, prepared)
    else:  # a trained model needs the vocabulary it was trained with, so the files of its run stay as they are
        print(f"regard: {folder} has a trained model, so nothing was written there", file=sys.stderr)
    if as_json:
        typer.echo(json.dumps(prepared.summary(), indent=2, ensure_ascii=False))
    else:
        typer.echo(str(prepared))
        print(f'\nregard: to see the tokens of a line: regard tokens {prepared.run} "..."', file=sys.stderr)
