"""`regard evaluate`: translate, classify, tag or reply to a test set, and score the predictions."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.evaluate_captions import evaluate_captions
from regard.cli.evaluate_chat import evaluate_chat
from regard.cli.evaluate_forecasts import evaluate_forecasts
from regard.cli.evaluate_labels import evaluate_labels
from regard.cli.evaluate_tags import evaluate_tags
from regard.cli.flags import Device, Dtype, Quantize, Run, given, precision_of, with_options
from regard.cli.score import print_comparisons, print_scores, print_table, read_parallel_lines
from regard.cli.streams import existing_file, line_counter
from regard.options import TranslationOptions

if TYPE_CHECKING:
    from regard.predict import Translator
    from regard.score import Comparison, Score

DEFAULT_METRICS = ("bleu", "chrf")
BUCKET_WORDS, MAX_BUCKETS = 10, 6
"""Scores are also computed by source length, in buckets of so many words; the last bucket has no upper bound."""

Source = Annotated[
    str | None,
    typer.Option(
        metavar="FILE", help="Source lines, texts or dialogues, plain or .gz; default: the test set of the recipe."
    ),
]
Reference = Annotated[
    list[str] | None, typer.Option(metavar="FILE", help="Reference translations, repeated for more; or labels.")
]
Against = Annotated[
    str | None,
    typer.Option(metavar="RUN|FILE", help="Another run, or its predictions; adds a significance test."),
]
Metrics = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME", help="A metric, such as chrf++, ter or exact; repeat for more. Default: bleu and chrf."
    ),
]
Tokenize = Annotated[
    str, typer.Option(metavar="NAME", help="Tokenizer of BLEU: 13a, intl, char, zh, ja-mecab, ko-mecab or none.")
]
Output = Annotated[str | None, typer.Option(metavar="FILE", help="Write the predictions to this file.")]
Drawing = Annotated[
    str | None,
    typer.Option("--figure", metavar="FILE", help="Draw the confusion matrix of labels or tags (PNG, SVG, PDF)."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, with all digits.")]


@dataclass(frozen=True)
class LengthBucket:
    """The scores of sentences of similar length."""

    least: int
    """Minimum number of source words."""
    most: int | None
    """Maximum number of source words; None is no bound."""
    sentences: int
    scores: "tuple[Score, ...]"

    @property
    def label(self) -> str:
        """The range of lengths, such as 11–20."""
        return f"{self.least}+" if self.most is None else f"{self.least}–{self.most}"


@with_options(TranslationOptions, "beam", "length_penalty", "tokens")
def evaluate(
    run: Run,
    source: Source = None,
    reference: Reference = None,
    against: Against = None,
    metric: Metrics = None,
    tokenize: Tokenize = "13a",
    output: Output = None,
    figure: Drawing = None,
    as_json: AsJson = False,
    device: Device = "auto",
    dtype: Dtype = "auto",
    quantize: Quantize = None,
    **options: Any,
) -> None:
    """Predict what a test set asks for, and score the predictions, also compared with those of another system.

    \b
    regard evaluate runs/phrasebook
    regard evaluate runs/phrasebook --source test.en --reference test.de
    regard evaluate runs/phrasebook --source test.en --reference test.de --against runs/other
    regard evaluate runs/phrasebook --source test.en --reference test.de --against out.de --json
    regard evaluate runs/20news --against runs/other --figure confusion.pdf
    regard evaluate runs/20news --source texts.txt --reference labels.txt
    regard evaluate runs/smalltalk --source dialogues.jsonl
    regard evaluate runs/digits --source pictures.txt --reference labels.txt
    regard evaluate runs/scenes
    regard evaluate runs/etth1

    Translations are scored as a whole and by source length. For a classifier it prints accuracy, macro F1, calibration
    error and the scores of each class; for a tagger accuracy, also of words unseen in training, and the scores of each
    tag; for a chatbot perplexities with and without the turns before the last one, and how diverse its replies are;
    for a captioner CIDEr-D and BLEU beside two baselines, and where attention points on generated scenes; for a
    forecaster the errors by step and column, beside those of baselines. Without files it uses the test set of the
    recipe or, if there is none, the validation set.
    """
    task = task_of(run)
    if task == "chat":
        meaningless = {"--metric": metric, "--tokenize": tokenize != "13a", "--tokens": options.pop("tokens")}
        _refuse({**meaningless, "--reference": reference, "--figure": figure}, "a chatbot")
        evaluate_chat(run, source, against, output, as_json, device, precision_of(dtype, quantize), given(options))
        return
    only_translations = {"--metric": metric, "--tokenize": tokenize != "13a", "--quantize": quantize, **given(options)}
    if task == "forecasting":
        given_files = {"--source": source, "--reference": reference, "--figure": figure, "--against": against}
        _refuse({**only_translations, **given_files}, "a forecaster")
        evaluate_forecasts(run, output, as_json, device, dtype)
        return
    if task == "tagging":
        _refuse({**only_translations, "--against": against}, "a tagger")
        evaluate_tags(run, source, reference or [], output, figure, as_json, device, dtype)
        return
    if task in ("classification", "image_classification"):
        _refuse(only_translations, "a classifier")
        evaluate_labels(run, source, reference or [], against, output, figure, as_json, device, dtype)
        return
    if task == "captioning":
        others = {"--metric": metric, "--tokenize": tokenize != "13a", "--quantize": quantize, "--against": against}
        _refuse({**others, "--reference": reference, "--figure": figure}, "a captioner")
        evaluate_captions(run, source, output, as_json, device, dtype, _search_options(options))
        return
    if figure:
        raise ValueError("--figure draws the confusion matrix of labels or tags; for attention maps use regard figure")
    _evaluate_translations(
        run,
        _read_test_set(run, source, reference or []),
        against,
        metric or DEFAULT_METRICS,
        tokenize,
        output,
        as_json,
        device,
        precision_of(dtype, quantize),
        given(options),
    )


def _evaluate_translations(
    run: str,
    test_set: tuple[list[str], list[list[str]]],
    against: str | None,
    metrics: Sequence[str],
    tokenize: str,
    output: str | None,
    as_json: bool,
    device: str,
    precision: str,
    options: dict[str, Any],
) -> None:
    """Translate a test set and print the scores of the translations; see `evaluate`."""
    from regard.score import paired_bootstrap, read_sentences, score
    from regard.tasks import load_translator

    sources, references = test_set
    for name in metrics:  # raises for an unknown metric or tokenizer, before the long translation
        score(name, ["a"], [["a"]], tokenize=tokenize)
    other = None
    if against and not (Path(against).is_dir() or against.endswith(".safetensors")):
        other = read_sentences(against)
        if len(other) != len(sources):
            raise ValueError(f"{against} has {len(other)} lines, but the test set has {len(sources)}")
    translator = load_translator(run, device, precision)
    chosen = translator.options.override(**options)
    hypotheses = _translate(translator, sources, chosen)
    if against and other is None:
        rival = load_translator(against, device, precision)
        other = _translate(rival, sources, rival.options.override(**options))
    if output:
        Path(output).write_text("".join(f"{line}\n" for line in hypotheses), encoding="utf-8")
    scores = [score(name, hypotheses, references, tokenize=tokenize) for name in metrics]
    buckets = score_by_length(sources, hypotheses, references, metrics, tokenize)
    comparisons = []
    if other is not None:
        comparisons = [
            paired_bootstrap(hypotheses, other, references, metric=name, tokenize=tokenize) for name in metrics
        ]
    _print(chosen.signature, scores, buckets, comparisons, as_json)


def task_of(run: str) -> str | None:
    """Return what a run was trained for; None if it has no recipe."""
    from regard.bundle import load_bundle_recipe
    from regard.run_files import RECIPE
    from regard.run_path import find_run

    folder = find_run(run).folder
    return load_bundle_recipe(folder).task if (folder / RECIPE).is_file() else None


def _search_options(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of the search that were given and that a captioner has."""
    chosen = given(options)
    _refuse({"--tokens": chosen.pop("tokens", None)}, "a captioner")
    return chosen


