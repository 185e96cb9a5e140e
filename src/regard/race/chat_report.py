"""The report of a race of chatbots: what they reply, and whether they use the turns before the last one."""

from collections.abc import Sequence
from html import escape

from matplotlib.figure import Figure

from regard.plot import bars
from regard.race.chat import PERPLEXITIES, ChatResult
from regard.race.summary import COST_COLUMNS, ResultRow, score_column
from regard.train.report import page

PERCENTAGES = {"recalled": "right answers", "gold turn": "attention on the right turn"}
COLUMNS = (
    score_column("recalled", "recalled %"),
    score_column("gold turn", "gold turn %"),
    score_column("gold word", "gold word %"),
    *(score_column(name, digits=3, best="lowest") for name in PERPLEXITIES.values()),
    score_column("BLEU"),
    score_column("exact match", "exact match %"),
    score_column("distinct-1", digits=2),
    score_column("distinct-2", digits=2),
    *COST_COLUMNS,
)
"""The table of results."""
FACTS = (
    ("recalled", "right answers to questions that an earlier turn than the last one answers, letter by letter"),
    ("gold turn, gold word", "of those answers, how often the most attended turn, and word, is the one that decides"),
    ("perplexity", "per word of the right replies, given their histories"),
    ("shuffled, last turn", "the same with the turns before the last one in random order, and without them"),
)
"""What the columns mean."""


def chat_figures(rows: Sequence[ResultRow]) -> dict[str, Figure]:
    """Return the figures by name: answers that need an earlier turn, and perplexity with less and less history."""
    names = [row.name for row in rows]

    def values(score: str) -> list[float | None]:
        return [row.mean(lambda result: result.score(score)) for row in rows]

    recalled = {label: values(score) for score, label in PERCENTAGES.items()}
    history = dict(
        zip(("whole history", "shuffled", "last turn alone"), map(values, PERPLEXITIES.values()), strict=True)
    )
    return {
        "recalled": bars(names, recalled, "questions about earlier turns (%)"),
        "history": bars(names, history, "perplexity per word", logarithmic=True),
    }


def chat_sections(rows: Sequence[ResultRow], figures: dict[str, Figure]) -> list[tuple[str, str]]:
    """Return the sections of the report between the table of results and the learning curves."""
    titles = {"recalled": "Questions about earlier turns", "history": "Perplexity with less and less history"}
    drawn = [
        (title, f"<figure>{page.scrolled(page.picture(figures[name], title, number, wide=True), title)}</figure>")
        for number, (name, title) in enumerate(titles.items(), start=20)
    ]
    return [*drawn, ("Replies", _replies(rows))]


def _replies(rows: Sequence[ResultRow]) -> str:
    """Return the replies of all contenders to the same questions."""
    results = [row.first for row in rows]
    assert all(isinstance(result, ChatResult) for result in results), "all contenders of a race have one task"
    shown = [result.shown for result in results if isinstance(result, ChatResult)]
    parts = []
    for replies in zip(*shown, strict=True):
        first = replies[0]
        history = "<br>".join(escape(turn) for turn in first.history)
        cells = [
            [row.name, reply.reply, "yes" if reply.reply == reply.reference else "no"]
            for row, reply in zip(rows, replies, strict=True)
        ]
        table = page.table(f"The right reply: {first.reference}", ("contender", "reply", "right"), cells)
        parts.append(f"<p>{history}</p>{table}")
    return "".join(parts)
