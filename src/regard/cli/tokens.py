"""`regard tokens`: see what a line becomes, token by token."""

import json
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal

import typer

if TYPE_CHECKING:
    from regard.text import Token, Tokenizer

_SPELT_OUT = 32  # a one-hot vector of more numbers than this is told by the place of its 1
_ISOLATE, _END_ISOLATE = "\u2068", "\u2069"


def tokens(
    tokenizer: str = typer.Argument(metavar="RUN_OR_TOKENIZER", help="A run, a tokenizer folder, or a .model file."),
    text: str | None = typer.Argument(None, help="A line of text; - or nothing reads lines from stdin."),
    side: Literal["source", "target"] = typer.Option("source", help="Whose vocabulary."),
    ids: bool = typer.Option(False, "--ids", help="Print ids only, a line for a line."),
    one_hot: bool = typer.Option(True, help="Show where the 1 of each token's one-hot vector stands."),
    as_json: bool = typer.Option(False, "--json", help="Print one JSON object a line."),
) -> None:
    """Show the tokens of a line: piece, id, its characters in the line, and its word.

    \b
    regard tokens runs/phrasebook "I can go alone"
    regard tokens runs/phrasebook --side target "أستطيع الذهاب وحيداً"
    regard tokens runs/phrasebook --ids < in.txt > out.ids
    regard tokens joint.model --json "I am a student"
    """
    from regard.text import Tokenizers

    both = Tokenizers.load(tokenizer)
    chosen = both.source if side == "source" else both.target
    for at, line in enumerate(_lines(text)):
        if ids:
            typer.echo(" ".join(map(str, chosen.encode(line))))
        elif as_json:
            typer.echo(json.dumps(_record(chosen, line, one_hot), ensure_ascii=False))
        else:
            if at:
                typer.echo()
            _print_table(list(_rows(chosen, line, one_hot)))


def _lines(text: str | None) -> Iterator[str]:
    """The line that was given, or those of stdin; bytes that are not UTF-8 show as U+FFFD."""
    if text is not None and text != "-":
        yield text.encode(errors="surrogateescape").decode(errors="replace")
        return
    for line in typer.get_text_stream("stdin", encoding="utf-8", errors="replace"):
        yield line.removesuffix("\n")


def _record(tokenizer: "Tokenizer", line: str, one_hot: bool) -> dict[str, object]:
    """One line as JSON has it."""
    found = [
        {
            "piece": token.piece,
            "id": token.id,
            "start": token.start,
            "end": token.end,
            "text": line[token.start : token.end],
            "word": token.word,
            **({"one_hot": {"index": token.id, "size": len(tokenizer)}} if one_hot else {}),
        }
        for token in tokenizer.tokens(line)
    ]
    return {"line": line, "tokens": found}


def _rows(tokenizer: "Tokenizer", line: str, one_hot: bool) -> Iterable[Sequence[str]]:
    """The table of one line, its head first."""
    yield ["token", "id", *(["one-hot"] if one_hot else []), "characters", "text", "word"]
    for token in tokenizer.tokens(line):
        yield [
            _shown(token.piece),
            str(token.id),
            *([_one_hot(token, len(tokenizer))] if one_hot else []),
            f"{token.start}:{token.end}",
            _shown(line[token.start : token.end]),
            "" if token.word is None else str(token.word),
        ]


def _one_hot(token: "Token", size: int) -> str:
    """The vector itself where it is short, else where its 1 stands."""
    if size <= _SPELT_OUT:
        return " ".join("1" if at == token.id else "0" for at in range(size))
    return f"1 at {token.id} of 0..{size - 1}"


def _shown(text: str) -> str:
    """Text that keeps a table in shape: the unseen is escaped, and what runs right to left stays in its cell."""
    seen = "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)
    if any(unicodedata.bidirectional(each) in ("R", "AL", "AN") for each in seen):
        return f"{_ISOLATE}{seen}{_END_ISOLATE}"
    return seen


def _print_table(rows: Sequence[Sequence[str]]) -> None:
    """A drawn table in a terminal, aligned columns elsewhere."""
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        table = Table(*rows[0])
        for row in rows[1:]:
            table.add_row(*map(Text, row))
        Console().print(table)
        return
    from rich.cells import cell_len

    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [cell + " " * (width - cell_len(cell)) for cell, width in zip(row, widths, strict=True)]
        typer.echo("  ".join(cells).rstrip())
