"""Draw a figure of a trained model or of its training: `regard.figure`.

Figures of a model come from `explore`, `analysis` and `predict`, figures of its training from `train`; they do not
import each other.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from regard.data.pictures import Source
from regard.explore import figures
from regard.explore.adapters import Predictor
from regard.explore.figure_data import FigureOptions
from regard.explore.figures import dialogue_figure, document_figure
from regard.plot import ForecastPanel, confusion, patches, words
from regard.plot import caption as plot_caption
from regard.plot import forecast as draw_forecast
from regard.plot.caption import Box
from regard.plot.style import ColourScale
from regard.predict import (
    Captioner,
    Chatbot,
    Forecast,
    Forecaster,
    ImageClassifier,
    MaskFiller,
    TaggedSentence,
    TextClassifier,
    TextGenerator,
    WordTagger,
    word_surprisals,
)
from regard.predict.captioner import Picture
from regard.score.tagging import TaggingReport
from regard.tasks import load
from regard.train.report.curves import learning_curves
from regard.train.report.log import LOG, read_log

Drawable = Predictor | TextClassifier | ImageClassifier | WordTagger | MaskFiller | Chatbot | Captioner | Forecaster
"""A predictor that there are figures of."""


def figure(
    model: Drawable | str | Path,
    text: str | Sequence[str] = "",
    kind: str = "alignment",
    **options: Any,
) -> Figure:
    """Draw a figure of a trained model, or of a run in a folder.

    Args:
        model: What `regard.load` returns, or the folder of a run. Curves are drawn from the log in the folder.
        text: The source sentence of a translator, the prompt of a language model, the text to classify or tag, the name
            of the picture to classify or describe, the path of a table to forecast, or the turns of a conversation.
        kind: alignment, lines, heads, positions, beam, document, dialogue, patches, caption, surprisal, tags, forecast
            or curves.
        options: Fields of `regard.explore.figure_data.FigureOptions`, such as `layer=1, heads=[0], words=False`.

    Example:
        >>> figure = regard.figure("runs/phrasebook", "I can go alone", layer=1, heads=[0])
    """
    figures.check_kind(kind, KINDS)
    if kind != "curves":
        predictor = load(model) if isinstance(model, str | Path) else model
        if kind == "dialogue":
            return _dialogue(predictor, text, options)
        if not isinstance(text, str):
            raise ValueError(f"a figure of kind {kind} shows one text; give it as a string instead of a list")
        if kind in TEXT_KINDS:
            return TEXT_KINDS[kind](predictor, text, FigureOptions().updated(**options))
        return figures.figure(check_predictor(predictor, kind), text, kind, **options)
    if not isinstance(model, str | Path):
        raise ValueError("curves are drawn from a run's log; give the folder of the run instead of a loaded model")
    curves = learning_curves(read_log(Path(model)), FigureOptions().updated(**options).title)
    if curves is None:
        raise ValueError(f"{Path(model) / LOG} has no training step yet, so there are no curves to draw")
    return curves


def check_predictor(predictor: Any, kind: str) -> Predictor:
    """Return a predictor that the explorer's figures show; for another one, a ValueError names the kinds it has."""
    for predictors, name, own in (
        (TextClassifier, "a classifier", "document"),
        (ImageClassifier, "a classifier of pictures", "patches"),
        (WordTagger, "a tagger", "tags"),
        (Captioner, "a captioner", "caption"),
        (MaskFiller, "a masked language model", "surprisal"),
        (Chatbot, "a chatbot", "dialogue"),
        (Forecaster, "a forecaster", "forecast"),
    ):
        if isinstance(predictor, predictors):
            raise ValueError(f"{name} has no figure of kind {kind}; draw one of kind {own} or curves")
    shown: Predictor = predictor
    return shown


