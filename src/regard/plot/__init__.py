"""Arrays in, figures for papers and reports out: PNG, SVG or PDF.

Every function gives a matplotlib `Figure` of its own; nothing here touches pyplot's global state. Colours can be told
apart by colour-blind readers, colour bars show the true range, and right-to-left scripts run right to left.
"""

from regard.plot.alignment import Links, alignment
from regard.plot.beam import Branch, beam
from regard.plot.curves import Panel, Series, curves
from regard.plot.growth import Growth, growth
from regard.plot.heads import Numbers, heads
from regard.plot.lengths import Quality, lengths
from regard.plot.lettering import piece_labels, right_to_left
from regard.plot.lines import lines
from regard.plot.positions import positions
from regard.plot.save import FORMATS, render, save

__all__ = [
    "FORMATS",
    "Branch",
    "Growth",
    "Links",
    "Numbers",
    "Panel",
    "Quality",
    "Series",
    "alignment",
    "beam",
    "curves",
    "growth",
    "heads",
    "lengths",
    "lines",
    "piece_labels",
    "positions",
    "render",
    "right_to_left",
    "save",
]
