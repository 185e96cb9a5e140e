"""The shortest way to ask."""

from typing import Any

from tests.analysis.look.conftest import SOURCE

from regard.analysis.look import Looker, read_frame

Frame = tuple[dict[str, Any], dict[str, Any]]


def ask(looker: Looker, kind: str, **told: Any) -> list[Frame]:
    """All frames of an answer, which is none of an error."""
    found = [read_frame(frame) for frame in looker.answer({"id": 1, "kind": kind, **told})]
    assert found[-1][0]["kind"] != "error", found[-1][0]["message"]
    return found


def one(looker: Looker, kind: str, **told: Any) -> Frame:
    """The frame of an answer that has one."""
    (found,) = ask(looker, kind, **told)
    return found


def read(looker: Looker, model: str, source: str = SOURCE, **told: Any) -> list[Frame]:
    """A sentence read."""
    return ask(looker, "read", model=model, source=source, **told)


def result(frames: list[Frame]) -> dict[str, Any]:
    """What is known of a translation."""
    (found,) = [message for message, _ in frames if message["kind"] == "result"]
    return found


def target_ids(frames: list[Frame]) -> list[int]:
    """Ids of a translation, its end the last."""
    return [token["id"] for token in result(frames)["target"]]


def tables(frames: list[Frame]) -> dict[tuple[str, int], Any]:
    """Weights as shades, by part and layer."""
    return {
        (message["part"], message["layer"]): arrays["weights"]
        for message, arrays in frames
        if message["kind"] == "attention"
    }


def fault(looker: Looker, question: Any) -> str:
    """What is said to a question that cannot be answered."""
    (frame,) = list(looker.answer(question))
    message, arrays = read_frame(frame)
    assert (message["kind"], message["last"], arrays) == ("error", True, {})
    return str(message["message"])
