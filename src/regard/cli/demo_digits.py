"""`regard demo --task classification --label digits`: drawn digits, and what a Vision Transformer looks at."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from regard.cli.demo import DemoOptions, print_heading, train_model
from regard.cli.demo_tasks import print_report

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from regard.recipe import Recipe

FIGURE, PICTURE = "patches.png", "digit.png"
SHADES = " .:-=+*#%@"


def demo_digits(recipe: "Recipe", folder: Path, options: DemoOptions) -> None:
    """Train a Vision Transformer on drawn digits, score it, and draw where it looks."""
    from PIL import Image

    from regard.data.digits import digits
    from regard.drawing import patches_figure
    from regard.plot import save
    from regard.score.classification import accuracy, confusion_matrix
    from regard.tasks import load_image_classifier
    from regard.train.report.html_report import ReportNote, write_report

    print_heading("1. Training data: digits that are drawn with strokes of several hands")
    typer.echo(_beside([digit.image for digit in digits("train", 3, recipe.seed)]))
    train_model(recipe, folder, options.again, options.plain, "2. Training a Vision Transformer")
    classifier = load_image_classifier(folder)
    print_heading("3. Unseen digits")
    unseen = list(digits("test", options.sentences, recipe.seed))
    labels = [digit.label for digit in unseen]
    predictions = [result.label for result in classifier.classify([digit.image for digit in unseen])]
    score = accuracy([(label,) for label in labels], [(label,) for label in predictions])
    classes = sorted({*labels, *predictions})
    table = confusion_matrix(labels, predictions, classes)
    confused = sorted(
        ((int(table[row][column]), right, wrong) for row, right in enumerate(classes)
         for column, wrong in enumerate(classes) if row != column and table[row][column]), reverse=True,
    )  # fmt: skip
    lines = [f"accuracy {score.value:.1f} {score.detail}"]
    lines += [f"{right} is taken for {wrong}: {count} times" for count, right, wrong in confused[:3]]
    typer.echo("\n".join(f"  {line}" for line in lines))
    shown = next((digit for digit in unseen if digit.label in "25"), unseen[0])
    figure = patches_figure(classifier, shown.image)
    save(figure, folder / FIGURE, dpi=120)
    Image.fromarray(shown.image).save(folder / PICTURE)
    note = ReportNote("Unseen digits", "\n".join(lines), figure, f"Attention of the class token over {shown.name}.")
    print_report(folder, *write_report(folder, notes=[note]))
    typer.echo(f"  a figure of one digit: {folder / FIGURE}")
    typer.echo(f"  regard classify {folder} {folder / PICTURE} --top 3")
    typer.echo(f"  regard figure {folder} {folder / PICTURE} --kind patches -o patches.png")


def _beside(images: "list[NDArray[np.uint8]]") -> str:
    """Return pictures side by side in characters, every second row, because characters are high."""
    rows = zip(*(image[::2] for image in images), strict=True)
    return "\n".join(
        "  ".join("".join(SHADES[int(value) * 9 // 255] for value in row) for row in line) for line in rows
    )
