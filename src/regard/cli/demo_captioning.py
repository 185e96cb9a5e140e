"""`regard demo --task captioning`: descriptions of generated pictures, and attention judged by what words are about."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from regard.cli.demo import DemoOptions, print_heading, train_model
from regard.cli.demo_tasks import SHOWN, print_report

if TYPE_CHECKING:
    from regard.recipe import Recipe

FIGURE = "caption.png"


def demo_captioning(recipe: "Recipe", folder: Path, options: DemoOptions) -> None:
    """Train a captioner on generated scenes, and judge its attention."""
    from regard.analysis.pointing import judge_pointing
    from regard.data.scenes import scenes
    from regard.drawing import caption_figure
    from regard.plot import save
    from regard.recipe import ScenesCorpus
    from regard.tasks import load_captioner
    from regard.train.report.html_report import ReportNote, write_report

    corpus = recipe.data.train[0]
    if not isinstance(corpus, ScenesCorpus):
        raise ValueError("the demo judges attention on generated scenes; leave data.train as it is")
    print_heading("1. Training data: generated pictures of shapes, each with a caption")
    for scene in scenes("train", SHOWN, corpus.language, recipe.seed):
        typer.echo(f"  {scene.name}: {scene.caption}")
    train_model(recipe, folder, options.again, options.plain, "2. Training a captioner with attention")
    captioner = load_captioner(folder)
    print_heading("3. Unseen pictures")
    unseen = list(scenes("test", options.sentences, corpus.language, recipe.seed))
    shown = next((scene for scene in unseen if len(scene.words) >= 9), unseen[0])
    for scene in unseen[:SHOWN]:
        typer.echo(f"  {captioner(scene.image).text}\n    correct: {scene.caption}")
    notes = []
    if captioner.has_attention:
        lines = judge_pointing(captioner, unseen).lines()
        typer.echo("\n".join(f"  {line}" for line in lines))
        if captioner(shown.image, beam=1).words:  # a model that has learned little may say nothing
            figure = caption_figure(captioner, shown.image, boxes=[word.boxes or () for word in shown.words])
            save(figure, folder / FIGURE, dpi=120)
            legend = f"Where each word looks: {shown.caption}"
            notes.append(ReportNote("Attention, judged", "\n".join(lines), figure, legend))
    print_report(folder, *write_report(folder, notes=notes))
    if notes:
        typer.echo(f"  a figure of one picture: {folder / FIGURE}")
    typer.echo(f"  regard caption {folder} {shown.name}")
    typer.echo(f"  regard figure {folder} {shown.name} --kind caption")
    typer.echo(f"  regard evaluate {folder}")
