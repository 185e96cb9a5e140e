"""`regard phrasebook`: sentence pairs from the built-in grammar, with their gold alignments and grammatical links."""

import json
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from regard.data.phrasebook import Phrase, Relation


def phrasebook(
    to: Annotated[str, typer.Option(help="Language of the translations: de, fr, it or ar.")] = "de",
    count: Annotated[int, typer.Option("-n", "--count", min=0, help="How many distinct pairs.")] = 5,
    split: Annotated[
        str, typer.Option(help="train, valid, test, novel (word pairs train never has), or lectures.")
    ] = "train",
    seed: Annotated[int, typer.Option(help="The same seed gives the same pairs, on every machine.")] = 0,
    alignments: Annotated[bool, typer.Option("--alignments", help="Show which words belong together.")] = False,
    relations: Annotated[bool, typer.Option("--relations", help="Show the grammatical links.")] = False,
    tsv: Annotated[bool, typer.Option("--tsv", help="Print source, tab, target: one pair a line.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a line, with everything.")] = False,
) -> None:
    """Print sentence pairs from the built-in grammar.

    \b
    regard phrasebook --to de -n 5 --alignments
    regard phrasebook --to ar --split novel --relations
    regard phrasebook --to fr -n 200000 --tsv > train.en-fr.tsv
    regard phrasebook --to it --split lectures --json

    English starts in lower case, the translations with a capital; no sentence ends in a full stop. In an alignment,
    0-1 is a sure link from the first English word to the second of the translation, 0p1 a possible one.
    """
    from itertools import islice

    from regard.data.phrasebook import lectures, phrases

    if tsv and as_json:
        raise typer.BadParameter("--tsv and --json are two layouts; choose one")
    found = islice(lectures(to), count) if split == "lectures" else phrases(to, split, count, seed)
    for number, phrase in enumerate(found):
        if tsv:
            typer.echo(f"{phrase.source}\t{phrase.target}")
        elif as_json:
            typer.echo(json.dumps(_as_dict(phrase), ensure_ascii=False))
        else:
            typer.echo("\n".join(([""] if number else []) + _layout(phrase, to, alignments, relations)))


def _layout(phrase: "Phrase", to: str, alignments: bool, relations: bool) -> list[str]:
    """The lines of one pair for a reader."""
    source, target = phrase.source.split(), phrase.target.split()
    lines = [f"en  {phrase.source}", f"{to}  {phrase.target}"]
    if alignments:
        pairs = [f"{source[link.source]}{'=' if link.sure else '~'}{target[link.target]}" for link in phrase.alignment]
        lines += [f"    {phrase.pharaoh()}", f"    {'  '.join(pairs)}"]
    if relations:
        lines += [f"    en {_show(relation, source)}" for relation in phrase.relations]
        lines += [f"    {to} {_show(relation, target)}" for relation in phrase.target_relations]
    return lines


def _show(relation: "Relation", words: list[str]) -> str:
    """A grammatical link in words."""
    return f"{relation.kind}: {words[relation.start]} ({relation.start}) -> {words[relation.end]} ({relation.end})"


def _as_dict(phrase: "Phrase") -> dict[str, object]:
    """A pair for a machine."""
    return {
        "source": phrase.source,
        "target": phrase.target,
        "alignment": phrase.pharaoh(),
        "relations": [[relation.kind, relation.start, relation.end] for relation in phrase.relations],
        "target_relations": [[relation.kind, relation.start, relation.end] for relation in phrase.target_relations],
    }
