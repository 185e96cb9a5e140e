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
    score_column("recall@1 of 10"),
    score_column("recall@1 of 1,000"),
    *COST_COLUMNS,
)
"""The table of results."""
FACTS = (
    ("recalled", "right answers to questions that an earlier turn than the last one answers, letter by letter"),
    ("gold turn, gold word", "of those answers, how often the most attended turn, and word, is the one that decides"),
    (
        "recall@1",
        "how often the right reply is the first of 10, and of 1,000, or of all distinct ones if they are fewer",
    ),
    ("perplexity", "per word of the right replies, given their histories"),
    ("shuffled, last turn", "the same with the turns before the last one in random order, and without them"),
)
"""What the columns mean."""


def chat_figures(rows: Sequence[ResultRow]) -> dict[str, Figure]:
    """Return the figures by name: answers that need an earlier turn, and perplexity with less and less history."""
    names = [row.name for row in rows]
    generative = [row for row in rows if row.first.score(PERPLEXITIES["full"]) is not None]

    def values(score: str, some: Sequence[ResultRow]) -> list[float | None]:
        return [row.mean(lambda result: result.score(score)) for row in some]

    recalled = {label: values(score, rows) for score, label in PERCENTAGES.items()}
    figures = {"recalled": bars(names, recalled, "questions about earlier turns (%)")}
    if generative:  # retrievers have no perplexity
        contexts = zip(("whole history", "shuffled", "last turn alone"), PERPLEXITIES.values(), strict=True)
        history = {context: values(score, generative) for context, score in contexts}
        written = [row.name for row in generative]
        figures["history"] = bars(written, history, "perplexity per word", logarithmic=True)
    return figures


def chat_sections(rows: Sequence[ResultRow], figures: dict[str, Figure]) -> list[tuple[str, str]]:
    """Return the sections of the report between the table of results and the learning curves."""
    titles = {"recalled": "Questions about earlier turns", "history": "Perplexity with less and less history"}
    drawn = [
        (title, f"<figure>{page.scrolled(page.picture(figures[name], title, number, wide=True), title)}</figure>")
        for number, (name, title) in enumerate(titles.items(), start=20)
        if name in figures
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
