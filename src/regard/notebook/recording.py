"""Questions and their answers, kept: what a page needs that has no model to ask."""

import base64
import json
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import parse_qs

from regard.analysis.look import Looker, read_frame

Question = Mapping[str, Any]

BYTES = 64 << 20
"""Answers that are kept of what somebody asked; the oldest go first."""
QUERIES = 48
"""Tokens of a sentence whose numbers are recorded, of one head."""
MANNERS = ("id", "channel")
"""What a question has besides what it asks."""


class Recording:
    """Answers by their questions."""

    def __init__(self, most: int = BYTES) -> None:
        """Keep so many bytes of them."""
        self.most, self.taken = most, 0
        self._answers: OrderedDict[str, tuple[dict[str, Any], list[bytes]]] = OrderedDict()

    def __len__(self) -> int:
        """How many questions were answered."""
        return len(self._answers)

    def keep(self, question: Question, frames: list[bytes]) -> None:
        """Keep an answer; one that is an error is no answer."""
        if not frames or read_frame(frames[-1])[0]["kind"] == "error":
            return
        asked = {name: value for name, value in question.items() if name not in MANNERS}
        key = json.dumps(asked, sort_keys=True)
        self.taken -= sum(map(len, self._answers.pop(key, ({}, []))[1]))
        self._answers[key] = asked, frames
        self.taken += sum(map(len, frames))
        while self.taken > self.most and len(self._answers) > 1:
            _, (_, gone) = self._answers.popitem(last=False)
            self.taken -= sum(map(len, gone))

    def about(self, source: str) -> Iterator[tuple[dict[str, Any], list[bytes]]]:
        """What was asked of one sentence, or of none."""
        return (each for each in self._answers.values() if each[0].get("source", source) == source)


def record(looker: Looker, source: str, state: str) -> Recording:
    """The answers to what the explorer asks of a sentence in all its views, but for what somebody would change."""
    recording = Recording()
    told = {name: values[-1] for name, values in parse_qs(state.removeprefix("#")).items()}

    def ask(question: dict[str, Any]) -> list[dict[str, Any]]:
        named = {**question, "model": told["model"]} if "model" in told and question["kind"] != "models" else question
        frames = list(looker.answer(named))
        recording.keep(named, frames)
        return [read_frame(frame)[0] for frame in frames]

    ask({"kind": "models"})
    ask({"kind": "tokens", "source": source})
    read: dict[str, Any] = {"kind": "read", "source": source, "beam": _number(told, "beam", 1)}
    said = ask(read | ({"target": told["target"]} if told.get("target") else {}))
    ask({"kind": "beam", "source": source, "beam": 5})
    ask({"kind": "positions", "count": 128})
    result = next((message for message in said if message["kind"] == "result"), None)
    if result is not None:
        for question in _sums(source, result, said, told):
            ask(question)
    return recording


def as_json(answers: Iterable[tuple[dict[str, Any], list[bytes]]]) -> str:
    """Recorded answers as JSON that may stand inside a page."""
    table = [
        {"question": question, "frames": [base64.b64encode(frame).decode("ascii") for frame in frames]}
        for question, frames in answers
    ]
    # A page would take `</script>` in a sentence for its own.
    return json.dumps(table, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")


def _sums(
    source: str, result: dict[str, Any], said: list[dict[str, Any]], told: dict[str, str]
) -> Iterator[dict[str, Any]]:
    """The numbers of one head at each token: of the head the state names, else of the one surest of itself."""
    part = told.get("part", "cross")
    heads = [each for message in said if message["kind"] == "heads" for each in message["heads"]]
    mine = [each for each in heads if each["part"] == part]
    if not mine:
        return
    best = max(mine, key=lambda each: float(each["confidence"]))
    if "layer" in told or "head" in told:
        best = {"layer": _number(told, "layer", 1) - 1, "head": _number(told, "head", 1) - 1}
    queries = len(result["source"] if part == "encoder" else result["target"])
    ids = [each["id"] for each in result["target"]]
    for query in range(min(queries, QUERIES)):
        place = {"part": part, "layer": best["layer"], "head": best["head"], "query": query}
        yield {"kind": "maths", "source": source, "target_ids": ids, **place}


def _number(told: dict[str, str], name: str, usual: int) -> int:
    """A number of the state; of several the first."""
    first = told.get(name, "").partition(",")[0]
    return max(1, int(first)) if first.isdecimal() else usual
