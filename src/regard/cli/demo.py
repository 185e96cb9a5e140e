"""`regard demo`: a model trained before one's eyes, on sentences that come with the package."""

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import typer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from regard.data.phrasebook import Phrase
    from regard.recipe import Recipe
    from regard.score import Alignment, Score
    from regard.train.events import Finished, Sample
    from regard.train.report import AttentionMap
    from regard.translator import Translator

DRAWN = (4, 5, 6, 7)  # lectures' sentences whose attention the report shows: tired, wide, windows, Windows
LANGUAGES = {"de": "German", "fr": "French", "it": "Italian", "ar": "Arabic"}

NEXT = """Look further:
  {open} {run}/report.html
  echo "I closed the windows" | regard translate {run} --alignments
  regard phrasebook --to {to} -n 5 --alignments --relations
  regard recipe show {run}/recipe.toml
  tensorboard --logdir {run}
  regard demo --to {other}"""


def demo(
    to: Literal["de", "fr", "it", "ar"] = typer.Option("de", help="Language to translate English into."),
    overrides: list[str] | None = typer.Argument(None, metavar="[KEY=VALUE]...", help="Settings to change."),
    run: str | None = typer.Option(None, help="The run's folder; runs/demo-LANGUAGE if not given."),
    sentences: int = typer.Option(500, min=2, help="Novel sentences to translate, and pairs to align."),
    again: bool = typer.Option(False, "--again", help="Forget what was trained there before."),
    plain: bool = typer.Option(False, "--plain", help="Lines instead of the live view."),
) -> None:
    """Train a small Transformer on sentences that come with the package, and see what it has learned.

    Needs no data and no network; about two minutes on two cores. A second call finds the model trained.

    \b
    regard demo
    regard demo --to ar
    regard demo train.steps=300 --run runs/quick --again
    """
    from regard.data.phrasebook import lectures
    from regard.train.report import write_report
    from regard.translator import load

    recipe = demo_recipe(to, overrides or [])
    folder = Path(run or Path("runs", recipe.name))
    _show_sentences(recipe, to)
    finished = _train(recipe, folder, again, plain)
    translator = load(folder, device="auto")
    scores = _show_scores(translator, finished, to, sentences)
    samples = _show_lectures(translator, lectures(to))
    aligned = _show_alignments(translator, folder, to, sentences)
    html, png = write_report(folder, attention=aligned, scores=scores, samples=samples)
    _head("5. And then")
    typer.echo(f"The report is in {html}, as a picture in {png}.")
    typer.echo(NEXT.format(open="open" if _on_a_mac() else "xdg-open", run=folder, to=to, other=_other(to)))


def demo_recipe(to: str, overrides: "Sequence[str]" = ()) -> "Recipe":
    """The phrasebook's recipe for a language, as the demonstration trains it."""
    from importlib.resources import files

    from regard.recipe import parse

    text = files("regard.recipe").joinpath("phrasebook.toml").read_text(encoding="utf-8")
    parts = ("data.train.0", "data.valid", "data.test")
    told = [f"name=demo-{to}", *(f"{part}.to={to}" for part in parts)]
    return parse(text, [*told, *overrides], where="the phrasebook's recipe")


def _head(title: str) -> None:
    typer.echo(f"\n{title}\n{'-' * len(title)}")


def _show_sentences(recipe: "Recipe", to: str) -> None:
    """What it will learn from: a drawn pair with its gold links."""
    from regard.data.phrasebook import phrases

    _head(f"1. Sentences: English and {LANGUAGES[to]} from a grammar that knows which word became which")
    for phrase in phrases(to, "train", 3, recipe.seed):
        typer.echo(f"  {phrase.source}\n    {phrase.target}\n    {phrase.pharaoh()}")


def _train(recipe: "Recipe", folder: Path, again: bool, plain: bool) -> "Finished":
    """Train where nothing was trained yet, with everything to be seen on stderr."""
    import shutil

    from regard.cli.progress import follow_training
    from regard.names import RECIPE

    _head("2. Training a Transformer on them")
    if again and (folder / RECIPE).is_file():
        shutil.rmtree(folder)
    finished = follow_training(recipe, folder, plain=plain)
    if finished.reason == "stopped":
        typer.echo("regard: stopped; the same command goes on from here", err=True)
        raise typer.Exit(130)
    typer.echo(f"{finished.step:,} steps, {finished.tokens:,} target tokens, {finished.seconds:.0f} s; in {folder}")
    return finished


