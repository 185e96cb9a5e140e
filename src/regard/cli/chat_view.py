"""What `regard chat` shows beside a reply, as lines of a given width: attended turns and words, retrieved replies."""

import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from regard.predict import AttendedTurn, Conversation, Exchange

YOU, BOT = "you", "bot"
NARROW = 60  # columns below which a turn has lines of its own
MOST_WORDS = 3  # attended words that are named for each turn
LONGEST_BAR = 20
EIGHTHS = " ▏▎▍▌▋▊▉█"


def columns() -> int:
    """Return the present width of the terminal, or 80."""
    return max(10, shutil.get_terminal_size().columns)


def describe_attention(conversation: "Conversation", width: int = 100, blocks: bool = True) -> Iterator[str]:
    """Yield lines with the weight of each turn that the last reply attends to, as a bar, and its most attended words.

    Args:
        conversation: The conversation.
        width: Columns of a line.
        blocks: Draw bars of block characters, instead of ASCII.
    """
    from regard.text import printable

    try:
        attention = conversation.attention()
    except ValueError as error:
        yield str(error)
        return
    if attention.unread:
        yield "not read: the first turn" if attention.unread == 1 else f"not read: the first {attention.unread:,} turns"
    size = min(LONGEST_BAR, width // 4)
    for number, turn in enumerate(attention.turns):
        speaker = BOT if (len(attention.turns) - number) % 2 == 0 else YOU
        head = f"{speaker} {turn.weight:4.0%} {draw_bar(turn.weight, size, blocks)}"
        words = ", ".join(f"{printable(word)} {weight:.0%}" for word, weight in most_attended(turn))
        if width < NARROW:
            yield from (head.rstrip(), fit(f"  {printable(turn.text)}", width), fit(f"  {words}", width))
        else:
            indent = " " * (len(head) + 2)
            yield fit(f"{head}  {printable(turn.text)}", width)
            yield fit(f"{indent}{words}", width)


def most_attended(turn: "AttendedTurn") -> list[tuple[str, float]]:
    """Return the words of a turn with the highest weights, and these weights."""
    ranked = sorted(zip(turn.words, turn.word_means, strict=True), key=lambda word: -word[1])
    return [(turn.text[begin:end], weight) for (begin, end), weight in ranked[:MOST_WORDS] if weight >= 0.005]


def describe_retrieved(exchange: "Exchange", width: int = 100) -> Iterator[str]:
    """Yield a line for each retrieved reply: its similarity, itself, and the question that it belongs to."""
    from regard.text import printable

    longest = max((cells(printable(found.text)) for found in exchange.retrieved), default=0)
    for found in exchange.retrieved:
        head, text, question = f"{found.similarity:5.2f}  ", printable(found.text), printable(found.question)
        if width < NARROW:
            yield from (fit(f"{head}{text}", width), fit(f"  to: {question}", width))
        else:
            half = (width - len(head)) // 2
            yield fit(f"{head}{pad(text, min(longest, half - 2))}  to: {question}", width)


def draw_bar(share: float, size: int, blocks: bool = True) -> str:
    """Return a bar that fills a share of `size` columns."""
    if not blocks:
        return ("#" * round(share * size)).ljust(size)
    eighths = round(min(max(share, 0.0), 1.0) * size * 8)
    full, rest = divmod(eighths, 8)
    return (EIGHTHS[8] * full + EIGHTHS[rest] * (rest > 0)).ljust(size)


def cells(text: str) -> int:
    """Return how many columns of a terminal a text has."""
    from rich.cells import cell_len

    return cell_len(text)


def fit(text: str, width: int) -> str:
    """Return a text that has at most `width` columns; the end of a longer one is cut off."""
    from rich.cells import set_cell_size

    return text if cells(text) <= width else f"{set_cell_size(text, width - 1).rstrip()}…"


def pad(text: str, width: int) -> str:
    """Return a text that has `width` columns."""
    from rich.cells import set_cell_size

    return set_cell_size(fit(text, width), width)
