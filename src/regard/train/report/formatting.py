"""Format numbers, durations and texts for the progress view, estimates and reports."""

from difflib import SequenceMatcher

from regard.train.events import Finished

_END_REASONS = {
    "steps": "all steps are done",
    "patience": "validation no longer improves",
    "stopped": "a signal asked it to stop",
    "time": "the time limit is reached",
}


def format_duration(seconds: float) -> str:
    """Return a duration as `0:07`, `12:30` or `1:02:05`; a dash if it is unknown."""
    if not 0 <= seconds < float("inf"):
        return "–"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def format_count(number: float) -> str:
    """Return a count in three or four digits, such as `980`, `15.3 k`, `4.20 M` or `1.10 G`."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if number >= size:
            unit = 1e3 if letter == "k" else size
            return f"{number / unit:.{1 if number >= 10 * unit else 2}f} {letter}"
    return f"{number:,.0f}"


def has_perplexity(unit: str) -> bool:
    """Return whether the loss is a cross-entropy; that of numbers, whose unit is `values`, is an error."""
    return unit != "values"


def shorten(text: str, length: int) -> str:
    """Cut a text to `length` characters, the last of them an ellipsis."""
    return text if len(text) <= length else text[: length - 1] + "…"


def compare_words(reference: str, output: str) -> list[tuple[str, bool]]:
    """Return the words of an output, each with whether it is part of a longest match with the reference."""
    expected, words = reference.split(), output.split()
    matcher = SequenceMatcher(None, expected, words, autojunk=False)
    compared = [(word, False) for word in words]
    for block in matcher.get_matching_blocks():
        for index in range(block.b, block.b + block.size):
            compared[index] = (words[index], True)
    return compared


def describe_end(finished: Finished, unit: str) -> str:
    """Return why training ended, its time, its units and which weights were saved."""
    saved = f"; saved weights: {finished.scores['weights']}" if "weights" in finished.scores else ""
    return (
        f"stopped at step {finished.step:,} because {_END_REASONS[finished.reason]}: "
        f"{format_duration(finished.seconds)}, {format_count(finished.tokens)} {unit}{saved}"
    )
