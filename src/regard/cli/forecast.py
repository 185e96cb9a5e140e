"""`regard forecast`: the next rows of a table."""

import json
from pathlib import Path
from typing import Annotated

import typer

from regard.cli.flags import Device, Dtype
from regard.options.decoding import OUTPUT

Run = Annotated[str, typer.Argument(metavar="RUN", help="Folder of a trained forecaster, or other weights in it.")]
Table = Annotated[
    str, typer.Argument(metavar="TABLE", help="CSV file with the columns of the training data, plain or .gz.")
]
Horizon = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="Rows to forecast. Default: as many as in training.")
]
Out = Annotated[
    str | None, typer.Option("--out", "-o", metavar="FILE", help="Write to this file.", rich_help_panel=OUTPUT)
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of CSV.", rich_help_panel=OUTPUT)]
Attention = Annotated[
    bool, typer.Option("--attention", help="With --json: add attention weights.", rich_help_panel=OUTPUT)
]


def forecast(
    run: Run,
    table: Table,
    horizon: Horizon = None,
    out: Out = None,
    as_json: AsJson = False,
    attention: Attention = False,
    device: Device = "auto",
    dtype: Dtype = "auto",
) -> None:
    """Forecast the rows after the last one of a table, in its units and with their dates.

    \b
    regard forecast runs/etth1 ETTh1.csv
    regard forecast runs/etth1 ETTh1.csv --horizon 24 -o next.csv
    regard forecast runs/etth1 ETTh1.csv --json --attention

    Prints CSV with the columns of the table. A model trained with forecasting.quantiles adds the columns NAME_lower
    and NAME_upper. A horizon beyond that of the training is reached by continuing the forecast from itself.
    """
    from regard.tasks import load_forecaster

    if attention and not as_json:
        raise ValueError("--attention prints weights as JSON; use it together with --json")
    result = load_forecaster(run, device, dtype)(table, horizon=horizon, attention=attention)
    text = json.dumps(result.to_json(), ensure_ascii=False) + "\n" if as_json else result.to_csv()
    if out is None:
        typer.echo(text, nl=False)
        return
    Path(out).write_text(text, encoding="utf-8")
    typer.echo(out)
