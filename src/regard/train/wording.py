"""Numbers, times and sentences as people read them; the live view and the report share them."""

from difflib import SequenceMatcher

from regard.train.events import Finished


def duration(seconds: float) -> str:
    """A time as `0:07`, `12:30` or `1:02:05`; a dash where it is not known."""
    if not 0 <= seconds < float("inf"):
        return "–"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def amount(number: float) -> str:
    """A count in three or four digits, such as `980`, `15.3 k`, `4.20 M` or `1.10 G`."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if number >= size:
            unit = 1e3 if letter == "k" else size
            return f"{number / unit:.{1 if number >= 10 * unit else 2}f} {letter}"
    return f"{number:,.0f}"


def short(text: str, longest: int) -> str:
    """A text of no more letters than that; three dots stand for those left out."""
    return text if len(text) <= longest else text[: longest - 1] + "…"


def marked_words(reference: str, translation: str) -> list[tuple[str, bool]]:
    """The words of a translation, each with whether the reference has it in its place."""
    theirs, ours = reference.split(), translation.split()
    matcher = SequenceMatcher(None, theirs, ours, autojunk=False)
    marked = [(word, False) for word in ours]
    for block in matcher.get_matching_blocks():
        for place in range(block.b, block.b + block.size):
            marked[place] = (ours[place], True)
    return marked


def ending(finished: Finished) -> str:
    """Why and how training ended, in a sentence."""
    reason = {
        "steps": "all steps are done",
        "patience": "it no longer got better",
        "stopped": "it was asked to",
        "time": "its time was up",
    }[finished.reason]
    best = f"; best at step {finished.best_step:,}" if finished.best_step is not None else ""
    return (
        f"stopped at step {finished.step:,} because {reason}: "
        f"{duration(finished.seconds)}, {amount(finished.tokens)} target tokens{best}"
    )
