"""Quality against the length of the source: the picture with which attention was introduced (Bahdanau et al. 2015,
figure 2; Luong et al. 2015, figure 3).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure

from regard.plot import style
from regard.plot.lettering import families


@dataclass(frozen=True)
class Quality:
    """One system's score in each group of lengths."""

    name: str
    scores: Sequence[float]


def lengths(
    labels: Sequence[str], middles: Sequence[float], systems: Sequence[Quality], score: str, *, title: str = ""
) -> Figure:
    """A line for each system over groups of sentences, which stand at their mean length and are told by label."""
    if not systems or not labels:
        raise ValueError("there is no system or no group to draw; give at least one of each")
    for each in systems:
        if not len(each.scores) == len(labels) == len(middles):
            raise ValueError(f"{each.name} has {len(each.scores)} scores for {len(labels)} groups of lengths")
    figure = style.sheet(5.4, 3.4)
    axes = figure.add_subplot()
    style.plain_axes(axes)
    fonts = families([title, *(each.name for each in systems)])
    for number, each in enumerate(systems):
        axes.plot(
            middles,
            each.scores,
            color=style.COLOURS[number % len(style.COLOURS)],
            linestyle=style.STROKES[number % len(style.STROKES)],
            linewidth=1.8,
            marker="o",
            markersize=4,
            label=each.name,
        )
    axes.set_xticks(list(middles), labels=list(labels))
    axes.set_ylim(bottom=0)
    axes.set_xlabel("source words", fontsize=8.5, color=style.INK)
    axes.set_ylabel(score, fontsize=8.5, color=style.INK)
    legend = figure.legend(loc="outside right upper", fontsize=8, frameon=False, labelcolor=style.INK)
    for text in legend.get_texts():
        text.set_fontfamily(fonts)
    if title:
        figure.suptitle(title, fontsize=10, color=style.INK, fontfamily=fonts)
    return figure
