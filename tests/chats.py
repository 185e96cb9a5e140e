"""Some dialogues in which a reply depends on an earlier turn, and a small model that has memorised them."""

from copy import copy
from pathlib import Path

import numpy as np
import torch

from regard.bundle import save_bundle
from regard.data.corpus import Reader
from regard.data.fields import learn_fields
from regard.predict import Chatbot
from regard.recipe import Recipe, parse
from regard.tasks.chat import ChatTask

DIALOGUES = [
    [f"My name is {name}.", f"Hello {name}.", "What is my name?", f"Your name is {name}."]
    for name in ("Anna", "Ben", "Cleo")
] + [["How are you?", "Fine, thanks.", "Good.", "Yes."], ["Where is the cat?", "At home."]]

RECIPE = """
task = "chat"
[data]
root = "{root}"
train = [{{ path = "train.txt" }}]
longest = 60
[text]
size = 330
[model]
width = 32
inner = 64
heads = 2
encoder_layers = 1
decoder_layers = 2
dropout = 0.0
[decode]
beam = 3
"""


def write_dialogues(folder: Path) -> None:
    """Write the dialogues into the file `train.txt` of a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    text = "\n".join("".join(f"{turn}\n" for turn in dialogue) for dialogue in DIALOGUES)
    (folder / "train.txt").write_text(text, encoding="utf-8")


def chat_recipe(root: Path, *overrides: str) -> Recipe:
    """Write the dialogues into a folder, and return a recipe for them."""
    write_dialogues(root)
    return parse(RECIPE.format(root=root), overrides, name="chat")


def train_chat(folder: Path, *overrides: str, steps: int = 60) -> Path:
    """Train a model on the dialogues until it knows them, and return its folder."""
    recipe = chat_recipe(folder.with_name(f"{folder.name}-data"), *overrides)
    records = Reader.of(recipe.data, ("history", "reply")).records(recipe.data.train[0])
    return memorise(folder, recipe, [(history, reply) for history, reply in records], steps)


def memorise(folder: Path, recipe: Recipe, pairs: list[tuple[str, str]], steps: int, rate: float = 5e-3) -> Path:
    """Train a model on histories and replies, all in one batch, and return its folder."""
    task = ChatTask(recipe)
    fields = learn_fields(task.kinds, pairs, recipe)
    torch.manual_seed(1)
    model = task.build(fields.sizes)
    columns = dict(zip(fields, map(list, zip(*pairs, strict=True)), strict=True))
    batch = task.collate(fields.encode(columns), np.arange(len(pairs)))
    optimiser = torch.optim.Adam(model.parameters(), rate)
    for _ in range(steps):
        optimiser.zero_grad()
        torch.autograd.backward(task.loss(model, batch) / batch.units)
        optimiser.step()
    save_bundle(folder, recipe, fields, model, {})
    return folder


def reversed_chatbot(chatbot: Chatbot) -> Chatbot:
    """Return a chatbot that passes for one that was trained with `data.reverse = true`."""
    other = copy(chatbot)
    other.is_reverse = True
    return other
