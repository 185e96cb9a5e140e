"""A trained model under observation: a question in, frames out, for a page, a notebook or a script to draw.

    looker = Looker({"de": regard.load("runs/phrasebook")})
    for frame in looker.answer({"id": 1, "kind": "read", "source": "I can go alone"}):
        message, arrays = read_frame(frame)

No web library is needed here.
"""

from regard.analysis.look.about import About, about
from regard.analysis.look.frames import read_frame, write_frame
from regard.analysis.look.looker import Looker
from regard.analysis.look.reading import Reading, read_pair

__all__ = ["About", "Looker", "Reading", "about", "read_frame", "read_pair", "write_frame"]
