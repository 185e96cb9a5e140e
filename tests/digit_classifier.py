"""A small classifier of drawn digits, trained in seconds."""

from pathlib import Path

from regard.recipe import Recipe, parse
from regard.train.loop import train

RECIPE = """
name = "digits"
task = "image_classification"
[data]
train = [{ kind = "digits", count = 300 }]
valid = { kind = "digits", count = 40, split = "valid" }
[image]
size = 14
channels = 1
[image_classification]
patch = 2
[model]
width = 32
inner = 48
heads = 2
encoder_layers = 2
activation = "gelu"
dropout = 0.0
[train]
steps = 50
tokens = 1600
every = 50
optimiser = "muon"
rate = 0.01
warmup = 5
schedule = "cosine"
smoothing = 0.0
precision = "float32"
"""


def digit_recipe(*overrides: str) -> Recipe:
    """Return the recipe, with `key=value` overrides."""
    return parse(RECIPE, list(overrides))


def train_digits(folder: Path, *overrides: str) -> Path:
    """Train a classifier in a folder and return the folder."""
    list(train(digit_recipe(*overrides), folder, "cpu"))
    return folder
