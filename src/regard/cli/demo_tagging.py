"""`regard demo --task tagging`: parts of speech of generated sentences, and where the tagger errs."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from regard.cli.demo import DemoOptions, print_heading, train_model
from regard.cli.demo_tasks import SHOWN, print_report

if TYPE_CHECKING:
    from collections.abc import Sequence

    from regard.predict import TaggedSentence
    from regard.recipe import Recipe
    from regard.score.tagging import TaggingReport

SENTENCES, MATRIX = "tags.png", "confusion.png"
MOST_SHOWN = 8  # sentences of the figure


def demo_tagging(recipe: "Recipe", folder: Path, options: DemoOptions) -> None:
    """Train a tagger on the phrasebook's parts of speech; print its accuracy by tag and on unseen words."""
    from regard.data.phrasebook import tagged_sentences
    from regard.drawing import tag_confusion_figure, tags_figure
    from regard.plot import save
    from regard.recipe import PhrasebookCorpus
    from regard.score.tagging import MostFrequentTags, tagging_report
    from regard.tasks import load_tagger
    from regard.train.report.html_report import ReportNote, write_report

    corpus = recipe.data.train[0]
    if not isinstance(corpus, PhrasebookCorpus):
        raise ValueError("the demo tags generated sentences; leave data.train as it is")
    print_heading("1. Training data: sentences from a grammar, with parts of speech")
    training = list(tagged_sentences(corpus.to, "train", corpus.pairs, recipe.seed))
    for sentence in training[:SHOWN]:
        typer.echo("  " + " ".join(f"{word}_{tag}" for word, tag in zip(*sentence, strict=True)))
    train_model(recipe, folder, options.again, options.plain, "2. Training a tagger")
    tagger = load_tagger(folder)
    print_heading("3. Tagging unseen sentences")
    unseen = list(tagged_sentences(corpus.to, "test", options.sentences, recipe.seed))
    words, gold = [sentence.words for sentence in unseen], [sentence.tags for sentence in unseen]
    tagged = tagger(words)
    report = tagging_report(words, [sentence.tags for sentence in tagged], gold, MostFrequentTags.count(training))
    lines = _lines(report)
    typer.echo("\n".join(f"  {line}" for line in lines))
    hardest = hardest_sentences(tagged, gold)
    sentences = tags_figure(
        [tagged[number] for number in hardest],
        [gold[number] for number in hardest],
        title="Unseen sentences with wrong tags, then those with the least probable tags",
    )
    matrix = tag_confusion_figure(report, title=f"{report.words:,} words of unseen sentences")
    for figure, name in ((sentences, SENTENCES), (matrix, MATRIX)):
        save(figure, folder / name)
    notes = [
        ReportNote("Tags", "\n".join(lines), matrix, "How often each correct tag has each predicted tag"),
        ReportNote(
            "The hardest sentences",
            "\n".join(str(tagged[number]) for number in hardest),
            sentences,
            "Sentences with the predicted tag below each word, and the probability of the tag as a shade",
        ),
    ]
    print_report(folder, *write_report(folder, notes=notes))
    typer.echo(f"  figures: {folder / SENTENCES} of the hardest sentences, {folder / MATRIX} of the confusions")
    typer.echo(f'  regard figure {folder} "{" ".join(words[0])}" --kind tags')
    typer.echo(f'  echo "{" ".join(words[0])}" | regard tag {folder}')


def hardest_sentences(tagged: "Sequence[TaggedSentence]", gold: "Sequence[Sequence[str]]") -> list[int]:
    """Return the numbers of sentences with the most wrong tags and then those with the least probable tag."""

    def ease(number: int) -> tuple[int, float]:
        sentence, tags = tagged[number], gold[number]
        wrong = sum(tag != right for tag, right in zip(sentence.tags, tags, strict=True))
        return -wrong, min(sentence.probabilities)

    return sorted(range(len(tagged)), key=ease)[:MOST_SHOWN]


def _lines(report: "TaggingReport") -> list[str]:
    """Return the scores, and precision, recall and F1 of each tag."""
    lines = [f"{score.name:<40}{score.value:6.2f}  {score.detail}" for score in report.scores]
    lines += ["", f"{'tag':<8}{'precision':>10}{'recall':>10}{'F1':>10}"]
    for tag, counts in sorted(report.by_tag.items()):
        lines.append(f"{tag:<8}{counts.precision:10.2%}{counts.recall:10.2%}{counts.f1:10.2%}")
    return lines