def _refuse(options: dict[str, Any], what: str) -> None:
    """Raise a ValueError if an option was given that means nothing for a run."""
    for name, value in options.items():
        if value:
            flag = name if name.startswith("--") else f"--{name.replace('_', '-')}"
            raise ValueError(f"{flag} means nothing for {what}, which this run is; leave it out")


def score_by_length(
    sources: Sequence[str],
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    metrics: Sequence[str],
    tokenize: str = "13a",
) -> list[LengthBucket]:
    """Return the scores of sentences by the number of source words; empty buckets are left out."""
    from regard.score import score

    members: dict[int, list[int]] = {}
    for index, line in enumerate(sources):
        number = max(0, len(line.split()) - 1) // BUCKET_WORDS
        members.setdefault(min(number, MAX_BUCKETS - 1), []).append(index)
    buckets = []
    for number, indices in sorted(members.items()):
        outputs = [hypotheses[index] for index in indices]
        streams = [[stream[index] for index in indices] for stream in references]
        scores = tuple(score(name, outputs, streams, tokenize=tokenize) for name in metrics)
        most = None if number == MAX_BUCKETS - 1 else (number + 1) * BUCKET_WORDS
        buckets.append(LengthBucket(number * BUCKET_WORDS + 1, most, len(indices), scores))
    return buckets


