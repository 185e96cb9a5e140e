"""`regard demo`: the whole way of a sentence, on data that comes with the package."""

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Literal

import typer

if TYPE_CHECKING:
    from regard.data.phrasebook import Phrase
    from regard.data.prepare import Prepared

NEXT = """Training is not in this version yet, so nothing above was translated by a model. When it is, this command
trains one on these batches, and the scores get a row that beats the floor. Look further meanwhile:
  regard phrasebook --to {to} -n 5 --alignments --relations
  regard tokens {run} "I can go alone"
  regard recipe show {run}/recipe.toml
  regard prepare recipes/multi30k.toml data.root=path/to/multi30k"""


def demo(
    to: Literal["de", "fr", "it", "ar"] = typer.Option("de", help="Language to translate English into."),
    pairs: int = typer.Option(20_000, min=1_000, max=1_000_000, help="Sentence pairs to draw."),
) -> None:
    """See the pipeline work from sentences to batches and scores; needs no data and no network.

    \b
    regard demo
    regard demo --to ar
    """
    from pathlib import Path

    from regard.cli.progress import watching
    from regard.data.phrasebook import lectures, phrases
    from regard.data.prepare import prepare
    from regard.recipe import parse

    recipe = parse(f'[data]\ntrain = [{{ to = "{to}", pairs = {pairs} }}]\n[text]\nsize = 2000\n', name=f"demo-{to}")
    _show_sentences(lectures(to), next(phrases(to, "train", 1)))
    with watching() as watch:
        prepared = prepare(recipe, Path("runs", recipe.name), watch)
    _show_tokens(prepared)
    _show_batches(prepared)
    _show_floor(to, pairs)
    _head("5. And then")
    typer.echo(NEXT.format(to=to, run=prepared.run))


def _head(title: str) -> None:
    typer.echo(f"\n{title}\n{'-' * len(title)}")


def _show_sentences(known: "list[Phrase]", drawn: "Phrase") -> None:
    """The lectures' sentences, and one drawn pair with its gold alignment."""
    _head("1. The phrasebook: a grammar of five languages")
    for phrase in known:
        typer.echo(f"  {phrase.source}\n    {phrase.target}")
    typer.echo("\nEvery pair knows which word became which, and who did what:")
    source, target = drawn.source.split(), drawn.target.split()
    typer.echo(f"  {drawn.source}\n    {drawn.target}\n    {drawn.pharaoh()}")
    for link in drawn.alignment:
        typer.echo(f"    {source[link.source]} {'=' if link.sure else '~'} {target[link.target]}")
    for relation in drawn.relations:
        typer.echo(f"    {relation.kind}: {source[relation.start]}, {source[relation.end]}")


def _show_tokens(prepared: "Prepared") -> None:
    """The vocabulary and the first lecture's sentence in it."""
    _head("2. Text to tokens")
    typer.echo(str(prepared))
    tokens = prepared.tokenizers.source.tokens("I can go alone")
    typer.echo("\n  token   " + "".join(f"{token.piece:>9}" for token in tokens))
    typer.echo("  id      " + "".join(f"{token.id:>9}" for token in tokens))


def _show_batches(prepared: "Prepared", budget: int = 4096) -> None:
    """The batches of one epoch, and the padding they do without."""
    from regard.data.batching import Feed

    _head("3. Tokens to batches without padding")
    feed = Feed(prepared.stores, [corpus.weight for corpus in prepared.corpora], budget)
    batches = [batch for step in feed.epoch(0) for batch in step]
    real = sum(batch.target.tokens for batch in batches)
    padded = sum(len(batch) * batch.target.longest for batch in batches)
    typer.echo(
        f"An epoch is {len(batches)} batches of at most {budget:,} tokens a side, {real:,} target tokens in all."
    )
    typer.echo(
        f"Padded to rectangles in this order they would be {padded:,}: {padded / real - 1:.0%} more, for nothing."
    )
    first, vocabulary = batches[0], prepared.tokenizers.target
    labels = first.target.with_values(first.labels_N)
    typer.echo("\nThe first example, as encoder, decoder and loss see it:")
    for name, ragged in (("source", first.source), ("decoder input", first.target), ("labels", labels)):
        typer.echo(f"  {name:<14}" + " ".join(vocabulary.piece(int(number)) for number in ragged.to_list()[0]))


def _show_floor(to: str, pairs: int) -> None:
    """What can be had without a model: each word by the word it most often became."""
    from regard.data.phrasebook import phrases
    from regard.score import bleu, chrf, exact_match

    _head("4. Scores, and the floor a model has to beat")
    became: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for phrase in phrases(to, "train", min(pairs, 5_000)):
        source, target = phrase.source.split(), phrase.target.split()
        for link in phrase.alignment:
            if link.sure:
                became[source[link.source]][target[link.target]] += 1
    table = {word: found.most_common(1)[0][0] for word, found in became.items()}
    test = list(phrases(to, "test", 500))
    said = [" ".join(table.get(word, word) for word in phrase.source.split()) for phrase in test]
    meant = [phrase.target for phrase in test]
    typer.echo(f"Word for word, each by the word it most often became in training ({len(test)} test sentences):")
    typer.echo(f"  {test[0].source}\n    said  {said[0]}\n    meant {meant[0]}")
    for score in (bleu(said, meant), chrf(said, meant), exact_match(said, meant)):
        typer.echo(f"  {score}")
