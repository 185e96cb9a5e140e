"""`regard align`: align the words of given sentence pairs by the attention of a model."""

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.flags import Device, Run
from regard.cli.streams import line_counter, print_line, read_parallel

if TYPE_CHECKING:
    from regard.predict import Translator
    from regard.score import Alignment

Source = Annotated[str | None, typer.Option(metavar="FILE", help="Source lines, plain or .gz.")]
Target = Annotated[str | None, typer.Option(metavar="FILE", help="Their translations, line by line.")]
Gold = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="Gold links, in Pharaoh or NAACL format: print the alignment error rate."),
]
Reversed = Annotated[bool, typer.Option("--reversed", help="The gold links have the target word first.")]
Choose = Annotated[
    bool,
    typer.Option("--choose", help="Choose the attention head that aligns these pairs best, and store it in the run."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, one object per pair.")]


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
    """Print the word alignments of given sentence pairs in Pharaoh format, or their alignment error rate.

    \b
    regard align runs/phrasebook --source test.en --target test.de > test.align
    regard align runs/phrasebook --source test.en --target test.de --gold gold.align
    regard align runs/phrasebook --choose

    A link 0-1 connects the first source word with the second target word.
    --choose compares layers and heads by the error rate on gold links (--gold, or those of the phrasebook), or without
    gold links by the agreement of both directions. Without files it uses the validation corpus of the recipe.
    """
    from regard.predict.scoring import score_pairs
    from regard.tasks import load_translator

    if bool(source) != bool(target):
        raise ValueError(f"{'--target' if source else '--source'} is missing; give both files")
    translator = load_translator(run, device)
    pairs = read_parallel(source, target) if source and target else None
    if choose:
        _choose_head(translator, run, pairs, _read_gold(gold, reversed_))
        return
    if pairs is None:
        raise ValueError("give --source and --target, or --choose")
    if gold:
        from regard.cli.score import print_alignment
        from regard.score import alignment_error_rate

        links = [pair.alignment or () for pair in score_pairs(translator, pairs, alignments=True)]
        print_alignment(alignment_error_rate(links, _read_gold(gold, reversed_) or []), as_json)
        return
    with line_counter("aligned") as count:
        for pair in score_pairs(translator, pairs, alignments=True):
            count(1)
            links_text = " ".join(f"{source}-{target}" for source, target in pair.alignment or ())
            print_line(json.dumps(pair.to_json(), ensure_ascii=False) if as_json else links_text)


def _choose_head(
    translator: "Translator", run: str, pairs: "Iterable[tuple[str, str]] | None", gold: "list[Alignment] | None"
) -> None:
    """Choose the alignment head by the pairs, or by the validation corpus, and store it in `scores.json`."""
    from regard.bundle import load_bundle_recipe, load_scores, save_scores
    from regard.predict.scoring import MAX_CHOICE_PAIRS, choose_alignment_head, read_pairs
    from regard.run_path import find_run

    folder = find_run(run).folder
    if pairs is None:
        recipe = load_bundle_recipe(folder)
        if recipe.data.valid is None:
            raise ValueError(f"the recipe of {run} has no validation corpus (data.valid); give --source and --target")
        pairs, gold = read_pairs(recipe.data.valid, recipe, MAX_CHOICE_PAIRS)
    pairs = list(pairs)
    chosen = choose_alignment_head(translator, pairs, gold)
    save_scores(folder, {**load_scores(folder), "alignment": chosen.to_scores()})
    head = "mean over heads" if chosen.head is None else f"head {chosen.head}"
    step = "reads" if chosen.shifted else "predicts"
    rate = "" if chosen.aer is None else f", AER {chosen.aer:.2%}"
    print_line(
        f"{chosen.tap}: {head}, at the step that {step} a token; chosen by {chosen.reason} on {len(pairs)} pairs{rate}"
    )


def _read_gold(file: str | None, swapped: bool) -> "list[Alignment] | None":
    """Read gold links; `swapped` exchanges source and target."""
    from regard.score import Alignment, read_alignments

    if file is None:
        return None
    gold = read_alignments(file)
    if not swapped:
        return gold
    return [
        Alignment(*(frozenset((source, target) for target, source in links) for links in (pair.sure, pair.possible)))
        for pair in gold
    ]
