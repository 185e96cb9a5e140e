"""`regard perplexity`: compute the perplexity of given text, or of given translations or replies."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.flags import Device, Run
from regard.cli.streams import line_counter, print_line, read_parallel

if TYPE_CHECKING:
    from regard.predict import TextPerplexity
    from regard.recipe import Recipe

Text = Annotated[
    str | None,
    typer.Argument(metavar="TEXT", help="Language models: a text file; chat: a file of dialogues. Plain or .gz."),
]
Source = Annotated[str | None, typer.Option(metavar="FILE", help="Translation models: source lines, plain or .gz.")]
Target = Annotated[
    str | None, typer.Option(metavar="FILE", help="Translation models: their translations, line by line.")
]
Each = Annotated[
    bool, typer.Option("--each", help="Print log-probability, perplexity and number of tokens of each pair.")
]
Tokens = Annotated[bool, typer.Option("--tokens", help="Like --each, with the log-probability of each token.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON; with --each, one object per pair.")]

_LABELS = {
    "perplexity": ("perplexity", ".4f"),
    "bits_per_character": ("bits per character", ".4f"),
    "logprob": ("log-probability", ".2f"),
    "pairs": ("pairs", ","),
    "tokens": ("target tokens", ","),
}


def perplexity(
    run: Run,
    text: Text = None,
    source: Source = None,
    target: Target = None,
    each: Each = False,
    tokens: Tokens = False,
    as_json: AsJson = False,
    device: Device = "auto",
) -> None:
    """Compute the perplexity of a text, of translations given their sources, or of replies given their histories.

    \b
    regard perplexity runs/shakespeare text.txt
    regard perplexity runs/smalltalk dialogues.jsonl
    regard perplexity runs/phrasebook --source test.en --target test.de
    regard perplexity runs/phrasebook --source test.en --target test.de --each --tokens
    regard perplexity runs/phrasebook --source test.en --target test.de --each --json

    Log-probabilities are natural logarithms; the end of each sentence or document counts as a token.
    Of a masked language model, the pseudo-perplexity is computed: each token is predicted from all others.
    With --each, the columns are log-probability, perplexity and number of tokens, and the totals go to stderr.
    """
    if text is not None:
        if source or target:
            raise ValueError(
                "give either TEXT, for a language model or chat, or --source and --target, for a translation model"
            )
        _print_text_perplexity(run, text, as_json, device)
        return
    if source is None or target is None:
        raise ValueError("give TEXT for a language model or chat, or --source and --target for a translation model")
    from regard.predict.scoring import CorpusPerplexity, score_pairs
    from regard.tasks import load_translator

    each = each or tokens
    translator = load_translator(run, device)
    total = CorpusPerplexity()
    with line_counter("scored", quiet=not each) as count:
        for pair in score_pairs(translator, read_parallel(source, target)):
            total = total.plus(pair)
            count(1)
            if each and as_json:
                print_line(json.dumps(pair.to_json(), ensure_ascii=False))
            elif each:
                columns = [f"{pair.logprob:.4f}", f"{pair.perplexity:.4f}", str(len(pair.tokens))]
                logprobs = zip(pair.tokens, pair.token_logprobs, strict=True)
                print_line(
                    "\t".join(columns + [" ".join(f"{token}:{value:.4f}" for token, value in logprobs)] * tokens)
                )
    if not total.pairs:
        raise ValueError(f"{source} is empty; give at least one pair of lines")
    table = total.to_json()
    lines = [f"{label:<20}{table[name]:{form}}" for name, (label, form) in _LABELS.items()]
    if each:
        sys.stdout.flush()
        print("\n".join(f"regard: {line}" for line in lines), file=sys.stderr)
    else:
        print_line(json.dumps(table, indent=2) if as_json else "\n".join(lines))


def _print_text_perplexity(run: str, text: str, as_json: bool, device: str) -> None:
    """Print the perplexity of a text file, split as the recipe says: into lines, paragraphs, the file, or replies."""
    from regard.bundle import load_bundle_recipe
    from regard.run_path import find_run

    recipe = load_bundle_recipe(find_run(run).folder)
    table = (_reply_perplexity if recipe.task == "chat" else _text_perplexity)(run, recipe, text, device).to_json()
    if recipe.is_masked:
        note = "this is a pseudo-perplexity: each token was masked once and predicted from all others"
        print(f"regard: {note}; do not compare it with the perplexity of a causal model", file=sys.stderr)
    if as_json:
        print_line(json.dumps(table, indent=2))
        return
    width = max(20, 2 + max(map(len, table)))
    for name, value in table.items():
        label = f"{name.replace('_', ' '):<{width}}"
        print_line(f"{label}{value:,.4f}" if isinstance(value, float) else f"{label}{value:,}")


def _text_perplexity(run: str, recipe: "Recipe", text: str, device: str) -> "TextPerplexity":
    """Return the perplexity of the documents of a text file by a language model."""
    from regard.data.corpus import Reader
    from regard.recipe import TextCorpus
    from regard.tasks import load_generator, load_mask_filler

    predictor = (load_mask_filler if recipe.is_masked else load_generator)(run, device, "float32")
    reader = Reader(("text",), Path(), documents=recipe.data.documents)
    return predictor.perplexity(record[0] for record in reader.records(TextCorpus(files={"text": text})))


def _reply_perplexity(run: str, recipe: "Recipe", text: str, device: str) -> "TextPerplexity":
    """Return the perplexity of the replies of dialogues, which are read like the training data."""
    from regard.data.corpus import Reader
    from regard.data.fields.lists import split_turns
    from regard.predict.text_generator import TextPerplexity
    from regard.tasks import load_chatbot

    chatbot, total = load_chatbot(run, device, "float32"), TextPerplexity()
    reader = Reader.of(recipe.data.model_copy(update={"root": "."}), tuple(chatbot.fields), recipe.seed)
    for chunk in reader.chunks(recipe.data.dialogues(text)):
        histories = [split_turns(history) for history in chunk.columns["history"]]
        total += chatbot.perplexity(histories, chunk.columns["reply"])
    return total
