"""`regard demo --task`: demos of the tasks other than translation, on generated sentences and documents."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from regard.cli.demo import DemoOptions, print_heading, train_model

if TYPE_CHECKING:
    from collections.abc import Sequence

    from regard.recipe import Recipe

PROMPTS = ("the animal did not", "I bought", "when the child", "Anna was born")
SHOWN = 3  # examples of training data


def demo_task(task: str, to: str, overrides: "Sequence[str]", options: DemoOptions) -> None:
    """Run the demo of a task.

    Args:
        task: classification, tagging or language_model.
        to: The language that a tagger tags.
        overrides: Overrides of the recipe.
        options: Options that all demos share.
    """
    recipe = task_recipe(task, to, overrides)
    folder = Path(options.run or Path("runs", recipe.name))
    match task:
        case "language_model":
            demo_language_model(recipe, folder, options)
        case "classification":
            from regard.cli.demo_classification import demo_classification

            demo_classification(recipe, folder, options)
        case _:
            from regard.cli.demo_tagging import demo_tagging

            demo_tagging(recipe, folder, options)


def task_recipe(task: str, to: str = "de", overrides: "Sequence[str]" = ()) -> "Recipe":
    """Return the recipe that the demo of a task trains."""
    from regard.recipe import parse, shipped_recipe

    shipped = {"classification": "documents", "tagging": "tags", "language_model": "phrasebook"}[task]
    changes = [f"name=demo-{task.replace('_', '-')}"]
    if task == "tagging":
        changes[0] += f"-{to}"
        changes += [f"{corpus}.to={to}" for corpus in ("data.train.0", "data.valid", "data.test")]
    if task == "language_model":
        changes += ["task=language_model", "train.steps=800", "train.every=400"]
    return parse(shipped_recipe(shipped), [*changes, *overrides], where=f"the recipe {shipped}")


def demo_language_model(recipe: "Recipe", folder: Path, options: DemoOptions) -> None:
    """Train a language model on the English of the phrasebook; print perplexities and continuations."""
    from regard.data.phrasebook import phrases
    from regard.tasks import Sample, load_generator
    from regard.train.report.html_report import ReportNote, write_report

    print_heading("1. Training data: English sentences from a grammar")
    for phrase in phrases("de", "train", SHOWN, recipe.seed):
        typer.echo(f"  {phrase.source}")
    train_model(recipe, folder, options.again, options.plain, "2. Training a decoder-only Transformer")
    generator = load_generator(folder, precision="float32")
    print_heading("3. Perplexity of unseen sentences")
    lines = []
    explanations = {"test": "sentences like the training data", "novel": "combinations of words not in training data"}
    for split, explanation in explanations.items():
        figures = generator.perplexity(phrase.source for phrase in phrases("de", split, options.sentences)).to_json()
        lines.append(
            f"{split:<6} {figures['perplexity']:.2f} per token, {figures['word_perplexity']:.2f} per word, "
            f"{figures['bits_per_byte']:.3f} bits per byte: {explanation}"
        )
        typer.echo(f"  {lines[-1]}")
    print_heading("4. Samples")
    samples = [
        Sample(prompt, "", generated.text)
        for prompt, generated in zip(
            PROMPTS, generator(list(PROMPTS), sample=True, seed=recipe.seed, max_tokens=24), strict=True
        )
    ]
    for sample in samples:
        typer.echo(f"  {sample.input} … {sample.output}")
    continuations = "\n".join(f"{sample.input} … {sample.output}" for sample in samples)
    note = ReportNote("Unseen sentences", "\n".join(lines) + "\n\n" + continuations)
    print_report(folder, *write_report(folder, notes=[note]))
    typer.echo(
        f'  regard generate {folder} "I bought" --sample\n  regard figure {folder} "I bought a cat" --kind heads'
    )


def print_report(folder: Path, html: Path, png: Path) -> None:
    """Print where the report is, and the heading of what to do next."""
    print_heading("Report")
    opener = "open" if sys.platform == "darwin" else "xdg-open"
    typer.echo(f"The report is in {html}, and as an image in {png}.\nNext steps:\n  {opener} {html}")
