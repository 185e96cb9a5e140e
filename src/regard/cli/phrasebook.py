"""`regard phrasebook`: print sentence pairs from the built-in grammar, with gold alignments and grammatical links."""

import json
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from regard.data.phrasebook import Phrase, Relation


def phrasebook(
    to: Annotated[str, typer.Option(help="Target language: de, fr, it or ar; the source is English.")] = "de",
    count: Annotated[int, typer.Option("-n", "--count", min=0, help="Number of distinct pairs.")] = 5,
    split: Annotated[
        str, typer.Option(help="train, valid, test, novel (combinations of words not in train) or lectures.")
    ] = "train",
    seed: Annotated[int, typer.Option(help="Random seed; it gives the same pairs on every machine.")] = 0,
    alignments: Annotated[bool, typer.Option("--alignments", help="Print word alignments.")] = False,
    relations: Annotated[bool, typer.Option("--relations", help="Print grammatical links.")] = False,
    tsv: Annotated[bool, typer.Option("--tsv", help="Print one pair per line: source, tab, target.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per pair, with all links.")] = False,
) -> None:
    """Print sentence pairs from the built-in grammar.

    \b
    regard phrasebook --to de -n 5 --alignments
    regard phrasebook --to ar --split novel --relations
    regard phrasebook --to fr -n 200000 --tsv > train.en-fr.tsv
    regard phrasebook --to it --split lectures --json

    English starts in lower case, its translation with a capital; no sentence ends in a full stop.
    In an alignment, 0-1 is a sure link from the first source word to the second target word, 0p1 a possible one.
    """
    from itertools import islice

    from regard.data.phrasebook import lectures, phrases

    if tsv and as_json:
        raise typer.BadParameter("--tsv and --json exclude each other; choose one")
    pairs = islice(lectures(to), count) if split == "lectures" else phrases(to, split, count, seed)
    for number, phrase in enumerate(pairs):
        if tsv:
            typer.echo(f"{phrase.source}\t{phrase.target}")
        elif as_json:
            typer.echo(json.dumps(_to_json(phrase), ensure_ascii=False))
        else:
            typer.echo("\n".join([*([""] if number else []), *_to_text(phrase, to, alignments, relations)]))


def _to_text(phrase: "Phrase", to: str, alignments: bool, relations: bool) -> list[str]:
    """Return the lines that show a pair."""
    source, target = phrase.source.split(), phrase.target.split()
    lines = [f"en  {phrase.source}", f"{to}  {phrase.target}"]
    if alignments:
        links = [f"{source[link.source]}{'=' if link.sure else '~'}{target[link.target]}" for link in phrase.alignment]
        lines += [f"    {phrase.pharaoh()}", f"    {'  '.join(links)}"]
    if relations:
        lines += [f"    en {_relation_text(relation, source)}" for relation in phrase.relations]
        lines += [f"    {to} {_relation_text(relation, target)}" for relation in phrase.target_relations]
    return lines


def _relation_text(relation: "Relation", words: list[str]) -> str:
    """Return a grammatical link with the words that it connects."""
    return f"{relation.kind}: {words[relation.start]} ({relation.start}) -> {words[relation.end]} ({relation.end})"


def _to_json(phrase: "Phrase") -> dict[str, object]:
    """Return a pair with all its links as a JSON object."""
    return {
        "source": phrase.source,
        "target": phrase.target,
        "alignment": phrase.pharaoh(),
        "relations": [[relation.kind, relation.start, relation.end] for relation in phrase.relations],
        "target_relations": [[relation.kind, relation.start, relation.end] for relation in phrase.target_relations],
    }
