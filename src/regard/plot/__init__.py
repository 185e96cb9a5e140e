"""Figures for papers and reports: arrays in, PNG, SVG or PDF out.

Every function returns a matplotlib `Figure` of its own and leaves pyplot's global state alone. Colours are
distinguishable for colour-blind readers, colour bars show the true range, and right-to-left scripts run right to left.
"""

from regard.plot.bars import bars
from regard.plot.beam import BeamNode, beam
from regard.plot.caption import caption
from regard.plot.confusion import confusion
from regard.plot.curves import CurvePanel, Series, curves, growth, lengths
from regard.plot.document import dialogue, document
from regard.plot.fonts import right_to_left, subword_labels
from regard.plot.forecast import ForecastPanel, forecast
from regard.plot.lines import lines
from regard.plot.maps import GoldLinks, HeadNumbers, alignment, heads, positions
from regard.plot.patches import patches
from regard.plot.save import FORMATS, render, save
from regard.plot.words import words

__all__ = [
    "FORMATS",
    "BeamNode",
    "CurvePanel",
    "ForecastPanel",
    "GoldLinks",
    "HeadNumbers",
    "Series",
    "alignment",
    "bars",
    "beam",
    "caption",
    "confusion",
    "curves",
    "dialogue",
    "document",
    "forecast",
    "growth",
    "heads",
    "lengths",
    "lines",
    "patches",
    "positions",
    "render",
    "right_to_left",
    "save",
    "subword_labels",
    "words",
]
