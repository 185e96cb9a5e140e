"""`regard evaluate` for captioners: scores of captions beside those of baselines, and attention on scenes."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from regard.cli.score import print_table
from regard.cli.streams import existing_file, line_counter

if TYPE_CHECKING:
    from regard.analysis.caption_baselines import PictureRecord
    from regard.analysis.pointing import Pointing
    from regard.predict import Captioner
    from regard.recipe import Corpus, Recipe
    from regard.score import Score

BLOCK = 64  # pictures that are described at a time
JUDGED = 500  # scenes by which attention is judged, at most


def evaluate_captions(
    run: str, source: str | None, output: str | None, as_json: bool, device: str, dtype: str, options: dict[str, Any]
) -> None:
    """Describe the pictures of a test set, and score the captions beside those of two baselines.

    Args:
        run: The run of a captioner.
        source: A list of pictures with their captions; None takes the test set of the recipe.
        output: File to which captions are written.
        as_json: Whether to print JSON.
        device: Device to run on.
        dtype: Floating-point format.
        options: Options of the search.
    """
    from regard.analysis.caption_baselines import MOST_PICTURES, central_caption, nearest_captions, read_captioned
    from regard.bundle import load_bundle_recipe
    from regard.run_path import find_run
    from regard.score.cider import caption_scores
    from regard.tasks import load_captioner

    captioner = load_captioner(run, device, dtype)
    recipe = load_bundle_recipe(find_run(run).folder)
    corpus, name = _test_set(run, recipe, source)
    records = read_captioned(corpus, recipe)
    if not records:
        raise ValueError(f"{name} has no pictures with captions, so there is nothing to evaluate")
    captions = []
    with line_counter("described") as count:
        for begin in range(0, len(records), BLOCK):
            names = [record.name for record in records[begin : begin + BLOCK]]
            captions += [caption.text for caption in captioner.describe(names, attention=False, **options)]
            count(len(names))
    if output:
        Path(output).write_text("".join(f"{caption}\n" for caption in captions), encoding="utf-8")
    training = [record for trained in recipe.data.train for record in read_captioned(trained, recipe, MOST_PICTURES)]
    pictures = [record.name for record in records]
    systems = {
        "model": captions,
        "nearest picture": nearest_captions(pictures, training, recipe.image.channels),
        "constant": [central_caption(training)] * len(records),
    }
    references = [record.captions for record in records]
    scores = {
        system: caption_scores(texts, references, lowercase=recipe.text.lowercase) for system, texts in systems.items()
    }
    _print(name, len(records), scores, _pointing(captioner, corpus, records), as_json)


def _test_set(run: str, recipe: "Recipe", source: str | None) -> "tuple[Corpus, str]":
    """Return the corpus to evaluate on, and its name."""
    from regard.data.prepare import corpus_name
    from regard.recipe import ImagesCorpus

    if source is not None:
        return ImagesCorpus(path=str(existing_file(source))), source
    for key, corpus in (("data.test", recipe.data.test), ("data.valid", recipe.data.valid)):
        if corpus is not None:
            return corpus, f"{key}: {corpus_name(corpus)}"
    raise ValueError(f"the recipe of {run} has neither data.test nor data.valid; give --source")


def _pointing(captioner: "Captioner", corpus: "Corpus", records: "Sequence[PictureRecord]") -> "Pointing | None":
    """Judge attention on generated scenes; None on other pictures, and without attention."""
    from regard.analysis.pointing import judge_pointing
    from regard.data.scenes import find_scene
    from regard.recipe import ScenesCorpus

    if not isinstance(corpus, ScenesCorpus) or not captioner.has_attention:
        return None
    return judge_pointing(captioner, [find_scene(record.name, corpus.language) for record in records[:JUDGED]])


def _print(
    name: str,
    pictures: int,
    scores: "dict[str, tuple[Score, ...]]",
    pointing: "Pointing | None",
    as_json: bool,
) -> None:
    """Print the scores of all systems as a table, or as JSON."""
    if as_json:
        table: dict[str, Any] = {"test": name, "pictures": pictures}
        table |= {system: [asdict(score) for score in row] for system, row in scores.items()}
        if pointing is not None:
            table["pointing"] = asdict(pointing)
        typer.echo(json.dumps(table, ensure_ascii=False, indent=2))
        return
    typer.echo(f"{name}, {pictures:,} pictures\n")
    rows = [(named[0].name, *(f"{score.value:.2f}" for score in named)) for named in zip(*scores.values(), strict=True)]
    print_table(("", *scores), rows)
    typer.echo(f"\n{scores['model'][0].signature}")
    if pointing is not None:
        typer.echo("\n" + "\n".join(pointing.lines()))
