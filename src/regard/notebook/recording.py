"""Record the explorer's questions and answers, for a page that has no model to ask."""

import base64
import json
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, get_args
from urllib.parse import parse_qs

from regard.explore import Explorer, read_frame
from regard.explore.chat import InspectedChatbot
from regard.explore.classification import InspectedClassifier
from regard.explore.questions import InputField

RawQuestion = Mapping[str, Any]
Asker = Callable[[dict[str, Any]], list[dict[str, Any]]]
"""Asks a question, records the answer and returns its messages."""

MAX_BYTES = 64 << 20
"""Recorded answers of one widget; the oldest are dropped."""
MAX_QUERIES = 48
"""Tokens of a sentence for which the computation of one head is recorded."""
IGNORED = ("id", "channel")
"""Fields of a question that do not change its answer."""


class Recording:
    """Answers by their questions, bounded in bytes."""

    def __init__(self, most: int = MAX_BYTES) -> None:
        """Keep at most this many bytes of answers."""
        self.most, self.size = most, 0
        self._answers: OrderedDict[str, tuple[dict[str, Any], list[bytes]]] = OrderedDict()

    def __len__(self) -> int:
        """Return the number of recorded answers."""
        return len(self._answers)

    def add(self, question: RawQuestion, frames: list[bytes]) -> None:
        """Record an answer; errors are not recorded."""
        if not frames or read_frame(frames[-1])[0]["kind"] == "error":
            return
        recorded = {name: value for name, value in question.items() if name not in IGNORED}
        key = json.dumps(recorded, sort_keys=True)
        self.size -= sum(map(len, self._answers.pop(key, ({}, []))[1]))
        self._answers[key] = recorded, frames
        self.size += sum(map(len, frames))
        while self.size > self.most and len(self._answers) > 1:
            _, (_, dropped) = self._answers.popitem(last=False)
            self.size -= sum(map(len, dropped))

    def about(self, text: str) -> Iterator[tuple[dict[str, Any], list[bytes]]]:
        """Yield the questions about one input text, and those about none, with their answers."""
        for question, frames in self._answers.values():
            texts = [as_text(question[field]) for field in get_args(InputField) if field in question]
            if not texts or text in texts:
                yield question, frames


def record(explorer: Explorer, text: str, state: str) -> Recording:
    """Ask everything that the explorer's views ask about a text, without changes, and record the answers."""
    recording = Recording()
    options = {name: values[-1] for name, values in parse_qs(state.removeprefix("#")).items()}
    model = explorer.model(options.get("model"))
    given: dict[str, Any] = {model.input_field: text}

    def ask(question: dict[str, Any]) -> list[dict[str, Any]]:
        named = (
            {**question, "model": options["model"]} if "model" in options and question["kind"] != "models" else question
        )
        frames = list(explorer.answer(named))
        recording.add(named, frames)
        return [read_frame(frame)[0] for frame in frames]

    ask({"kind": "models"})
    if isinstance(model, InspectedClassifier):
        ask({"kind": "classify", **given})
        ask({"kind": "effects", **given})
        return recording
    if isinstance(model, InspectedChatbot):
        _record_reply(ask, text.split("\n"), options)
        return recording
    ask({"kind": "tokens", **given})
    read: dict[str, Any] = {"kind": "read", **given, "beam": _number(options, "beam", 1)}
    messages = ask(read | ({"target": options["target"]} if options.get("target") else {}))
    ask({"kind": "beam", **given, "beam": 5})
    ask({"kind": "positions", "count": 128})
    result = next((message for message in messages if message["kind"] == "result"), None)
    if result is not None:
        for question in _maths_questions(given, result, messages, options):
            ask(question)
    return recording


def _record_reply(ask: Asker, history: list[str], options: dict[str, str]) -> None:
    """Ask for the reply to a conversation with the options of a state, and for the effects of its turns and words."""
    given: dict[str, Any] = {"history": history}
    if options.get("turns", "").isdecimal():
        given["turns"] = _number(options, "turns", 1)
    chosen: dict[str, Any] = {"beam": _number(options, "beam", 1)}
    if options.get("target"):
        chosen = {"reply": options["target"]}
    elif options.get("seed", "").isdecimal():
        chosen = {"seed": int(options["seed"]), "temperature": float(options.get("temperature", "1"))}
    replies = ask({"kind": "reply", **given, **chosen})
    if replies[-1]["kind"] == "reply":
        ask({"kind": "reply_effects", **given, "reply": replies[-1]["text"]})


def as_text(given: str | list[str]) -> str:
    """Return an input text; a conversation has a turn on each line."""
    return given if isinstance(given, str) else "\n".join(given)


def to_json(answers: Iterable[tuple[dict[str, Any], list[bytes]]]) -> str:
    """Encode recorded answers as JSON that is safe inside a `<script>` element."""
    table = [
        {"question": question, "frames": [base64.b64encode(frame).decode("ascii") for frame in frames]}
        for question, frames in answers
    ]
    # A browser would end the element at `</script>` inside a text.
    return json.dumps(table, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")


def _maths_questions(
    given: dict[str, str], result: dict[str, Any], messages: list[dict[str, Any]], options: dict[str, str]
) -> Iterator[dict[str, Any]]:
    """Yield a question for each token about one head: the head of the state, or the most confident one."""
    heads = [head for message in messages if message["kind"] == "heads" for head in message["heads"]]
    parts = {head["part"] for head in heads}
    part = options.get("part", "cross" if "cross" in parts else "decoder")
    candidates = [head for head in heads if head["part"] == part]
    if not candidates:
        return
    best = max(candidates, key=lambda head: float(head["confidence"]))
    if "layer" in options or "head" in options:
        best = {"layer": _number(options, "layer", 1) - 1, "head": _number(options, "head", 1) - 1}
    queries = len(result["source"] if part == "encoder" else result["target"])
    ids = [token["id"] for token in result["target"]]
    for query in range(min(queries, MAX_QUERIES)):
        place = {"part": part, "layer": best["layer"], "head": best["head"], "query": query}
        yield {"kind": "maths", **given, "target_ids": ids, **place}


def _number(options: dict[str, str], name: str, default: int) -> int:
    """Return a number of the state; the first one of a list."""
    first = options.get(name, "").partition(",")[0]
    return max(1, int(first)) if first.isdecimal() else default
