"""`regard tokens`: print the tokens of a line."""

import json
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal

import typer

if TYPE_CHECKING:
    from regard.text import Token, Tokenizer

_MAX_VECTOR = 32  # a longer one-hot vector is shown by the index of its 1
_ISOLATE, _END_ISOLATE = "\u2068", "\u2069"


def tokens(
    tokenizer: str = typer.Argument(
        metavar="RUN_OR_TOKENIZER", help="Folder of a run or a tokenizer, or a .model file of SentencePiece."
    ),
    text: str | None = typer.Argument(None, metavar="TEXT", help="Line of text; default: lines of standard input."),
    side: Literal["source", "target"] = typer.Option("source", help="Tokenizer of the run to use."),
    ids: bool = typer.Option(False, "--ids", help="Print token ids only, one output line per input line."),
    one_hot: bool = typer.Option(True, help="Show the one-hot vector of each token."),
    as_json: bool = typer.Option(False, "--json", help="Print one JSON object per line."),
) -> None:
    """Print the tokens of a line: piece, id, span of characters, and word.

    \b
    regard tokens runs/phrasebook "I can go alone"
    regard tokens runs/phrasebook --side target "أستطيع الذهاب وحيداً"
    regard tokens runs/phrasebook --ids < in.txt > out.ids
    regard tokens joint.model --json "I am a student"
    """
    from regard.text import Tokenizers

    chosen = Tokenizers.load(tokenizer)[side]
    for number, line in enumerate(_lines(text)):
        if ids:
            typer.echo(" ".join(map(str, chosen.encode(line))))
        elif as_json:
            typer.echo(json.dumps(_to_json(chosen, line, one_hot), ensure_ascii=False))
        else:
            if number:
                typer.echo()
            _print_table(list(_rows(chosen, line, one_hot)))


def _lines(text: str | None) -> Iterator[str]:
    """Yield the given line, or the lines of stdin; invalid UTF-8 becomes U+FFFD."""
    if text is not None and text != "-":
        yield text.encode(errors="surrogateescape").decode(errors="replace")
        return
    for line in typer.get_text_stream("stdin", encoding="utf-8", errors="replace"):
        yield line.removesuffix("\n")


def _to_json(tokenizer: "Tokenizer", line: str, one_hot: bool) -> dict[str, object]:
    """Return a line and its tokens as a JSON object."""
    records = [
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
    return {"line": line, "tokens": records}


def _rows(tokenizer: "Tokenizer", line: str, one_hot: bool) -> Iterable[Sequence[str]]:
    """Yield the rows of a line's table, its header first."""
    yield ["token", "id", *(["one-hot"] if one_hot else []), "characters", "text", "word"]
    for token in tokenizer.tokens(line):
        yield [
            _printable(token.piece),
            str(token.id),
            *([_one_hot(token, len(tokenizer))] if one_hot else []),
            f"{token.start}:{token.end}",
            _printable(line[token.start : token.end]),
            "" if token.word is None else str(token.word),
        ]


def _one_hot(token: "Token", size: int) -> str:
    """Return the one-hot vector of a token; a long one as the index of its 1."""
    if size <= _MAX_VECTOR:
        return " ".join("1" if index == token.id else "0" for index in range(size))
    return f"1 at {token.id} of 0..{size - 1}"


def _printable(text: str) -> str:
    """Escape unprintable characters, and isolate right-to-left text, which would reorder the columns of a table."""
    escaped = "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
    if any(unicodedata.bidirectional(char) in ("R", "AL", "AN") for char in escaped):
        return f"{_ISOLATE}{escaped}{_END_ISOLATE}"
    return escaped


def _print_table(rows: Sequence[Sequence[str]]) -> None:
    """Print a table with borders in a terminal, and aligned columns elsewhere."""
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
