"""`regard demo`: train, evaluate and inspect a small model on sentences that come with the package."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import typer

from regard.cli.recipe import Overrides

if TYPE_CHECKING:
    from collections.abc import Sequence

    from regard.data.phrasebook import Phrase
    from regard.predict import Translator
    from regard.recipe import Recipe
    from regard.score import Alignment, Score
    from regard.tasks import AttentionMap, Sample
    from regard.train.events import Finished

SHOWN_ALIGNMENTS = (4, 5, 6, 7)  # lecture sentences whose attention the report shows: tired, wide, windows, Windows
LANGUAGES = {"de": "German", "fr": "French", "it": "Italian", "ar": "Arabic"}

NEXT_STEPS = """Next steps:
  {open} {run}/report.html
  echo "I closed the windows" | regard translate {run} --alignments
  regard phrasebook --to {to} -n 5 --alignments --relations
  regard recipe show {run}/recipe.toml
  tensorboard --logdir {run}
  regard demo --to {other}"""


@dataclass(frozen=True)
class DemoOptions:
    """Options that all demos share; see `demo`."""

    run: str | None
    sentences: int
    again: bool
    plain: bool


def demo(
    to: Literal["de", "fr", "it", "ar"] = typer.Option(
        "de", help="Target language; the source is English. The language that a tagger tags."
    ),
    overrides: Overrides = None,
    task: Literal[
        "translation", "classification", "tagging", "language_model", "chat", "captioning", "forecasting"
    ] = typer.Option("translation", help="What to train: a translator, or a model for another task."),
    label: Literal["sentiment", "topic", "digits"] = typer.Option(
        "sentiment", help="What a classifier learns: sentiment or topic of documents, or drawn digits."
    ),
    run: str | None = typer.Option(None, help="Folder of the run. Default: runs/demo-LANGUAGE or runs/demo-TASK."),
    sentences: int = typer.Option(500, min=2, help="Unseen sentences or documents to test the model with."),
    again: bool = typer.Option(False, "--again", help="Delete the model of an earlier call, and train again."),
    plain: bool = typer.Option(False, "--plain", help="Print lines instead of the live view."),
) -> None:
    """Train a small model on generated sentences, and show what it has learned.

    \b
    regard demo
    regard demo --to ar
    regard demo --task classification --label topic
    regard demo --task classification --label digits
    regard demo --task tagging --to fr
    regard demo --task language_model
    regard demo --task chat
    regard demo --task forecasting
    regard demo --task captioning
    regard demo train.steps=300 --run runs/quick --again

    Needs no data and no network, and takes about two minutes on two cores.
    A second call reuses the trained model.
    """
    from regard.data.phrasebook import lectures
    from regard.tasks import load_translator
    from regard.train.report.html_report import write_report

    if task != "translation":
        from regard.cli.demo_tasks import demo_task, task_recipe

        named = task_recipe(task, to, label, overrides or [])
        demo_task(named, DemoOptions(run, sentences, again, plain))
        return
    recipe = demo_recipe(to, overrides or [])
    folder = Path(run or Path("runs", recipe.name))
    _show_training_data(recipe, to)
    finished = train_model(recipe, folder, again, plain, "2. Training a Transformer")
    translator = load_translator(folder, device="auto")
    scores = _show_scores(translator, finished, to, sentences)
    samples = _show_lecture_sentences(translator, lectures(to))
    attention = _show_alignments(translator, folder, to, sentences)
    html, png = write_report(folder, attention=attention, scores=scores, samples=samples)
    print_heading("5. Report")
    typer.echo(f"The report is in {html}, and as an image in {png}.")
    opener = "open" if sys.platform == "darwin" else "xdg-open"
    typer.echo(NEXT_STEPS.format(open=opener, run=folder, to=to, other="ar" if to != "ar" else "fr"))


def demo_recipe(to: str, overrides: "Sequence[str]" = ()) -> "Recipe":
    """Return the phrasebook recipe for a target language, as `regard demo` trains it."""
    from regard.recipe import parse, shipped_recipe

    corpora = ("data.train.0", "data.valid", "data.test")
    language = [f"name=demo-{to}", *(f"{corpus}.to={to}" for corpus in corpora)]
    return parse(shipped_recipe("phrasebook"), [*language, *overrides], where="the phrasebook's recipe")


def print_heading(title: str) -> None:
    """Print an underlined title."""
    typer.echo(f"\n{title}\n{'-' * len(title)}")


def _show_training_data(recipe: "Recipe", to: str) -> None:
    """Print some training pairs with their gold alignments."""
    from regard.data.phrasebook import phrases

    print_heading(f"1. Training data: English and {LANGUAGES[to]} sentences from a grammar, with gold word alignments")
    for phrase in phrases(to, "train", 3, recipe.seed):
        typer.echo(f"  {phrase.source}\n    {phrase.target}\n    {phrase.pharaoh()}")


def train_model(recipe: "Recipe", folder: Path, again: bool, plain: bool, title: str) -> "Finished":
    """Train the model unless it is there already, with progress on stderr."""
    import shutil

    from regard.cli.progress import train_with_progress
    from regard.run_files import RECIPE

    print_heading(title)
    if again and (folder / RECIPE).is_file():
        shutil.rmtree(folder)
    finished = train_with_progress(recipe, folder, plain=plain)
    if finished.reason == "stopped":
        typer.echo("regard: stopped; the same command resumes the training", err=True)
        raise typer.Exit(130)
    typer.echo(f"{finished.step:,} steps, {finished.seconds:.0f} s; in {folder}")
    return finished


def _show_scores(translator: "Translator", finished: "Finished", to: str, count: int) -> "dict[str, list[Score]]":
    """Print exact match and BLEU on the test set and on novel combinations of words, and some errors."""
    from regard.data.phrasebook import phrases
    from regard.score import Score, bleu, exact_match

    print_heading("3. Translating unseen sentences")
    novel = list(phrases(to, "novel", count))
    outputs = [translation.text for translation in translator.translate([phrase.source for phrase in novel])]
    references = [phrase.target for phrase in novel]
    test = sorted(
        (Score(**score) for score in finished.scores["test"]["scores"]), key=lambda score: score.name != "exact match"
    )
    scores = {"test": test, "novel": [exact_match(outputs, references), bleu(outputs, references)]}
    explanations = {"test": "sentences like the training data", "novel": "combinations of words not in training data"}
    for split, explanation in explanations.items():
        by_name = {score.name: score for score in scores[split]}
        exact, overlap = by_name["exact match"], by_name["BLEU"]
        correct = f"{exact.value:.1f} % exact matches {exact.detail}"
        typer.echo(f"  {split:<6} {correct}, BLEU {overlap.value:.1f}: {explanation}")
    for phrase, output in [pair for pair in zip(novel, outputs, strict=True) if pair[0].target != pair[1]][:2]:
        typer.echo(f"\n  an error: {phrase.source}\n    output     {output}\n    reference  {phrase.target}")
    return scores


def _show_lecture_sentences(translator: "Translator", phrases: "Sequence[Phrase]") -> "list[Sample]":
    """Print the translations of the sentences discussed in the lectures, each marked as right or wrong."""
    from regard.tasks import Sample

    typer.echo("\nSentences from the lectures, none of them in the training data:")
    translations = translator.translate([phrase.source for phrase in phrases])
    samples = [
        Sample(phrase.source, phrase.target, translation.text)
        for phrase, translation in zip(phrases, translations, strict=True)
    ]
    for sample in samples:
        right = sample.output == sample.reference
        typer.echo(f"  {sample.input}\n    {'✓' if right else '✗'} {sample.output}")
        if not right:
            typer.echo(f"      reference: {sample.reference}")
    return samples


def _show_alignments(translator: "Translator", folder: Path, to: str, count: int) -> "list[AttentionMap]":
    """Print word alignments read from attention, and their error rate; store the attention head that aligns best."""
    from regard.bundle import load_scores, save_scores
    from regard.data.phrasebook import lectures, phrases
    from regard.predict.scoring import choose_alignment_head, score_pairs
    from regard.score import alignment_error_rate
    from regard.tasks.translation import attention_maps

    print_heading("4. Word alignments from attention")
    head = choose_alignment_head(translator, *_gold_alignments(list(phrases(to, "valid", count))))
    translator.alignment_head = head
    save_scores(folder, {**load_scores(folder), "alignment": head.to_scores()})
    pairs, gold = _gold_alignments([lectures(to)[number] for number in SHOWN_ALIGNMENTS])
    for scored, reference in list(zip(score_pairs(translator, pairs, alignments=True), gold, strict=True))[:2]:
        _print_alignment(scored.source.split(), scored.target.split(), set(scored.alignment or ()), reference)
    test_pairs, test_gold = _gold_alignments(list(phrases(to, "test", count)))
    links = [scored.alignment or () for scored in score_pairs(translator, test_pairs, alignments=True)]
    typer.echo(f"\n{alignment_error_rate(links, test_gold)}")
    heads = "all heads" if head.head is None else f"head {head.head + 1}"
    typer.echo(f"read from {head.tap}, {heads}, which align {count} validation pairs best")
    return attention_maps(translator, pairs, gold)


def _gold_alignments(phrases: "Sequence[Phrase]") -> "tuple[list[tuple[str, str]], list[Alignment]]":
    """Return sentence pairs and the gold alignments of their words."""
    from regard.score import Alignment

    gold = [
        Alignment(
            frozenset((link.source, link.target) for link in phrase.alignment if link.sure),
            frozenset((link.source, link.target) for link in phrase.alignment),
        )
        for phrase in phrases
    ]
    return [(phrase.source, phrase.target) for phrase in phrases], gold


def _print_alignment(source: list[str], target: list[str], links: set[tuple[int, int]], gold: "Alignment") -> None:
    """Print each target word with the source words aligned to it, those not in the gold alignment marked."""
    typer.echo(f"\n  {' '.join(source)}")
    for number, word in enumerate(target):
        linked = sorted(link for link in links if link[1] == number)
        words = ", ".join(source[link[0]] + ("" if link in gold.possible else " ✗") for link in linked)
        typer.echo(f"    {word:<14} {words or '–'}")
