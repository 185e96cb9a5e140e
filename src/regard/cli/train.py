"""`regard train`: a recipe to a trained model."""

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from regard.recipe import Recipe

STOPPED = 130
"""What a training that was asked to stop ends with, so that nothing which waits for a model goes on without one."""


def train(
    file: str = typer.Argument(..., metavar="RECIPE", help="A recipe, as a TOML file."),
    overrides: list[str] | None = typer.Argument(None, metavar="[KEY=VALUE]...", help="Settings to change."),
    run: str | None = typer.Option(None, help="The run's folder; runs/NAME if not given."),
    device: str = typer.Option("auto", help="cpu, cuda, cuda:1, or auto: a GPU where there is one."),
    plain: bool = typer.Option(False, "--plain", help="Lines instead of the live view."),
    quiet: bool = typer.Option(False, "--quiet", help="Show nothing but errors."),
    dry_run: bool = typer.Option(False, "--dry-run", help="Say what training would cost, and stop."),
    as_json: bool = typer.Option(False, "--json", help="Print that, or at the end the scores, as JSON."),
) -> None:
    """Train a model, or go on with one: the same command on the same folder picks up where it was stopped.

    Ctrl-C saves and stops, with exit code 130. The folder then holds everything: regard translate takes it as it is.

    \b
    regard train recipes/phrasebook.toml
    regard train recipes/phrasebook.toml train.steps=300 --run runs/quick
    regard train recipes/wmt14-base.toml --dry-run
    torchrun --nproc-per-node 8 -m -- regard train recipes/wmt14-base.toml --run runs/base
    """
    from regard.cli.progress import follow_training
    from regard.names import SCORES
    from regard.recipe import load
    from regard.train.loop import train as learn
    from regard.train.workers import speaks

    recipe = load(file, overrides or [])
    folder = Path(run or Path("runs", recipe.name))
    if dry_run:
        if speaks():
            _look_ahead(recipe, device, as_json)
        return
    if not speaks():
        for _ in learn(recipe, folder, device):
            pass
        return
    finished = follow_training(recipe, folder, device, plain=plain, quiet=quiet)
    if as_json:
        typer.echo((folder / SCORES).read_text(encoding="utf-8"), nl=False)
    if finished.reason != "stopped":
        _report(folder, device, quiet)
    elif "TORCHELASTIC_RUN_ID" not in os.environ:  # torchrun says so itself, and would start this process again
        raise typer.Exit(STOPPED)


def _look_ahead(recipe: "Recipe", device: str, as_json: bool) -> None:
    """Print what training would cost."""
    from regard.cli.progress import watching
    from regard.train.outlook import look_ahead

    with watching() as watch:
        outlook = look_ahead(recipe, device, watch)
    typer.echo(json.dumps(outlook.to_json(), indent=2) if as_json else str(outlook))


def _report(folder: Path, device: str, quiet: bool) -> None:
    """Write the run's report; the model is safe by now, so what goes wrong here is said and no more."""
    from regard.train.maps import report_run

    try:
        html, _ = report_run(folder, device)
    except (ValueError, OSError) as error:
        typer.echo(f"regard: the report could not be written: {error}", err=True)
        return
    if not quiet:
        typer.echo(f"regard: the report is in {html}", err=True)
