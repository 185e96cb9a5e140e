"""`regard smalltalk`: print generated dialogues, with the turns that decide their replies."""

import json
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from regard.data.smalltalk import Dialogue, Evidence


def smalltalk(
    count: Annotated[int, typer.Option("-n", "--count", min=0, help="Number of distinct dialogues.")] = 5,
    split: Annotated[
        Literal["train", "valid", "test"],
        typer.Option(help="No question about an earlier turn is in two splits with the turns it depends on."),
    ] = "train",
    seed: Annotated[int, typer.Option(help="Random seed; it gives the same dialogues on every machine.")] = 0,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object per dialogue, which regard train reads.")
    ] = False,
) -> None:
    """Print dialogues from the built-in grammar, in which replies depend on earlier turns.

    \b
    regard smalltalk -n 5
    regard smalltalk -n 20000 --json > train.jsonl

    An asterisk marks a reply that depends on a turn before the last one; behind it stand the number of that turn and
    the words that come from there.
    """
    from regard.data.smalltalk import dialogues

    for number, dialogue in enumerate(dialogues(split, count, seed)):
        if as_json:
            typer.echo(json.dumps(_to_json(dialogue), ensure_ascii=False))
        else:
            typer.echo("\n".join([*([""] if number else []), *_to_text(dialogue)]))


def _to_text(dialogue: "Dialogue") -> list[str]:
    """Return the lines that show a dialogue."""
    from regard.data.smalltalk import SPEAKERS

    lines = []
    for number, (turn, evidence) in enumerate(zip(dialogue.turns, dialogue.evidence, strict=True)):
        is_recalled = dialogue.is_recalled(number)
        line = f"{number + 1:>2} {SPEAKERS[number % 2]:<4} {'*' if is_recalled else ' '} {turn}"
        if is_recalled and evidence is not None:
            words = ", ".join(dialogue.turns[evidence.turn][begin:end] for begin, end in evidence.words)
            line += f"  <- {evidence.turn + 1}: {words} ({evidence.kind}, {evidence.form})"
        lines.append(line)
    return lines


def _to_json(dialogue: "Dialogue") -> dict[str, object]:
    """Return a dialogue as a JSON object that `regard train` reads as a corpus of dialogues."""
    from regard.data.smalltalk import SPEAKERS

    turns = [{"text": turn, "speaker": SPEAKERS[number % 2]} for number, turn in enumerate(dialogue.turns)]
    return {"turns": turns, "evidence": [_evidence_to_json(evidence) for evidence in dialogue.evidence]}


def _evidence_to_json(evidence: "Evidence | None") -> dict[str, object] | None:
    """Return what a reply depends on as a JSON object; turns are counted from 0."""
    if evidence is None:
        return None
    return {
        "kind": evidence.kind,
        "form": evidence.form,
        "turn": evidence.turn,
        "words": [list(span) for span in evidence.words],
        "reply_words": [list(span) for span in evidence.reply_words],
    }
