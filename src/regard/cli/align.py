"""`regard align`: which words of given pairs belong together, as a model's attention sees it."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.streams import counting, parallel, put

if TYPE_CHECKING:
    from regard.score import Alignment
    from regard.translator import Translator

Run = Annotated[str, typer.Argument(metavar="RUN", help="The folder of a trained run.")]
Source = Annotated[str | None, typer.Option(metavar="FILE", help="Source lines, plain or .gz.")]
Target = Annotated[str | None, typer.Option(metavar="FILE", help="Their translations, line by line.")]
Gold = Annotated[
    str | None, typer.Option(metavar="FILE", help="True links, Pharaoh or NAACL: print the error rate instead.")
]
Reversed = Annotated[bool, typer.Option("--reversed", help="The gold links name target words first.")]
Choose = Annotated[
    bool, typer.Option("--choose", help="Choose which attention to read, by these pairs, and keep that in the run.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Device = Annotated[str, typer.Option(help="cpu, cuda, cuda:1; a GPU if there is one.")]


def align(
    run: Run,
    source: Source = None,
    target: Target = None,
    gold: Gold = None,
    reversed_: Reversed = False,
    choose: Choose = False,
    as_json: AsJson = False,
    device: Device = "auto",
) -> None:
    """Print the word alignment of given pairs in Pharaoh's format, or its error rate.

    \b
    regard align runs/phrasebook --source test.en --target test.de > test.align
    regard align runs/phrasebook --source test.en --target test.de --gold gold.align
    regard align runs/phrasebook --choose

    A link 0-1 joins the first source word to the second target word. --choose tries every layer and head: against
    gold links where there are some (--gold, or the phrasebook's own), else by how well both directions agree.
    Without files it uses the recipe's validation text.
    """
    from regard.translator import load

    if bool(source) != bool(target):
        raise ValueError(f"{'--target' if source else '--source'} is missing; an alignment has two sides")
    translator = load(run, device)
    pairs = parallel(source, target) if source and target else None
    if choose:
        _choose(translator, run, None if pairs is None else list(pairs), _gold(gold, reversed_))
    elif pairs is None:
        raise ValueError("give --source and --target, or --choose")
    elif gold:
        _judge(translator, pairs, _gold(gold, reversed_) or [], as_json)
    else:
        _show(translator, pairs, as_json)


def _show(translator: "Translator", pairs: Iterable[tuple[str, str]], as_json: bool) -> None:
    """A line of links for each pair."""
    import json

    from regard.translator.given import weigh

    with counting("aligned") as count:
        for given in weigh(translator, pairs, alignments=True):
            count(1)
            links = given.alignment or ()
            put(
                json.dumps(given.to_json(), ensure_ascii=False)
                if as_json
                else " ".join(f"{source}-{target}" for source, target in links)
            )


def _judge(translator: "Translator", pairs: Iterable[tuple[str, str]], truth: "list[Alignment]", as_json: bool) -> None:
    """The error rate against gold links."""
    from regard.cli.score import print_alignment
    from regard.score import alignment_error_rate
    from regard.translator.given import weigh

    found = [given.alignment or () for given in weigh(translator, pairs, alignments=True)]
    print_alignment(alignment_error_rate(found, truth), as_json)


def _choose(
    translator: "Translator", run: str, pairs: "list[tuple[str, str]] | None", gold: "list[Alignment] | None"
) -> None:
    """Choose by the pairs, or by the recipe's validation text, and keep the choice in `scores.json`."""
    from pathlib import Path

    from regard.bundle import load_scores, save_scores
    from regard.names import RECIPE
    from regard.recipe import load as load_recipe
    from regard.translator.given import ENOUGH, choose_look, pairs_of

    if pairs is None:
        recipe = load_recipe(Path(run, RECIPE))
        if recipe.data.valid is None:
            raise ValueError(f"the recipe of {run} has no data.valid to choose by; give --source and --target")
        pairs, gold = pairs_of(recipe.data.valid, recipe, ENOUGH)
    look = choose_look(translator, pairs, gold)
    save_scores(Path(run), {**load_scores(Path(run)), "alignment": look.to_scores()})
    head = "the mean of its heads" if look.head is None else f"head {look.head}"
    step = "read" if look.read else "told"
    rate = "" if look.aer is None else f", AER {look.aer:.2%}"
    put(f"{look.tap}: {head}, where a token is {step}; by {look.reason} over {len(pairs)} pairs{rate}")


def _gold(file: str | None, swapped: bool) -> "list[Alignment] | None":
    """Gold links with the source first."""
    from regard.score import Alignment, read_alignments

    if file is None:
        return None
    found = read_alignments(file)
    if not swapped:
        return found
    turned = ([frozenset((b, a) for a, b in part) for part in (each.sure, each.possible)] for each in found)
    return [Alignment(*parts) for parts in turned]
