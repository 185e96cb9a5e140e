"""`regard race`: several recipes on the same text under the same budget, and what the paper's table is in practice."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from regard.race.budget import Budget
    from regard.race.entrants import Contender
    from regard.race.judging import Result

BUDGET, QUICK = "tokens=1e6", "tokens=2.5e5"
OFTEN = "train.every=40"  # in a short race, or its learning curves would have three points
JOINED = 3  # phrases of a sentence at most, in the race of the lectures' families


def race(
    recipes: list[str] | None = typer.Argument(
        None, metavar="[RECIPE|KEY=VALUE]...", help="Recipes to compare, and settings to change in all of them."
    ),
    budget: str | None = typer.Option(None, help="tokens=…, seconds=… or flops=… for each; tokens=1e6 if not given."),
    run: str = typer.Option("runs/race", help="Folder of the race; what is finished in it is not done again."),
    device: str = typer.Option("auto", help="cpu, cuda, or auto: a GPU where there is one."),
    seeds: int = typer.Option(1, min=1, help="Times each recipe runs, each with another seed."),
    join: int | None = typer.Option(None, min=1, help="Phrases a sentence of the phrasebook may have; else 3, or 1."),
    abreast: int | None = typer.Option(
        None, min=1, help="Contenders that run side by side and share the cores; 2 on a CPU, else 1, if not given."
    ),
    quick: bool = typer.Option(False, "--quick", help="A quarter of the budget."),
    complexity: bool = typer.Option(False, "--complexity", help="Measure what one layer costs, and train nothing."),
    plain: bool = typer.Option(False, "--plain", help="Lines instead of the live leaderboard."),
    as_json: bool = typer.Option(False, "--json", help="Print the results as JSON."),
) -> None:
    """Train several recipes on the same text under the same budget, and show who learns it best, and at what cost.

    Without recipes, the lectures' families run on the phrasebook: one vector (Sutskever), soft alignment (Bahdanau),
    Luong's attention, convolutions, restricted and full self-attention. About 10 minutes on two cores.

    \b
    regard race
    regard race --quick
    regard race recipes/luong.toml recipes/convs2s.toml --budget tokens=2e6
    regard race --budget flops=2e13 --abreast 1 --run runs/by-flops
    regard race --complexity
    """
    folder = Path(run)
    if complexity:
        _measure(folder, quick, device, as_json)
        return
    from regard.race.budget import Budget

    chosen = Budget.parse(budget or (QUICK if quick else BUDGET))
    contenders = _contenders([*([OFTEN] if quick else []), *(recipes or [])], folder, seeds, join)
    results, stopped = _run(_spending(contenders, chosen), chosen, folder, device, abreast, plain)
    if results:
        _report(folder, chosen, results, as_json)
    if stopped:
        typer.echo("regard: not everyone has finished; the same command goes on from here", err=True)
        raise typer.Exit(1)


def _contenders(words: list[str], folder: Path, seeds: int, join: int | None) -> "list[Contender]":
    """Who runs, on which text."""
    from regard.race.course import lengthened
    from regard.race.entrants import check_fair, lectures_contenders, named_contenders, with_seeds

    paths, overrides = [word for word in words if "=" not in word], [word for word in words if "=" in word]
    found = named_contenders(paths, overrides) if paths else lectures_contenders(overrides)
    check_fair(found)
    most = join or (1 if paths else JOINED)
    drawn = found[0].recipe.data.train[0].kind == "phrasebook"
    if most > 1 or (seeds > 1 and drawn):  # a phrasebook's sentences are drawn by seed; written down they are the same
        found = lengthened(found, most, folder / "text")
    return with_seeds(found, seeds)


def _spending(contenders: "list[Contender]", budget: "Budget") -> "list[Contender]":
    """The contenders with their limits, which may need the text to be counted."""
    from regard.cli.progress import watching
    from regard.race.entrants import Contender

    with watching() as watch:
        return [Contender(each.name, budget.spent_by(each.recipe, watch)) for each in contenders]


def _run(
    contenders: "list[Contender]", budget: "Budget", folder: Path, device: str, abreast: int | None, plain: bool
) -> "tuple[list[Result], bool]":
    """Run the race before one's eyes; the results in the order of the start, and whether some are missing."""
    from regard.bundle import find_device
    from regard.race.board import Leaderboard
    from regard.race.contest import race as start

    lanes = abreast or (2 if find_device(device).type == "cpu" else 1)
    with Leaderboard([each.name for each in contenders], budget, live=not plain) as board:
        for name, happened in start(contenders, folder, device, abreast=lanes):
            board.show(name, happened)
    results = [lane.result for lane in board.lanes.values() if lane.result is not None]
    return results, len(results) < len(contenders)


def _report(folder: Path, budget: "Budget", results: "list[Result]", as_json: bool) -> None:
    """Write the report, and print its table."""
    from regard.race.report import write_race
    from regard.race.summary import markdown, rows_of

    html, _, told, _ = write_race(folder, budget, results)
    typer.echo(told.read_text(encoding="utf-8") if as_json else markdown(rows_of(results)))
    typer.echo(f"regard: the report is in {html}", err=True)


def _measure(folder: Path, quick: bool, device: str, as_json: bool) -> None:
    """The paper's table of layers, measured here and now."""
    from regard.analysis.complexity import LENGTHS, WIDTHS, measure
    from regard.bundle import find_device
    from regard.race.growth import HEADS, table, trace, write_complexity

    where = find_device(device)
    lengths, widths = (LENGTHS[::2], WIDTHS[::2]) if quick else (LENGTHS, WIDTHS)
    cells = []
    for cell in measure(lengths, widths, device=str(where)):
        cells.append(cell)
        said = cell.skipped or f"{1000 * (cell.seconds or 0):.2f} ms, {(cell.memory or 0) / 1e6:.2f} MB kept"
        typer.echo(f"{cell.kind}  n = {cell.length}  d = {cell.width}  {said}", err=True)
    traced = trace()
    html, _, told, _ = write_complexity(folder, cells, traced, str(where))
    if as_json:
        typer.echo(json.dumps(json.loads(told.read_text(encoding="utf-8"))))
    else:
        for row in table(cells, traced):
            typer.echo(
                f"{row[0]}\n" + "\n".join(f"  {head:<28} {each}" for head, each in zip(HEADS[1:], row[1:], strict=True))
            )
    typer.echo(f"regard: the report is in {html}", err=True)
