"""`regard demo --task language_model`: perplexity, samples, and the surprisal of words in right and wrong sentences."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from regard.cli.demo import DemoOptions, print_heading, train_model
from regard.cli.demo_tasks import SHOWN, print_report

if TYPE_CHECKING:
    from regard.predict import TextGenerator
    from regard.recipe import Recipe
    from regard.train.report.html_report import ReportNote

PROMPTS = ("the animal did not", "I bought", "when the child", "Anna was born")
PAIRS = (
    ("these queens close the green umbrella", 2, "closes"),
    ("the father was born on the third of May", 2, "were"),
    ("the desert that he crossed is dark", 5, "are"),
    ("the animal did not cross the street because it was too tired", 4, "crossed"),
)
"""A sentence, the number of a word, and a form of that word that is wrong there."""
FIGURE = "surprisal.png"


def demo_language_model(recipe: "Recipe", folder: Path, options: DemoOptions) -> None:
    """Train a language model on the English of the phrasebook; print perplexities, samples and surprisals."""
    from regard.data.phrasebook import phrases
    from regard.tasks import load_generator
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
    generated = generator(list(PROMPTS), sample=True, seed=recipe.seed, max_tokens=24)
    samples = [f"{prompt} … {result.text}" for prompt, result in zip(PROMPTS, generated, strict=True)]
    typer.echo("\n".join(f"  {sample}" for sample in samples))
    note = ReportNote("Unseen sentences", "\n".join([*lines, "", *samples]))
    print_report(folder, *write_report(folder, notes=[note, _show_surprisals(generator, folder)]))
    typer.echo(f"  a figure of the surprisals: {folder / FIGURE}")
    typer.echo(f'  regard figure {folder} "I bought an cat" --kind surprisal')
    typer.echo(
        f'  regard generate {folder} "I bought" --sample\n  regard figure {folder} "I bought a cat" --kind heads'
    )


def _show_surprisals(generator: "TextGenerator", folder: Path) -> "ReportNote":
    """Print how surprising a wrong form of a word is beside the right one, and draw the sentences (Linzen et al. 2016).

    A causal model has read the words before the form, and nothing else.
    """
    from regard.drawing import surprisal_figure
    from regard.plot import save
    from regard.predict import word_surprisals
    from regard.train.report.html_report import ReportNote

    print_heading("5. Surprisal: how unexpected each word is, in bits")
    lines, sentences = [], []
    for sentence, place, wrong in PAIRS:
        words = sentence.split()
        changed = " ".join([*words[:place], wrong, *words[place + 1 :]])
        bits = [word_surprisals(generator, text)[place].bits for text in (sentence, changed)]
        lines.append(f"{' '.join(words[:place])} … {words[place]} {bits[0]:.1f}, {wrong} {bits[1]:.1f}")
        sentences += [sentence, changed]
    typer.echo("\n".join(f"  {line}" for line in lines))
    figure = surprisal_figure(
        generator,
        sentences,
        marked={(2 * number + 1, place) for number, (_, place, _) in enumerate(PAIRS)},
        title="Each second sentence has one wrong form, underlined",
    )
    save(figure, folder / FIGURE)
    return ReportNote("Surprisal", "\n".join(lines), figure, f"Surprisal of each word of: {'; '.join(sentences)}")
