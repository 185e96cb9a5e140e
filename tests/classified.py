"""A small classifier that names the colour in a text, trained in a second."""

from pathlib import Path

import numpy as np
import torch

from regard.bundle import save_bundle
from regard.data.fields import learn_fields
from regard.recipe import parse
from regard.tasks.classification import ClassificationTask

CLASSES = ("blue", "green", "red")
SENTENCES = [
    (f"{start} {colour} {end}", colour)
    for colour in CLASSES
    for start, end in (
        ("A", "cat. It runs."),
        ("The cat sees a", "dog. It runs."),
        ("It runs. The dog is", "now."),
        ("No", "dog sees the cat. A cat runs. It is here."),
    )
]
RECIPE = """
name = "colours"
task = "classification"
[data]
train = [{ path = "train.tsv" }]
valid = { path = "valid.tsv" }
longest = 64
[text]
kind = "word"
size = 80
bytes = false
[model]
kind = "KIND"
size = "tiny"
"""


def train_classifier(
    folder: Path, kind: str, pooling: str, several: bool = False, more: tuple[str, ...] = (), steps: int = 60
) -> Path:
    """Train a classifier on a dozen sentences until it knows them; return its folder, with its data in it."""
    folder.mkdir(parents=True)
    pairs = SENTENCES
    if several:
        pairs = [*SENTENCES, ("A red cat. A blue dog.", "red,blue"), ("A cat.", ""), ("It runs here now.", "")]
    text = "".join(f"{text}\t{label}\n" for text, label in pairs)
    for name in ("train.tsv", "valid.tsv"):
        (folder / name).write_text(text, encoding="utf-8")
    chosen = [f"classification.pooling={pooling}", f"classification.several={str(several).lower()}"]
    recipe = parse(RECIPE.replace("KIND", kind), [f"data.root='{folder}'", *chosen, *more])
    task = ClassificationTask(recipe)
    fields = learn_fields(task.kinds, pairs, recipe)
    torch.manual_seed(1)
    model = task.build(fields.sizes)
    columns = dict(zip(fields, map(list, zip(*pairs, strict=True)), strict=True))
    batch = task.collate(fields.encode(columns), np.arange(len(pairs)))
    optimiser = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(steps):
        optimiser.zero_grad()
        torch.autograd.backward(task.loss(model, batch) / batch.units)
        optimiser.step()
    save_bundle(folder, recipe, fields, model, {})
    return folder
