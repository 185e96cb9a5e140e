"""`regard recipe`: look at a run's settings before running it."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from regard.recipe import Data

app = typer.Typer(
    help="""Show, check and explain the settings of a run.

    \b
    regard recipe show recipes/phrasebook.toml train.steps=500
    regard recipe check recipes/*.toml
    regard recipe explain train.warmup
    regard recipe schema > recipe.schema.json
    """,
    no_args_is_help=True,
)

OVERRIDES = typer.Argument(None, metavar="[KEY=VALUE]...", help="Settings to change, such as train.steps=500.")


@app.command()
def show(
    file: str = typer.Argument(..., metavar="RECIPE", help="A recipe, as a TOML file."),
    overrides: list[str] | None = OVERRIDES,
    as_json: bool = typer.Option(False, "--json", help="Print JSON instead of TOML."),
) -> None:
    """Print every setting of a recipe, with defaults marked; the output is a recipe too.

    \b
    regard recipe show recipes/phrasebook.toml
    regard recipe show recipes/phrasebook.toml model.size=base --json
    """
    from regard.recipe import load, render

    recipe = load(file, overrides or [])
    typer.echo(recipe.model_dump_json(indent=2) if as_json else render(recipe), nl=as_json)


@app.command()
def check(files: list[str] = typer.Argument(..., metavar="RECIPE...", help="Recipes, as TOML files.")) -> None:
    """Check recipes and say what is wrong with each; exit 1 if anything is.

    \b
    regard recipe check recipes/*.toml
    """
    from regard.recipe import load

    faults = 0
    for file in files:
        try:
            recipe = load(file)
        except ValueError as error:
            faults += 1
            typer.echo(str(error))
        else:
            typer.echo(f"{file}: good; run '{recipe.name}'{_missing_files(recipe.data)}")
    if faults:
        raise typer.Exit(1)


@app.command()
def explain(
    key: str = typer.Argument(..., help="A setting, such as train.warmup; or a section, such as train."),
) -> None:
    """Say what a setting does, what it may be, its default and its paper.

    \b
    regard recipe explain train.warmup
    regard recipe explain text
    """
    from regard.recipe import catalogue, find_settings

    section = [each for each in catalogue() if each.key.startswith(f"{key}.")]
    for place, each in enumerate(section or find_settings(key)):
        heading = f"{each.key}  ({', '.join(each.families)})" if each.families else each.key
        lines = [heading, f"  {each.meaning}", f"  takes    {each.allowed}", f"  default  {each.default}"]
        papers = [f"  paper    {each.paper}"] if each.paper else []
        typer.echo("\n".join(["", *lines, *papers] if place else [*lines, *papers]))


@app.command()
def schema() -> None:
    """Print the JSON schema of a recipe, for editors that complete and check TOML.

    \b
    regard recipe schema > recipe.schema.json
    """
    from regard.recipe import json_schema

    typer.echo(json_schema(), nl=False)


def _missing_files(data: "Data") -> str:
    """A warning that names the files a recipe needs and this machine lacks."""
    corpora = [*data.train, *(each for each in (data.valid, data.test) if each)]
    missing = [name for corpus in corpora for name in corpus.files if not Path(data.root, name).exists()]
    return f"; not here yet: {', '.join(missing)}" if missing else ""
