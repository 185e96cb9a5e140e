"""`regard train`: train the model of a recipe."""

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from regard.cli.recipe import Overrides, RecipeFile

if TYPE_CHECKING:
    from regard.recipe import Recipe

EXIT_STOPPED = 130
"""Exit code of a training that was stopped, so that a script which needs the model does not continue."""


def train(
    file: RecipeFile,
    overrides: Overrides = None,
    run: str | None = typer.Option(None, help="Folder of the run. Default: runs/NAME."),
    device: str = typer.Option("auto", help="cpu, cuda, cuda:1 or auto: a GPU if there is one."),
    plain: bool = typer.Option(False, "--plain", help="Print lines instead of the live view."),
    quiet: bool = typer.Option(False, "--quiet", help="Print errors only."),
    dry_run: bool = typer.Option(False, "--dry-run", help="Print an estimate of time and memory, and exit."),
    as_json: bool = typer.Option(False, "--json", help="Print the final scores, or the estimate, as JSON."),
) -> None:
    """Train a model, or resume a training that was stopped.

    \b
    regard train phrasebook
    regard train phrasebook train.steps=300 --run runs/quick
    regard train mine.toml train.minutes=10
    regard train mine.toml --run runs/tuned train.start=runs/phrasebook   # fine-tune a trained run
    regard train wmt14-base --dry-run
    torchrun --nproc-per-node 8 -m -- regard train wmt14-base --run runs/base

    Ctrl-C saves a checkpoint and exits with code 130; the same command resumes.
    The folder of a run holds everything that regard translate needs.
    """
    from regard.cli.progress import train_with_progress
    from regard.recipe import load
    from regard.run_files import SCORES
    from regard.train.distributed import is_main_process
    from regard.train.loop import train as train_events

    recipe = load(file, overrides or [])
    folder = Path(run or Path("runs", recipe.name))
    if dry_run:
        if is_main_process():
            _print_estimate(recipe, device, as_json)
        return
    if not is_main_process():
        for _ in train_events(recipe, folder, device):
            pass
        return
    finished = train_with_progress(recipe, folder, device, plain=plain, quiet=quiet)
    if as_json:
        typer.echo((folder / SCORES).read_text(encoding="utf-8"), nl=False)
    if finished.reason != "stopped":
        _write_report(folder, device, quiet)
    elif "TORCHELASTIC_RUN_ID" not in os.environ:  # torchrun reports it itself, and would restart this process
        raise typer.Exit(EXIT_STOPPED)


def _print_estimate(recipe: "Recipe", device: str, as_json: bool) -> None:
    """Print what training would cost."""
    from regard.cli.progress import preparation_progress
    from regard.train.estimate import estimate_cost

    with preparation_progress() as show:
        estimate = estimate_cost(recipe, device, show)
    typer.echo(json.dumps(estimate.to_json(), indent=2) if as_json else str(estimate))


def _write_report(folder: Path, device: str, quiet: bool) -> None:
    """Write the report of a run. The model is saved by now, so an error is printed and not raised."""
    from regard.train.report.html_report import report_run

    try:
        html, _ = report_run(folder, device)
    except (ValueError, OSError) as error:
        typer.echo(f"regard: the report could not be written: {error}", err=True)
        return
    if not quiet:
        typer.echo(f"regard: the report is in {html}", err=True)
