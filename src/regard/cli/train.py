"""`regard train`: a recipe to a trained model."""

from pathlib import Path

import typer


def train(
    file: str = typer.Argument(..., metavar="RECIPE", help="A recipe, as a TOML file."),
    overrides: list[str] | None = typer.Argument(None, metavar="[KEY=VALUE]...", help="Settings to change."),
    run: str | None = typer.Option(None, help="The run's folder; runs/NAME if not given."),
    device: str = typer.Option("auto", help="cpu, cuda, cuda:1, or auto: a GPU where there is one."),
    plain: bool = typer.Option(False, "--plain", help="Lines instead of the live view."),
    quiet: bool = typer.Option(False, "--quiet", help="Show nothing but errors."),
) -> None:
    """Train a model, or go on with one: the same command on the same folder picks up where it was stopped.

    Ctrl-C saves and stops. The folder then holds everything: regard translate takes it as it is.

    \b
    regard train recipes/phrasebook.toml
    regard train recipes/phrasebook.toml train.steps=300 --run runs/quick
    torchrun --nproc-per-node 8 -m regard train recipes/wmt14-base.toml
    """
    from regard.cli.progress import follow_training
    from regard.recipe import load
    from regard.train.loop import train as learn
    from regard.train.workers import speaks

    recipe = load(file, overrides or [])
    folder = Path(run or Path("runs", recipe.name))
    if not speaks():
        for _ in learn(recipe, folder, device):
            pass
        return
    finished = follow_training(recipe, folder, device, plain=plain, quiet=quiet)
    if finished.reason != "stopped":
        _report(folder, device, quiet)


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
