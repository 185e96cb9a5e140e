"""`regard demo --task`: demos of the tasks other than translation, on generated sentences, documents and dialogues."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from regard.cli.demo import DemoOptions, print_heading

if TYPE_CHECKING:
    from collections.abc import Sequence

    from regard.recipe import Recipe

SHOWN = 3  # examples of training data


def demo_task(recipe: "Recipe", options: DemoOptions) -> None:
    """Run the demo of the task of a recipe."""
    folder = Path(options.run or Path("runs", recipe.name))
    match recipe.task:
        case "language_model":
            from regard.cli.demo_language_model import demo_language_model

            demo_language_model(recipe, folder, options)
        case "image_classification":
            from regard.cli.demo_digits import demo_digits

            demo_digits(recipe, folder, options)
        case "classification":
            from regard.cli.demo_classification import demo_classification

            demo_classification(recipe, folder, options)
        case "chat":
            from regard.cli.demo_chat import demo_chat

            demo_chat(recipe, folder, options)
        case "forecasting":
            from regard.cli.demo_forecasting import demo_forecasting

            demo_forecasting(recipe, folder, options)
        case "captioning":
            from regard.cli.demo_captioning import demo_captioning

            demo_captioning(recipe, folder, options)
        case _:
            from regard.cli.demo_tagging import demo_tagging

            demo_tagging(recipe, folder, options)


def task_recipe(task: str, to: str = "de", label: str = "sentiment", overrides: "Sequence[str]" = ()) -> "Recipe":
    """Return the recipe that the demo of a task trains.

    Args:
        task: classification, tagging, language_model, chat, captioning or forecasting.
        to: The language that a tagger tags.
        label: The set of labels of a classifier; `digits` are pictures.
        overrides: Overrides of the recipe.
    """
    from regard.recipe import parse, shipped_recipe

    has_documents = task == "classification" and label != "digits"
    generated = {
        "classification": "documents" if has_documents else "digits",
        "tagging": "tags",
        "chat": "smalltalk",
        "captioning": "scenes",
        "forecasting": "seasonal",
    }
    shipped = generated.get(task, "phrasebook")
    changes = [f"name=demo-{task.replace('_', '-')}"]
    if task == "tagging":
        changes[0] += f"-{to}"
        changes += [f"{corpus}.to={to}" for corpus in ("data.train.0", "data.valid", "data.test")]
    if task == "classification" and label != "sentiment":
        changes[0] += f"-{label}"
        named = ("data.train.0", "data.valid", "data.test") if has_documents else ()
        changes += [f"{corpus}.label={label}" for corpus in named]
    if task == "language_model":
        changes += ["task=language_model", "train.steps=800", "train.every=400"]
    return parse(shipped_recipe(shipped), [*changes, *overrides], where=f"the recipe {shipped}")


def print_report(folder: Path, html: Path, png: Path) -> None:
    """Print where the report is, and the heading of what to do next."""
    print_heading("Report")
    opener = "open" if sys.platform == "darwin" else "xdg-open"
    typer.echo(f"The report is in {html}, and as an image in {png}.\nNext steps:\n  {opener} {html}")
