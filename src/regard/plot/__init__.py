"""Figures for papers and reports: arrays in, PNG, SVG or PDF out.

Every function returns a matplotlib `Figure` of its own and leaves pyplot's global state alone. Colours are
distinguishable for colour-blind readers, colour bars show the true range, and right-to-left scripts run right to left.
"""

from regard.plot.beam import BeamNode, beam
from regard.plot.caption import caption
from regard.plot.confusion import confusion
from regard.plot.curves import CurvePanel, Series, curves, growth, lengths
from regard.plot.document import document
from regard.plot.fonts import right_to_left, subword_labels
from regard.plot.lines import lines
from regard.plot.maps import GoldLinks, HeadNumbers, alignment, heads, positions
from regard.plot.save import FORMATS, render, save
from regard.plot.words import words

__all__ = [
    "FORMATS",
    "BeamNode",
    "CurvePanel",
    "GoldLinks",
    "HeadNumbers",
    "Series",
    "alignment",
    "beam",
    "caption",
    "confusion",
    "curves",
    "document",
    "growth",
    "heads",
    "lengths",
    "lines",
    "positions",
    "render",
    "right_to_left",
    "save",
    "subword_labels",
    "words",
]
