"""Explore trained models: questions in, frames of numbers out, for a page, a notebook or a script.

    explorer = Explorer({"de": regard.load("runs/phrasebook")})
    for frame in explorer.answer({"id": 1, "kind": "read", "source": "I can go alone"}):
        message, arrays = read_frame(frame)

Nothing here needs a web library. docs/look-protocol.md describes the questions and the frames.
"""

from regard.explore.explorer import ExploredPredictor, Explorer
from regard.explore.frames import read_frame, write_frame
from regard.explore.info import ModelInfo, model_info
from regard.explore.model import Inspection, inspect

__all__ = [
    "ExploredPredictor",
    "Explorer",
    "Inspection",
    "ModelInfo",
    "inspect",
    "model_info",
    "read_frame",
    "write_frame",
]
