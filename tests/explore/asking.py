"""Ask an explorer, and read its answers."""

from typing import Any

from tests.explore.conftest import SOURCE

from regard.explore import Explorer, read_frame

Frame = tuple[dict[str, Any], dict[str, Any]]


def ask(explorer: Explorer, kind: str, **options: Any) -> list[Frame]:
    """Return all frames of an answer, which must not be an error."""
    answer = [read_frame(frame) for frame in explorer.answer({"id": 1, "kind": kind, **options})]
    assert answer[-1][0]["kind"] != "error", answer[-1][0]["message"]
    return answer


def one(explorer: Explorer, kind: str, **options: Any) -> Frame:
    """Return the only frame of an answer."""
    (answer,) = ask(explorer, kind, **options)
    return answer


def read(explorer: Explorer, model: str, source: str = SOURCE, **options: Any) -> list[Frame]:
    """Ask a translator to read a sentence."""
    return ask(explorer, "read", model=model, source=source, **options)


def result(frames: list[Frame]) -> dict[str, Any]:
    """Return the message with the output and its scores."""
    (answer,) = [message for message, _ in frames if message["kind"] == "result"]
    return answer


def target_ids(frames: list[Frame]) -> list[int]:
    """Return the ids of the output, the end symbol included."""
    return [token["id"] for token in result(frames)["target"]]


def tables(frames: list[Frame]) -> dict[tuple[str, int], Any]:
    """Return the quantized weights by part and layer."""
    return {
        (message["part"], message["layer"]): arrays["weights"]
        for message, arrays in frames
        if message["kind"] == "attention"
    }


def fault(explorer: Explorer, question: Any) -> str:
    """Return the error message of a question that cannot be answered."""
    (frame,) = list(explorer.answer(question))
    message, arrays = read_frame(frame)
    assert (message["kind"], message["last"], arrays) == ("error", True, {})
    return str(message["message"])