def _show_scores(translator: "Translator", finished: "Finished", to: str, count: int) -> "dict[str, list[Score]]":
    """How often a whole sentence is right: drawn like the training text, and from combinations never seen in it."""
    from regard.data.phrasebook import phrases
    from regard.score import Score, bleu, exact_match

    _head("3. Sentences it has never seen")
    asked = list(phrases(to, "novel", count))
    said = [each.text for each in translator.translate([phrase.source for phrase in asked])]
    meant = [phrase.target for phrase in asked]
    told = sorted(
        (Score(**each) for each in finished.scores["test"]["scores"]), key=lambda score: score.name != "exact match"
    )
    scores = {"test": told, "novel": [exact_match(said, meant), bleu(said, meant)]}
    meaning = {"test": "drawn like the training text", "novel": "words that never met in the training text"}
    for split, what in meaning.items():
        named = {score.name: score for score in scores[split]}
        exact, overlap = named["exact match"], named["BLEU"]
        right = f"{exact.value:.1f} % right to the letter {exact.detail}"
        typer.echo(f"  {split:<6} {right}, BLEU {overlap.value:.1f}: {what}")
    for phrase, line in [row for row in zip(asked, said, strict=True) if row[0].target != row[1]][:2]:
        typer.echo(f"\n  wrong, for example: {phrase.source}\n    said   {line}\n    meant  {phrase.target}")
    return scores


def _show_lectures(translator: "Translator", known: "Sequence[Phrase]") -> "list[Sample]":
    """The lectures' sentences, each against what it should be."""
    from regard.train.events import Sample

    typer.echo("\nThe lectures' sentences, none of which it was trained on:")
    said = translator.translate([phrase.source for phrase in known])
    samples = [Sample(phrase.source, phrase.target, each.text) for phrase, each in zip(known, said, strict=True)]
    for sample in samples:
        right = sample.translation == sample.reference
        typer.echo(f"  {sample.source}\n    {'✓' if right else '✗'} {sample.translation}")
        if not right:
            typer.echo(f"      should be: {sample.reference}")
    return samples


def _show_alignments(translator: "Translator", folder: Path, to: str, count: int) -> "list[AttentionMap]":
    """Which word became which, read from the attention, and how far that is from the grammar's own links."""
    from regard.bundle import load_scores, save_scores
    from regard.data.phrasebook import lectures, phrases
    from regard.score import alignment_error_rate
    from regard.train.maps import attention_maps
    from regard.translator.given import choose_look, weigh

    _head("4. Which word became which: links read from the attention")
    translator.aligned_by = choose_look(translator, *_links(list(phrases(to, "valid", count))))
    save_scores(folder, {**load_scores(folder), "alignment": translator.aligned_by.to_scores()})
    pairs, gold = _links([lectures(to)[number] for number in DRAWN])
    for given, truth in list(zip(weigh(translator, pairs, alignments=True), gold, strict=True))[:2]:
        _show_links(given.source.split(), given.target.split(), set(given.alignment or ()), truth)
    asked, meant = _links(list(phrases(to, "test", count)))
    found = [given.alignment or () for given in weigh(translator, asked, alignments=True)]
    head = "all heads" if translator.aligned_by.head is None else f"head {translator.aligned_by.head + 1}"
    typer.echo(f"\n{alignment_error_rate(found, meant)}")
    typer.echo(f"read from {translator.aligned_by.tap}, {head}: of all, these align {count} validation pairs best")
    return attention_maps(translator, pairs, gold)


def _links(phrases: "Sequence[Phrase]") -> "tuple[list[tuple[str, str]], list[Alignment]]":
    """Pairs of sentences, and the grammar's links between their words."""
    from regard.score import Alignment

    gold = [
        Alignment(
            frozenset((link.source, link.target) for link in phrase.alignment if link.sure),
            frozenset((link.source, link.target) for link in phrase.alignment),
        )
        for phrase in phrases
    ]
    return [(phrase.source, phrase.target) for phrase in phrases], gold


def _show_links(source: list[str], target: list[str], found: set[tuple[int, int]], gold: "Alignment") -> None:
    """Each target word with the source words it came from; a mark where the grammar has no such link."""
    typer.echo(f"\n  {' '.join(source)}")
    for number, word in enumerate(target):
        linked = sorted(link for link in found if link[1] == number)
        said = ", ".join(source[link[0]] + ("" if link in gold.possible else " ✗") for link in linked)
        typer.echo(f"    {word:<14} {said or '–'}")


def _other(to: str) -> str:
    return "ar" if to != "ar" else "fr"


def _on_a_mac() -> bool:
    import sys

    return sys.platform == "darwin"
