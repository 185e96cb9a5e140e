"""`regard demo --task classification`: labels of generated documents, and attention judged by what decides them."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from regard.cli.demo import DemoOptions, print_heading, train_model
from regard.cli.demo_tasks import SHOWN, print_report

if TYPE_CHECKING:
    from regard.data.documents import Document
    from regard.recipe import Recipe

FIGURE = "document.png"
EXAMPLES = {
    "sentiment": "I found the view dull, but the room was not bad.",
    "topic": "It rained on Monday. A friend asked the singer about the guitar.",
}
"""A text to draw, by the set of labels."""


def demo_classification(recipe: "Recipe", folder: Path, options: DemoOptions) -> None:
    """Train a hierarchical attention network on generated documents, and judge its attention."""
    from regard.analysis.attention import judge_attention
    from regard.data.documents import documents
    from regard.explore.figures import document_figure
    from regard.plot import save
    from regard.recipe import DocumentsCorpus
    from regard.tasks import load
    from regard.train.report.html_report import ReportNote, write_report

    corpus = recipe.data.train[0]
    if not isinstance(corpus, DocumentsCorpus):
        raise ValueError("the demo judges attention on generated documents; leave data.train as it is")
    print_heading("1. Training data: generated documents; the words in asterisks decide, all others do not")
    for document in documents(corpus.label, "train", SHOWN, recipe.seed):
        typer.echo(f"  {document.label}: {_marked(document)}")
    train_model(recipe, folder, options.again, options.plain, "2. Training a classifier with attention")
    classifier = load(folder)
    print_heading("3. Attention, judged on unseen documents")
    unseen = list(documents(corpus.label, "test", options.sentences, recipe.seed))
    lines = judge_attention(classifier, unseen, erased=min(len(unseen), 100)).lines()
    typer.echo("\n".join(lines))
    shown = next((document for document in unseen if 6 <= len(document.sentences) <= 9), unseen[0])
    figure = document_figure(
        classifier(shown.text, attention=True),
        shown.deciding_words,
        title="blue: weight of a sentence; red: weight of a word; underlined: words that decide",
    )
    save(figure, folder / FIGURE, dpi=120)
    note = ReportNote("Attention, judged", "\n".join(lines), figure, f"Attention weights of: {shown.text}")
    print_report(folder, *write_report(folder, notes=[note]))
    typer.echo(f"  a figure of one document: {folder / FIGURE}")
    typer.echo(f'  regard figure {folder} "{EXAMPLES[corpus.label]}" --kind document')
    typer.echo(f"  regard look {folder}")


def _marked(document: "Document") -> str:
    """Return the text of a document with the words that decide in asterisks."""
    text = document.text
    for begin, end in reversed(document.deciding_words):
        text = f"{text[:begin]}*{text[begin:end]}*{text[end:]}"
    return text
