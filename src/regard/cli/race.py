"""`regard race`: compare recipes on the same text with the same training budget, or layers by their measured cost."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from regard.race.contenders import Budget, Contender
    from regard.race.result import RaceResult

BUDGETS = {"translation": ("tokens=1e6", "tokens=2.5e5"), "chat": ("tokens=3e5", "tokens=7.5e4")}
"""The default budget, and that of --quick, of each task."""
QUICK_OVERRIDE = "train.every=40"  # validate more often, or the learning curves of a short race have three points
JOINED_PHRASES = 3  # maximum phrases per sentence, in the race of the lectures' model families

Parallel = Annotated[
    int | None,
    typer.Option(
        "--parallel",
        "--abreast",
        min=1,
        help="Recipes to train at the same time, sharing the cores. Default: 2 on a CPU, else 1.",
    ),
]
RaceTask = Annotated[
    Literal["translation", "chat"],
    typer.Option(help="Without recipes: compare translators on the phrasebook, or chatbots on small talk."),
]
Amount = Annotated[
    str | None,
    typer.Option(
        help="tokens=…, seconds=… or flops=… for each recipe. Default: "
        f"{BUDGETS['translation'][0]}, for chatbots {BUDGETS['chat'][0]}; with --quick a quarter."
    ),
]
Folder = Annotated[
    str | None,
    typer.Option(
        help="Folder of the race. Recipes finished there are not trained again. Default: runs/race, or runs/race-chat.",
        show_default=False,
    ),
]
Join = Annotated[
    int | None,
    typer.Option(
        min=1, help=f"Maximum phrases per phrasebook sentence. Default: {JOINED_PHRASES} without recipes, else 1."
    ),
]


def race(
    recipes: list[str] | None = typer.Argument(
        None, metavar="RECIPE|KEY=VALUE", help="Recipes to compare, and settings to change in all of them."
    ),
    task: RaceTask = "translation",
    budget: Amount = None,
    run: Folder = None,
    device: str = typer.Option("auto", help="cpu, cuda or auto: a GPU if there is one."),
    seeds: int = typer.Option(1, min=1, help="Trainings per recipe, each with another random seed."),
    join: Join = None,
    parallel: Parallel = None,
    quick: bool = typer.Option(False, "--quick", help="Use a quarter of the budget."),
    complexity: bool = typer.Option(False, "--complexity", help="Measure the cost of single layers; train nothing."),
    plain: bool = typer.Option(False, "--plain", help="Print lines instead of the live leaderboard."),
    as_json: bool = typer.Option(False, "--json", help="Print the results as JSON."),
) -> None:
    """Train several recipes on the same text with the same budget, and compare quality and cost.

    \b
    regard race
    regard race --quick
    regard race --task chat
    regard race luong convs2s --budget tokens=2e6
    regard race --budget flops=2e13 --parallel 1 --run runs/by-flops
    regard race --complexity

    Without recipes, six model families are trained on the phrasebook, in about 10 minutes on two cores.
    They are Sutskever, Bahdanau, Luong, ConvS2S, and the Transformer with restricted and full self-attention.
    With --task chat, five families read a history as one text and two read it turn by turn, and retrievers select
    replies.
    """
    folder = Path(run or ("runs/race-chat" if task == "chat" else "runs/race"))
    if complexity:
        _measure_complexity(folder, quick, device, as_json)
        return
    from regard.race.contenders import Budget

    chosen = Budget.parse(budget or BUDGETS[task][1 if quick else 0])
    contenders = _contenders([*([QUICK_OVERRIDE] if quick else []), *(recipes or [])], task, folder, seeds, join)
    results, stopped = _run(_with_budget(contenders, chosen), chosen, folder, device, parallel, plain)
    if results:
        if task == "chat" and all("=" in argument for argument in recipes or []):
            results.append(_bm25(contenders[0]))
        _report(folder, chosen, results, as_json)
    if stopped:
        typer.echo("regard: some recipes are not finished; the same command resumes the race", err=True)
        raise typer.Exit(1)


def _contenders(arguments: list[str], task: str, folder: Path, seeds: int, join: int | None) -> "list[Contender]":
    """Return the recipes that take part, with the text they are trained on."""
    from regard.race.contenders import (
        check_fair,
        family_contenders,
        named_contenders,
        with_joined_phrases,
        with_seeds,
    )

    paths = [argument for argument in arguments if "=" not in argument]
    overrides = [argument for argument in arguments if "=" in argument]
    contenders = named_contenders(paths, overrides) if paths else family_contenders(task, overrides)
    check_fair(contenders)
    phrases = join or (1 if paths or task != "translation" else JOINED_PHRASES)
    generated = contenders[0].recipe.data.train[0].kind == "phrasebook"
    if phrases > 1 or (seeds > 1 and generated):  # the seed changes generated text, so write it to files once
        contenders = with_joined_phrases(contenders, phrases, folder / "text")
    return with_seeds(contenders, seeds)


def _with_budget(contenders: "list[Contender]", budget: "Budget") -> "list[Contender]":
    """Return the contenders with recipes limited to the budget, which may require counting the tokens of the text."""
    from regard.cli.progress import preparation_progress
    from regard.race.contenders import Contender

    with preparation_progress() as show:
        return [Contender(contender.name, budget.limit(contender.recipe, show)) for contender in contenders]


def _run(
    contenders: "list[Contender]", budget: "Budget", folder: Path, device: str, parallel: int | None, plain: bool
) -> "tuple[list[RaceResult], bool]":
    """Run the race; return the results in the order of the contenders, and whether any are missing."""
    from regard.bundle import find_device
    from regard.race.leaderboard import Leaderboard
    from regard.race.runner import race as start
    from regard.race.runner import ranking_scores

    processes = parallel or (2 if find_device(device).type == "cpu" else 1)
    names, scores = [contender.name for contender in contenders], ranking_scores(contenders[0].recipe)
    with Leaderboard(names, budget, scores, live=not plain) as board:
        for name, event in start(contenders, folder, device, parallel=processes):
            board.show(name, event)
    results = [state.result for state in board.contenders.values() if state.result is not None]
    return results, len(results) < len(contenders)


def _bm25(contender: "Contender") -> "RaceResult":
    """Return the result of a retriever without training, on the dialogues of a contender."""
    from regard.race.chat import evaluate_bm25

    return evaluate_bm25(contender.recipe)


def _report(folder: Path, budget: "Budget", results: "list[RaceResult]", as_json: bool) -> None:
    """Write the report, and print its table."""
    from regard.race.report import columns_of, write_race
    from regard.race.summary import result_rows, results_markdown

    html, _, data, _ = write_race(folder, budget, results)
    rows = result_rows(results)
    typer.echo(data.read_text(encoding="utf-8") if as_json else results_markdown(rows, columns_of(rows)))
    typer.echo(f"regard: the report is in {html}", err=True)


def _measure_complexity(folder: Path, quick: bool, device: str, as_json: bool) -> None:
    """Measure time and memory of layer types, after Vaswani et al. 2017, table 1, and write a report."""
    from regard.analysis.complexity import LENGTHS, WIDTHS, measure
    from regard.bundle import find_device
    from regard.race.complexity_report import COMPLEXITY_HEADINGS, complexity_table, trace_layers, write_complexity

    device_name = find_device(device)
    lengths, widths = (LENGTHS[::2], WIDTHS[::2]) if quick else (LENGTHS, WIDTHS)
    costs = []
    for cost in measure(lengths, widths, device=str(device_name)):
        costs.append(cost)
        result = cost.skipped or f"{1000 * (cost.seconds or 0):.2f} ms, {(cost.memory or 0) / 1e6:.2f} MB saved"
        typer.echo(f"{cost.kind}  n = {cost.length}  d = {cost.width}  {result}", err=True)
    traced = trace_layers()
    html, _, data, _ = write_complexity(folder, costs, traced, str(device_name))
    if as_json:
        typer.echo(json.dumps(json.loads(data.read_text(encoding="utf-8"))))
    else:
        for name, *values in complexity_table(costs, traced):
            rows = [f"  {heading:<28} {value}" for heading, value in zip(COMPLEXITY_HEADINGS[1:], values, strict=True)]
            typer.echo("\n".join([name, *rows]))
    typer.echo(f"regard: the report is in {html}", err=True)
