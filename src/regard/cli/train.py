"""`regard train`: a recipe to a trained model."""

from itertools import chain
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
    from regard.cli.progress import watching
    from regard.recipe import load
    from regard.train.journal import Journal
    from regard.train.loop import train as learn
    from regard.train.view import PlainView, open_view
    from regard.train.workers import speaks

    recipe = load(file, overrides or [])
    folder = Path(run or Path("runs", recipe.name))
    if quiet or not speaks():
        for _ in learn(recipe, folder, device):
            pass
        return
    with watching() as watch:
        events = learn(recipe, folder, device, watch)
        first = [next(events)]
    with PlainView() if plain else open_view() as view, Journal(folder) as journal:
        for event in chain(first, events):
            journal.write(event)
            view.show(event)