def surprisal_figure(
    model: TextGenerator | MaskFiller,
    texts: Sequence[str],
    *,
    marked: Collection[tuple[int, int]] = (),
    title: str = "",
    scale: ColourScale = "linear",
) -> Figure:
    """Draw texts with each word shaded by its surprisal, in bits, and the sum of a line beside it.

    Args:
        model: A language model, whose words depend on those before them, or a masked one.
        texts: The texts, each scored alone. Each line of a text has a line of its own.
        marked: Words (line, word), counted from 0, that are underlined.
        title: Title of the figure.
        scale: How shades depend on surprisals.
    """
    lines: list[list[str]] = []
    bits: list[list[float]] = []
    for text in texts:
        before = -1
        for word in word_surprisals(model, text):
            line = text.count("\n", 0, word.start)
            if line != before:
                lines.append([])
                bits.append([])
            lines[-1].append(text[word.start : word.end])
            bits[-1].append(max(word.bits, 0.0))
            before = line
    if not lines:
        raise ValueError("there are no words to draw the surprisal of; give a text")
    given = "all other tokens" if isinstance(model, MaskFiller) else "the words before"
    return words(
        lines,
        bits,
        [[f"{value:.1f}" for value in row] for row in bits],
        margins=[f"{sum(row):.1f} bits" for row in bits],
        marked=marked,
        label=f"surprisal of a word in bits, given {given}",
        title=title,
        scale=scale,
    )


def tags_figure(
    sentences: Sequence[TaggedSentence],
    gold: Sequence[Sequence[str]] = (),
    *,
    title: str = "",
    scale: ColourScale = "linear",
) -> Figure:
    """Draw tagged sentences: the tag below each word, and a darker shade for a less probable tag.

    Args:
        sentences: The tagged sentences.
        gold: The correct tags, if they are known. A wrong tag is bold, with the correct one in brackets.
        title: Title of the figure.
        scale: How shades depend on probabilities.
    """
    correct = gold or [sentence.tags for sentence in sentences]
    notes = [
        [tag if tag == right else f"{tag} ({right})" for tag, right in zip(sentence.tags, tags, strict=True)]
        for sentence, tags in zip(sentences, correct, strict=True)
    ]
    return words(
        [sentence.words for sentence in sentences],
        [[max(1 - value, 0.0) for value in sentence.probabilities] for sentence in sentences],
        notes,
        marked={
            (number, place)
            for number, (sentence, tags) in enumerate(zip(sentences, correct, strict=True))
            for place, (tag, right) in enumerate(zip(sentence.tags, tags, strict=True))
            if tag != right
        },
        label="1 − probability of the tag" + ("; bold: a wrong tag (the correct one)" if gold else ""),
        title=title,
        largest=1.0,
        scale=scale,
    )


def patches_figure(model: ImageClassifier, image: Source, *, title: str = "", scale: ColourScale = "linear") -> Figure:
    """Draw a picture with the attention of its patches: through all layers, and in the last layer.

    Args:
        model: A classifier of pictures.
        image: The picture: the name or the bytes of a file, a Pillow image, or an array of pixels.
        title: Title of the figure.
        scale: How colours depend on weights.
    """
    pixels = model.read(image)
    result = model(pixels, attention=True)
    assert result.attention is not None
    maps = {"attention rollout": result.attention.rollout, "last layer, mean of its heads": result.attention.last}
    return patches(pixels, maps, caption=f"{result.label} ({result.probability:.1%})", title=title, scale=scale)


def tag_confusion_figure(report: TaggingReport, *, title: str = "") -> Figure:
    """Draw how often each correct tag has each predicted tag."""
    tags = list(report.by_tag)
    counts = [[report.confusion.get((right, tag), 0) for tag in tags] for right in tags]
    return confusion(counts, tags, title=title, unit="word")


def caption_figure(
    captioner: Captioner, picture: Picture, *, boxes: Sequence[Sequence[Box]] = (), title: str = "", beam: int = 1
) -> Figure:
    """Describe a picture, and draw for each word of the caption where it looks.

    Args:
        captioner: A captioner with attention.
        picture: The picture; it is drawn as the model reads it.
        boxes: For each word of the correct caption what it is about, if that is known; drawn if the caption is as long.
        title: Title of the figure.
        beam: Beam width.

    Raises:
        ValueError: The model has no attention, or the caption has no words.
    """
    if not captioner.has_attention:
        raise ValueError("this captioner has no attention, so there are no maps to draw; give a run with attention")
    pixels = captioner.read([picture])
    (found,) = captioner.describe_pixels(pixels, captioner.options.override(beam=beam))
    if not found.words or found.attention is None:
        raise ValueError("the model describes this picture by no word, so there is nothing to draw")
    image = pixels[0].permute(1, 2, 0).numpy()
    image = image[:, :, 0] if image.shape[2] == 1 else image
    framed = boxes if len(boxes) == len(found.words) else ()
    return plot_caption(image, found.words, found.attention, boxes=framed, title=title or found.text)


