"""`regard recipe`: write, show, check and explain the settings of a run."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from regard.recipe import Data, Recipe

app = typer.Typer(
    help="""Write, show, check and explain the settings of a run.

    \b
    regard recipe new train.en train.de > mine.toml
    regard recipe show phrasebook train.steps=500
    regard recipe check mine.toml
    regard recipe explain train.warmup
    regard recipe schema > recipe.schema.json
    """,
    no_args_is_help=True,
)

RecipeFile = Annotated[
    str, typer.Argument(metavar="RECIPE", help="Recipe: a TOML file, or the name of one of regard's.")
]
Overrides = Annotated[
    list[str] | None, typer.Argument(metavar="KEY=VALUE", help="Settings to change, such as train.steps=500.")
]


@app.command()
def new(
    files: list[str] | None = typer.Argument(
        None, metavar="FILE", help="Your training text: two files of sentences, or one TSV, JSONL or text file."
    ),
    task: str | None = typer.Option(
        None, help="The task: translation, language_model or chat. By default, the files decide."
    ),
    name: str = typer.Option("mine", help="Name of the run."),
    source: str | None = typer.Option(
        None, "--from", metavar="RECIPE", help="Print one of regard's recipes instead, such as phrasebook."
    ),
) -> None:
    """Print a commented recipe for your files, to edit and train.

    \b
    regard recipe new train.en train.de > mine.toml
    regard recipe new pairs.tsv --name informal > informal.toml
    regard recipe new novels.txt > mine.toml           # a language model
    regard recipe new dialogues.txt --task chat > mine.toml
    regard recipe new --from phrasebook > mine.toml
    """
    from regard.recipe import parse, shipped_recipe, starter

    if source is not None and (files or task):
        raise ValueError("--from prints a recipe with its own data; leave out files and --task, or leave out --from")
    text = starter(files or [], name, task) if source is None else shipped_recipe(source)
    parse(text, where="the new recipe")  # such as a name that is not allowed
    typer.echo(text, nl=False)


@app.command()
def show(
    file: RecipeFile,
    overrides: Overrides = None,
    as_json: bool = typer.Option(False, "--json", help="Print JSON instead of TOML."),
) -> None:
    """Print every setting of a recipe, with defaults marked. The output is a valid recipe.

    \b
    regard recipe show phrasebook
    regard recipe show phrasebook model.size=base --json
    """
    from regard.recipe import load, render

    recipe = load(file, overrides or [])
    typer.echo(recipe.model_dump_json(indent=2) if as_json else render(recipe), nl=as_json)


@app.command()
def check(files: list[str] = typer.Argument(..., metavar="RECIPE", help="Recipes, as TOML files.")) -> None:
    """Check recipes and print the errors of each; exit with 1 if there are any.

    \b
    regard recipe check mine.toml

    The settings are checked, and the beginning of each corpus is read. Files that do not exist yet are named and are no
    error, so that a recipe can be checked before its data are there.
    """
    from regard.recipe import load

    invalid = False
    for file in files:
        try:
            recipe = load(file)
        except ValueError as error:
            invalid = True
            typer.echo(str(error))
            continue
        problems, missing = _tokenizer_problems(recipe), _missing_files(recipe.data)
        problems += [] if missing else _corpus_problems(recipe)
        invalid = invalid or bool(problems)
        for problem in problems:
            typer.echo(f"{file}: {problem}")
        if missing and not problems:
            typer.echo(f"{file}: valid, but run '{recipe.name}' cannot start: missing files: {', '.join(missing)}")
        elif not problems:
            typer.echo(f"{file}: valid; run '{recipe.name}'")
    if invalid:
        raise typer.Exit(1)


@app.command()
def explain(
    key: str = typer.Argument(..., metavar="KEY", help="A setting, such as train.warmup, or a section, such as train."),
) -> None:
    """Print what a setting does, its allowed values, its default and its paper.

    \b
    regard recipe explain train.warmup
    regard recipe explain text
    """
    from regard.recipe import catalogue, find_settings

    section = [setting for setting in catalogue() if setting.key.startswith(f"{key}.")]
    for number, setting in enumerate(section or find_settings(key)):
        heading = f"{setting.key}  ({', '.join(setting.families)})" if setting.families else setting.key
        lines = [heading, f"  {setting.description}", f"  takes    {setting.allowed}", f"  default  {setting.default}"]
        paper = [f"  paper    {setting.paper}"] if setting.paper else []
        typer.echo("\n".join([*([""] if number else []), *lines, *paper]))


@app.command()
def schema() -> None:
    """Print the JSON schema of a recipe, for editors that complete and check TOML.

    \b
    regard recipe schema > recipe.schema.json
    """
    from regard.recipe import json_schema

    typer.echo(json_schema(), nl=False)


def _missing_files(data: "Data") -> list[str]:
    """Return the files of a recipe that do not exist."""
    root = Path(data.root).expanduser()
    return [
        name for _, corpus in data.corpora() for name in corpus.paths if not (root / Path(name).expanduser()).exists()
    ]


def _tokenizer_problems(recipe: "Recipe") -> list[str]:
    """Return what is wrong with the `[text]` section beyond the values of single settings."""
    from regard.text import TokenizerSettings

    text = recipe.text
    multiline = recipe.task == "language_model"
    try:
        TokenizerSettings(text.kind, text.normalise, text.lowercase, text.bytes, text.symbols, multiline)
    except ValueError as error:
        return [f"text: {error}"]
    return []


def _corpus_problems(recipe: "Recipe") -> list[str]:
    """Read the beginning of each corpus, and return the errors."""
    from regard.data.corpus import Reader
    from regard.recipe import TASK_FIELDS

    problems = []
    reader = Reader.of(recipe.data, tuple(TASK_FIELDS.get(recipe.task, ())), recipe.seed)
    for key, corpus in recipe.data.corpora():
        if corpus.paths and reader.fields:  # a task of another package has fields that only it knows
            try:
                next(reader.records(corpus))
            except (ValueError, OSError) as error:
                problems.append(f"{key}: {error}")
    return problems
