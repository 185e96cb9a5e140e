"""Evaluate a tagger: accuracy, each tag, words unseen in training, frequent errors, and spans of BIO tags."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from regard.cli.evaluate_labels import check_figure
from regard.cli.streams import existing_file, line_counter

if TYPE_CHECKING:
    from regard.recipe import Corpus, Recipe
    from regard.score.tagging import MostFrequentTags, PrecisionRecall, TaggingReport

ERRORS = 10  # kinds of errors that are printed


def evaluate_tags(
    run: str,
    source: str | None = None,
    reference: Sequence[str] = (),
    output: str | None = None,
    figure: str | None = None,
    as_json: bool = False,
    device: str = "auto",
    dtype: str = "auto",
) -> None:
    """Tag a test set, and print how well.

    Args:
        run: The run of a tagger.
        source: A file of tagged sentences, of a kind that its name implies as in a recipe; or, with `reference`, lines
            of words. Default: the recipe's test set, or its validation set.
        reference: A file with lines of tags.
        output: A file to write the tagged sentences to.
        figure: A file to draw the confusion matrix to.
        as_json: Whether to print JSON.
        device: Device to run on.
        dtype: Floating-point format.
    """
    from regard.bundle import load_bundle_recipe
    from regard.data.corpus import Reader
    from regard.data.fields.lists import split_list
    from regard.run_path import find_run
    from regard.score.tagging import tagging_report
    from regard.tasks import load_tagger

    if figure:
        check_figure(figure)
    if len(reference) > 1:
        raise ValueError(f"there are {len(reference)} files of tags; a tagger is compared with one --reference")
    tagger = load_tagger(run, device, dtype)
    recipe = load_bundle_recipe(find_run(run).folder)
    corpus, name = _test_set(run, recipe, source, reference[0] if reference else None)
    root = Path(recipe.data.root) if source is None else Path()
    records = list(Reader(("words", "tags"), root, recipe.seed).records(corpus))
    words, gold = ([split_list(record[column]) for record in records] for column in (0, 1))
    with line_counter("tagged") as count:
        sentences = tagger(words)
        count(len(words))
    if output:
        Path(output).write_text("".join(f"{sentence}\n" for sentence in sentences), encoding="utf-8")
    report = tagging_report(words, [sentence.tags for sentence in sentences], gold, _training_tags(recipe))
    if figure:
        _draw(Path(figure), report)
    if as_json:
        typer.echo(json.dumps(_to_json(name, len(words), report), ensure_ascii=False, indent=2))
    else:
        _print(name, len(words), report)


def _test_set(run: str, recipe: "Recipe", source: str | None, reference: str | None) -> "tuple[Corpus, str]":
    """Return the corpus to evaluate on, and its name."""
    from pydantic import TypeAdapter

    from regard.data.prepare import corpus_name
    from regard.recipe import ConllCorpus, ConlluCorpus, Corpus, TextCorpus

    if reference is not None:
        if source is None:
            raise ValueError("--source is missing; give the lines of words that --reference has the tags of")
        files = {"words": str(existing_file(source)), "tags": str(existing_file(reference))}
        return TextCorpus(files=files), f"{source} and {reference}"
    if source is not None:
        corpus: Corpus = TypeAdapter(Corpus).validate_python({"path": str(existing_file(source))})
        # Files of a kind have the columns of the training data.
        for trained in recipe.data.train:
            if isinstance(corpus, ConlluCorpus | ConllCorpus) and type(trained) is type(corpus):
                corpus = trained.model_copy(update={"path": corpus.path})
        return corpus, source
    for key, named in (("data.test", recipe.data.test), ("data.valid", recipe.data.valid)):
        if named is not None:
            return named, f"{key}: {corpus_name(named)}"
    raise ValueError(f"the recipe of {run} has neither data.test nor data.valid; give --source")


def _training_tags(recipe: "Recipe") -> "MostFrequentTags | None":
    """Return the most frequent tags of the training data; None, with a message, if these cannot be read."""
    from regard.tasks.tagging import read_most_frequent_tags

    try:
        return read_most_frequent_tags(recipe)
    except ValueError as error:
        typer.echo(f"regard: {error} There is no baseline and no accuracy of unseen words.", err=True)
        return None


def _draw(path: Path, report: "TaggingReport") -> None:
    """Draw the confusion matrix."""
    from regard.drawing import tag_confusion_figure
    from regard.plot import save

    save(tag_confusion_figure(report), path)


def _to_json(name: str, sentences: int, report: "TaggingReport") -> dict[str, Any]:
    return {
        "corpus": name,
        "sentences": sentences,
        "words": report.words,
        "scores": [asdict(score) for score in report.scores],
        "most_frequent_tag": report.baseline,
        "tags": {tag: _counts(counts) for tag, counts in report.by_tag.items()},
        "spans": None if report.spans is None else {kind: _counts(counts) for kind, counts in report.spans.items()},
        "confusion": [[gold, predicted, count] for (gold, predicted), count in sorted(report.confusion.items())],
    }


def _counts(counts: "PrecisionRecall") -> dict[str, float]:
    return {"precision": counts.precision, "recall": counts.recall, "f1": counts.f1, **asdict(counts)}


def _print(name: str, sentences: int, report: "TaggingReport") -> None:
    """Print scores, the tags or spans with their precision and recall, and the most frequent errors as tables."""
    from regard.cli.score import print_scores, print_table
    from regard.score import Score

    typer.echo(f"{name}: {sentences:,} sentences, {report.words:,} words\n")
    scores = list(report.scores)
    if report.baseline is not None:
        scores.append(Score("most frequent tag", 100 * report.baseline, f"words:{report.words}"))
    print_scores(scores, as_json=False)
    for title, table in (("tag", report.by_tag), ("span", report.spans)):
        if table:
            rows = [
                (key, f"{counts.gold:,}", *(f"{100 * value:.2f}" for value in _ratios(counts)))
                for key, counts in table.items()
            ]
            typer.echo()
            print_table((title, "count", "precision", "recall", "F1"), rows)
    if report.errors:
        typer.echo()
        print_table(
            ("correct", "predicted", "words"),
            [(gold, predicted, f"{count:,}") for gold, predicted, count in report.errors[:ERRORS]],
        )


def _ratios(counts: "PrecisionRecall") -> tuple[float, float, float]:
    return counts.precision, counts.recall, counts.f1