def _caption(predictor: object, text: str, options: FigureOptions) -> Figure:
    """Describe a picture and draw it."""
    if not isinstance(predictor, Captioner):
        raise ValueError("a figure of kind caption shows where a captioner looks; give a run with task = 'captioning'")
    return caption_figure(predictor, text, title=options.title, beam=options.beam or 1)


def _document(predictor: object, text: str, options: FigureOptions) -> Figure:
    """Classify a text and draw it."""
    if not isinstance(predictor, TextClassifier):
        raise ValueError("a figure of kind document shows what a classifier attends to; give a run that classifies")
    return document_figure(predictor(text, attention=True), title=options.title, scale=options.scale)


def _dialogue(predictor: object, turns: str | Sequence[str], options: Mapping[str, Any]) -> Figure:
    """Reply to a conversation and draw it."""
    if not isinstance(predictor, Chatbot):
        raise ValueError("a figure of kind dialogue shows what a reply attends to; give a run with task = 'chat'")
    return dialogue_figure(predictor, turns, **options)


def _patches(predictor: object, text: str, options: FigureOptions) -> Figure:
    """Classify a picture and draw it."""
    if not isinstance(predictor, ImageClassifier):
        raise ValueError(
            "a figure of kind patches shows what a classifier of pictures attends to; give a run with task = "
            "'image_classification'"
        )
    return patches_figure(predictor, text, title=options.title, scale=options.scale)


def _surprisal(predictor: object, text: str, options: FigureOptions) -> Figure:
    """Score a text and draw it."""
    if not isinstance(predictor, TextGenerator | MaskFiller):
        raise ValueError("a figure of kind surprisal shows the words of a language model; give a run of that task")
    return surprisal_figure(predictor, [text], title=options.title, scale=options.scale)


def _tags(predictor: object, text: str, options: FigureOptions) -> Figure:
    """Tag each line of a text and draw it."""
    if not isinstance(predictor, WordTagger):
        raise ValueError("a figure of kind tags shows the words of a tagger; give a run with task = 'tagging'")
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        raise ValueError("there are no words to tag; give a sentence")
    return tags_figure(predictor(lines), title=options.title, scale=options.scale)


def forecast_figure(
    result: Forecast,
    *,
    truth: NDArray[np.float64] | None = None,
    marks: Mapping[str, Mapping[str, Sequence[int]]] | None = None,
    group: int = 0,
    title: str = "",
) -> Figure:
    """Draw a forecast with the past that was read and, if it has some, attention weights over time.

    Args:
        result: The forecast.
        truth: What really followed: rows by columns.
        marks: For each column, steps of the past and future to mark, by their meaning.
        group: The group of future steps whose attention weights are drawn.
        title: Title of the figure.
    """
    panels, seen, lookback = [], result.attention, len(result.past)
    ends = list(result.quantiles.values())
    for number, column in enumerate(result.columns):
        weights = None if seen is None or not seen.pasts else seen.over_time(lookback, group, number)
        interval = (ends[0][:, number], ends[-1][:, number]) if len(ends) > 1 else None
        follows = None if truth is None else truth[:, number]
        values = result.past[:, number], result.values[:, number]
        panels.append(ForecastPanel(column, *values, interval, follows, weights, (marks or {}).get(column)))
    note = ""
    if seen is not None and seen.pasts:
        first, last = seen.futures[group]
        note = f"shades: attention weights for steps {first + 1} to {last} of the forecast, relative to the largest"
    return draw_forecast(panels, [*result.past_dates, *result.dates], title=title, note=note)


def _forecast(predictor: object, text: str, options: FigureOptions) -> Figure:
    """Forecast a table and draw it."""
    if not isinstance(predictor, Forecaster):
        raise ValueError("a figure of kind forecast shows a table with its next rows; give a run that forecasts")
    result = predictor(text.strip(), attention=predictor.attends)
    return forecast_figure(result, title=options.title)


TEXT_KINDS: Mapping[str, Callable[[object, str, FigureOptions], Figure]] = {
    "document": _document,
    "patches": _patches,
    "surprisal": _surprisal,
    "tags": _tags,
    "forecast": _forecast,
    "caption": _caption,
}
"""Figures of a text or a picture, by name."""
KINDS = (*figures.KINDS, *TEXT_KINDS, "dialogue", "curves")
