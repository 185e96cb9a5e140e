"""`regard demo --task tagging`: parts of speech of generated sentences."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from regard.cli.demo import DemoOptions, print_heading, train_model
from regard.cli.demo_tasks import SHOWN, print_report

if TYPE_CHECKING:
    from regard.recipe import Recipe


def demo_tagging(recipe: "Recipe", folder: Path, options: DemoOptions) -> None:
    """Train a tagger on the phrasebook's parts of speech; print its accuracy by tag and on unseen words."""
    from regard.data.phrasebook import tagged_sentences
    from regard.recipe import PhrasebookCorpus
    from regard.score.tagging import MostFrequentTags, tagging_report
    from regard.tasks import load
    from regard.train.report.html_report import ReportNote, write_report

    corpus = recipe.data.train[0]
    if not isinstance(corpus, PhrasebookCorpus):
        raise ValueError("the demo tags generated sentences; leave data.train as it is")
    print_heading("1. Training data: sentences from a grammar, with parts of speech")
    training = list(tagged_sentences(corpus.to, "train", corpus.pairs, recipe.seed))
    for sentence in training[:SHOWN]:
        typer.echo("  " + " ".join(f"{word}_{tag}" for word, tag in zip(*sentence, strict=True)))
    train_model(recipe, folder, options.again, options.plain, "2. Training a tagger")
    tagger = load(folder)
    print_heading("3. Tagging unseen sentences")
    unseen = list(tagged_sentences(corpus.to, "test", options.sentences, recipe.seed))
    words = [sentence.words for sentence in unseen]
    report = tagging_report(
        words,
        [sentence.tags for sentence in tagger(words)],
        [sentence.tags for sentence in unseen],
        MostFrequentTags.count(training),
    )
    lines = [f"{score.name:<40}{score.value:6.2f}  {score.detail}" for score in report.scores]
    lines += ["", f"{'tag':<8}{'precision':>10}{'recall':>10}{'F1':>10}"]
    for tag, counts in sorted(report.by_tag.items()):
        lines.append(f"{tag:<8}{counts.precision:10.2%}{counts.recall:10.2%}{counts.f1:10.2%}")
    typer.echo("\n".join(f"  {line}" for line in lines))
    print_report(folder, *write_report(folder, notes=[ReportNote("Tags", "\n".join(lines))]))
    typer.echo(f'  echo "{" ".join(words[0])}" | regard tag {folder}')
