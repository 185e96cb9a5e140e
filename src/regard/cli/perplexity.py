"""`regard perplexity`: how probable a model finds given translations."""

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.streams import counting, parallel, put

if TYPE_CHECKING:
    from regard.translator.given import Given, Total

Run = Annotated[str, typer.Argument(metavar="RUN", help="The folder of a trained run.")]
Source = Annotated[str, typer.Option(metavar="FILE", help="Source lines, plain or .gz.")]
Target = Annotated[str, typer.Option(metavar="FILE", help="Their translations, line by line.")]
Each = Annotated[bool, typer.Option("--each", help="Print log-probability, perplexity and tokens of each pair.")]
Tokens = Annotated[bool, typer.Option("--tokens", help="Print each token's log-probability too.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON; with --each an object a pair, with everything.")]
Device = Annotated[str, typer.Option(help="cpu, cuda, cuda:1; a GPU if there is one.")]


def perplexity(
    run: Run,
    source: Source,
    target: Target,
    each: Each = False,
    tokens: Tokens = False,
    as_json: AsJson = False,
    device: Device = "auto",
) -> None:
    """Tell the log-probability of given translations, and the perplexity of all of them.

    \b
    regard perplexity runs/phrasebook --source test.en --target test.de
    regard perplexity runs/phrasebook --source test.en --target test.de --each --tokens
    regard perplexity runs/phrasebook --source test.en --target test.de --each --json

    Log-probabilities are natural; the end of each sentence counts as a token. With --each, the columns are
    log-probability, perplexity and number of tokens, and the figures of the whole go to stderr.
    """
    from regard.translator import load
    from regard.translator.given import Total, weigh

    each = each or tokens
    translator = load(run, device)
    total = Total()
    with counting("read", quiet=not each) as count:
        for given in weigh(translator, parallel(source, target)):
            total = total.plus(given)
            count(1)
            if each:
                put(json.dumps(given.to_json(), ensure_ascii=False) if as_json else _row(given, tokens))
    if not total.pairs:
        raise ValueError(f"{source} is empty; give at least one pair of lines")
    if each:
        sys.stdout.flush()
        print("\n".join(f"regard: {line}" for line in _lines(total)), file=sys.stderr)
    elif as_json:
        put(json.dumps(_table(total), indent=2))
    else:
        put("\n".join(_lines(total)))


def _row(given: "Given", tokens: bool) -> str:
    columns = [f"{given.logprob:.4f}", f"{given.perplexity:.4f}", str(len(given.tokens))]
    told = zip(given.tokens, given.token_logprobs, strict=True)
    return "\t".join(columns + [" ".join(f"{piece}:{logprob:.4f}" for piece, logprob in told)] * tokens)


def _lines(total: "Total") -> list[str]:
    return [
        f"perplexity          {total.perplexity:.4f}",
        f"bits per character  {total.bits_per_character:.4f}",
        f"log-probability     {total.logprob:.2f}",
        f"pairs               {total.pairs:,}",
        f"target tokens       {total.tokens:,}",
    ]


def _table(total: "Total") -> dict[str, Any]:
    return {
        "perplexity": total.perplexity,
        "bits_per_character": total.bits_per_character,
        "logprob": total.logprob,
        "pairs": total.pairs,
        "tokens": total.tokens,
    }
