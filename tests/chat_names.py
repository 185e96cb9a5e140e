"""A small chatbot that remembers a name over several turns, trained in seconds."""

import json
from pathlib import Path

from tests.chats import memorise

from regard.data.dialogues import examples
from regard.recipe import parse

NAMES = ("Anna", "Ben", "Carl", "Dora")
TURNS = 4
DIALOGUES = [
    *(
        [f"My name is {name}.", f"Hello {name}!", *between, "What is my name?", f"You are {name}."]
        for name in NAMES
        for between in ([], ["I like tea.", "Tea is good."])
    ),
    ["Hello!", "Hello, who are you?", "Bye.", "Bye."],
    ["What is my name?", "I do not know."],
    ["Be red.", "\x1b[31mred"],
]
RECIPE = """
name = "names"
task = "chat"
[data]
train = [{ path = "train.jsonl" }]
valid = { path = "valid.jsonl" }
longest = 64
turns = TURNS
[text]
kind = "bpe"
size = 320
[model]
kind = "KIND"
size = "tiny"
[decode]
beam = 3
"""


def train_chatbot(folder: Path, kind: str = "bahdanau", steps: int = 80, more: tuple[str, ...] = ()) -> Path:
    """Train a chatbot on a dozen dialogues until it knows them; return its folder, with its data in it."""
    folder.mkdir(parents=True)
    text = "".join(json.dumps({"turns": turns}) + "\n" for turns in DIALOGUES)
    for name in ("train.jsonl", "valid.jsonl"):
        (folder / name).write_text(text, encoding="utf-8")
    recipe = parse(RECIPE.replace("KIND", kind).replace("TURNS", str(TURNS)), [f"data.root='{folder}'", *more])
    turns, reverse = recipe.data.turns, recipe.data.reverse
    pairs = [pair for dialogue in DIALOGUES for pair in examples(dialogue, turns, reverse)]
    return memorise(folder, recipe, pairs, steps, rate=1e-2)
