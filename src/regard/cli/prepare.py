"""`regard prepare`: everything that happens before a tensor meets a model."""

import json
import sys
from pathlib import Path

import typer


def prepare(
    file: str = typer.Argument(..., metavar="RECIPE", help="A recipe, as a TOML file."),
    overrides: list[str] | None = typer.Argument(None, metavar="[KEY=VALUE]...", help="Settings to change."),
    run: str | None = typer.Option(None, help="The run's folder; runs/NAME if not given."),
    workers: int | None = typer.Option(None, min=1, help="Threads that tokenise; one a core if not given."),
    as_json: bool = typer.Option(False, "--json", help="Print the report as JSON."),
) -> None:
    """Learn a recipe's vocabulary, filter and store its corpora, and report on both.

    What was done once is found again: a second call with the same text and settings is instant.

    \b
    regard prepare recipes/phrasebook.toml
    regard prepare recipes/multi30k.toml data.root=path/to/multi30k text.size=6000
    """
    from regard.cli.progress import watching
    from regard.data.prepare import gather
    from regard.data.prepare import prepare as make
    from regard.names import CHECKPOINTS, WEIGHTS
    from regard.recipe import load

    recipe = load(file, overrides or [])
    folder = Path(run or Path("runs", recipe.name))
    trained = (folder / WEIGHTS).exists() or (folder / CHECKPOINTS).exists()
    with watching() as watch:
        # A model is nothing without the vocabulary it was trained with, so a run that has learnt keeps its own.
        prepared = (gather if trained else make)(recipe, folder, watch, workers)
    if trained:
        print(f"regard: {folder} has a trained model, so nothing was written there", file=sys.stderr)
    if as_json:
        typer.echo(json.dumps(prepared.summary(), indent=2, ensure_ascii=False))
    else:
        typer.echo(str(prepared))
        print(f'\nregard: look at a line with: regard tokens {prepared.run} "..."', file=sys.stderr)