def _read_test_set(run: str, source: str | None, reference: list[str]) -> tuple[list[str], list[list[str]]]:
    """Return sources and references: those of the files, or the test set of the recipe."""
    from regard.bundle import load_bundle_recipe
    from regard.predict.scoring import read_pairs
    from regard.run_files import RECIPE
    from regard.run_path import find_run

    if bool(source) != bool(reference):
        raise ValueError(
            f"{'--reference' if source else '--source'} is missing; give both, or neither for the recipe's test set"
        )
    if source:
        (lines,), references = read_parallel_lines(source, reference)
        return lines, references
    recipe = load_bundle_recipe(existing_file(str(find_run(run).folder / RECIPE)).parent)
    if recipe.data.test is None:
        raise ValueError(f"the recipe of {run} has no test set (data.test); give --source and --reference")
    pairs, _ = read_pairs(recipe.data.test, recipe)
    return [source_line for source_line, _ in pairs], [[target_line for _, target_line in pairs]]


def _translate(translator: "Translator", sources: list[str], options: TranslationOptions) -> list[str]:
    with line_counter("translated") as count:
        return [translation.line for translation in translator.stream(sources, options, count)]


def _print(
    search: str, scores: "list[Score]", buckets: list[LengthBucket], comparisons: "list[Comparison]", as_json: bool
) -> None:
    """Print scores, scores by length and comparisons as tables, or as JSON; `search` is the signature of the search."""
    sentences = sum(bucket.sentences for bucket in buckets)
    if as_json:
        lists: dict[str, list[Any]] = {"scores": scores, "buckets": buckets, "comparisons": comparisons}
        tables = {name: [asdict(row) for row in rows] for name, rows in lists.items()}
        typer.echo(json.dumps({"sentences": sentences, "search": search, **tables}, ensure_ascii=False, indent=2))
        return
    typer.echo(f"{sentences:,} sentences, {search}\n")
    print_scores(scores, as_json=False)
    if len(buckets) > 1:
        values = [[f"{score.value:.2f}" for score in bucket.scores] for bucket in buckets]
        rows = [(bucket.label, f"{bucket.sentences:,}", *row) for bucket, row in zip(buckets, values, strict=True)]
        typer.echo()
        print_table(("source words", "sentences", *(score.name for score in scores)), rows)
    if comparisons:
        typer.echo()
        print_comparisons(comparisons, as_json=False)
