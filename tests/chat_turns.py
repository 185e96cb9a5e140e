"""A small chatbot that remembers a name from an earlier turn, trained in seconds."""

from pathlib import Path

from tests.chats import memorise

from regard.data.dialogues import examples
from regard.recipe import parse

NAMES = ("Anna", "Ben", "Carla", "Dan")
GREETING, WELCOME, QUESTION, ANSWER = "My name is {}.", "Nice to meet you.", "What is my name?", "Your name is {}."
UNKNOWN = "I do not know."
DIALOGUES = [
    turns
    for name in NAMES
    for turns in (
        [GREETING.format(name), WELCOME, QUESTION, ANSWER.format(name)],
        [GREETING.format(name), WELCOME, "It rains.", "Yes it does.", QUESTION, ANSWER.format(name)],
        ["Hello!", "Hi there!", GREETING.format(name), WELCOME, QUESTION, ANSWER.format(name)],
    )
]
DIALOGUES += [
    [QUESTION, UNKNOWN],
    ["Hello!", "Hi there!", QUESTION, UNKNOWN],
    ["It rains.", "Yes it does.", QUESTION, UNKNOWN],
]
DIALOGUES += [
    ["Good day.", WELCOME, "It rains.", "Yes it does.", QUESTION, UNKNOWN],
    ["Good day.", WELCOME, QUESTION, UNKNOWN],
]
RECIPE = """
name = "names"
task = "chat"
[data]
train = [{ path = "train.txt" }]
valid = { path = "valid.txt" }
longest = 64
turns = 6
[text]
kind = "word"
size = 35
bytes = false
[model]
kind = "KIND"
"""
TINY = ("model.width=32",)
SETTINGS: dict[str, tuple[str, ...]] = {
    "transformer": (*TINY, "model.inner=64", "model.heads=2", "model.encoder_layers=1", "model.decoder_layers=2"),
    "luong": (*TINY, "model.layers=1"),
    "sutskever": (*TINY, "model.layers=1"),
}
"""Small models by their family: one with several heads, one with a single attention, one with none."""


def train_chatbot(folder: Path, kind: str = "transformer", steps: int = 120, more: tuple[str, ...] = ()) -> Path:
    """Train a chatbot on a dozen dialogues until it knows them; return its folder, with its data in it."""
    folder.mkdir(parents=True)
    for name in ("train.txt", "valid.txt"):
        (folder / name).write_text("\n\n".join("\n".join(turns) for turns in DIALOGUES) + "\n", encoding="utf-8")
    chosen = [f"data.root='{folder}'", "model.dropout=0", *SETTINGS.get(kind, TINY), *more]
    recipe = parse(RECIPE.replace("KIND", kind), chosen)
    pairs = list(dict.fromkeys(pair for turns in DIALOGUES for pair in examples(turns, recipe.data.turns)))
    return memorise(folder, recipe, pairs, steps)
