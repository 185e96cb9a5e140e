"""Untrained runs of the tasks that predict something about a text in one pass, and of chat."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from regard.bundle import save_bundle
from regard.data.fields import learn_fields
from regard.recipe import parse
from regard.tasks import make_task

TEXTS = ["the red cat sat here", "a blue dog ran there. it was late!", "", "one"]
TEXT = "text.kind = 'word'\ntext.size = 60\ntext.bytes = false\n"
MODEL = TEXT + "model.size = 'tiny'\nmodel.encoder_layers = 1\nmodel.width = 32\nmodel.inner = 32\n"
RUNS: Mapping[str, tuple[str, Sequence[tuple[str, ...]]]] = {
    "labels": (
        "task = 'classification'\nclassification.pooling = 'attention'\n" + MODEL,
        [(text, label) for text, label in zip(TEXTS, "abab", strict=True)],
    ),
    "tags": (
        "task = 'tagging'\n" + MODEL,
        [(text, " ".join("DN"[len(word) % 2] for word in text.split())) for text in TEXTS],
    ),
    "masks": (
        "task = 'language_model'\nlanguage_model.objective = 'masked'\n" + MODEL,
        [(text,) for text in TEXTS],
    ),
    "chats": (
        "task = 'chat'\ndata.turns = 4\ndata.longest = 40\n"
        + MODEL.replace("bytes = false", "bytes = true\ntext.joint = true").replace("size = 60", "size = 400")
        + "model.decoder_layers = 1\n",
        [("\t".join(TEXTS[:2] + TEXTS[3:]), text) for text in ("the dog ran", "Zoë & Ötzi: 10 €", "a cat?", "one two")],
    ),
}


def save_untrained_runs(folder: Path) -> dict[str, Path]:
    """Write a run of each task into a folder, and return their folders."""
    for name, (text, records) in RUNS.items():
        recipe = parse(text + "data.train = [{ path = 'train.tsv' }]")
        task = make_task(recipe)
        torch.manual_seed(1)
        fields = learn_fields(task.kinds, records, recipe, task.multiline)
        save_bundle(folder / name, recipe, fields, task.build(fields.sizes), {})
    return {name: folder / name for name in RUNS}
