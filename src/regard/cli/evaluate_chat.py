"""`regard evaluate` for chatbots: replies scored, and perplexities with and without the turns before the last one."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from regard.cli.score import print_comparisons
from regard.cli.streams import existing_file

if TYPE_CHECKING:
    from regard.analysis.dialogue import ChatJudgement
    from regard.predict import Chatbot
    from regard.recipe import Corpus, Recipe
    from regard.score import Comparison


def evaluate_chat(
    run: str,
    source: str | None,
    against: str | None,
    output: str | None,
    as_json: bool,
    device: str,
    precision: str,
    options: dict[str, Any],
) -> None:
    """Reply to the histories of a test set, and print how good the replies are; see `regard evaluate`.

    Args:
        run: The run of a chatbot.
        source: A file of dialogues. Default: the recipe's test set, or its validation set.
        against: Another run, or a file with its replies.
        output: A file to write the replies to.
        as_json: Whether to print JSON.
        device: Device to run on.
        precision: Precision of the model.
        options: Options of the replies that differ from the recipe's.
    """
    from regard.bundle import load_bundle_recipe
    from regard.data.prepare import corpus_name
    from regard.files import read_lines
    from regard.run_path import find_run
    from regard.score import paired_bootstrap
    from regard.tasks import load_chatbot

    chatbot = load_chatbot(run, device, precision)
    chatbot.options = chatbot.options.override(**options)
    recipe = load_bundle_recipe(find_run(run).folder)
    corpus = _test_set(run, recipe, source)
    histories, references = _examples(chatbot, recipe, corpus, Path() if source else Path(recipe.data.root))
    other = None
    if against and Path(against).is_file() and not against.endswith(".safetensors"):
        other = [line for block in read_lines(Path(against)) for line in block]
        if len(other) != len(references):
            raise ValueError(f"{against} has {len(other)} lines, but the test set has {len(references)} replies")
    judgement = _judge(chatbot, recipe, corpus, histories, references)
    if against and other is None:
        rival = load_chatbot(against, device, precision)
        rival.options = rival.options.override(**options)
        other = [reply.text for reply in rival.reply(histories)]
    comparisons = [] if other is None else [paired_bootstrap(judgement.replies, other, [references], metric="bleu")]
    if output:
        Path(output).write_text("".join(f"{reply}\n" for reply in judgement.replies), encoding="utf-8")
    _print(source or corpus_name(corpus), judgement, comparisons, as_json)


def _test_set(run: str, recipe: "Recipe", source: str | None) -> "Corpus":
    """Return the dialogues of a file or, without one, the recipe's test or validation corpus."""
    from regard.recipe import DialogueCorpus

    if source:
        return DialogueCorpus(path=str(existing_file(source).resolve()))
    corpus = recipe.data.test or recipe.data.valid
    if corpus is None:
        raise ValueError(
            f"the recipe of {run} has neither data.test nor data.valid; give a file of dialogues with --source"
        )
    return corpus


def _examples(chatbot: "Chatbot", recipe: "Recipe", corpus: "Corpus", root: Path) -> tuple[list[list[str]], list[str]]:
    """Return the histories and replies of a corpus."""
    from dataclasses import replace

    from regard.data.corpus import Reader

    reader = replace(Reader.of(recipe.data, ("history", "reply"), recipe.seed), root=root, reverse=False)
    records = [(history, reply) for history, reply in reader.records(corpus) if reply.strip()]
    histories = [chatbot.history_field.parts(history) for history, _ in records]
    return histories, [reply for _, reply in records]


def _judge(
    chatbot: "Chatbot", recipe: "Recipe", corpus: "Corpus", histories: list[list[str]], references: list[str]
) -> "ChatJudgement":
    """Score the replies and, if the dialogues are generated small talk, the answers that need an earlier turn."""
    from dataclasses import replace

    from regard.analysis.dialogue import judge_attention, judge_chatbot, judge_recall
    from regard.data.smalltalk import dialogues
    from regard.recipe import SmallTalkCorpus

    judgement = judge_chatbot(chatbot, histories, references, recipe.text.lowercase)
    if not isinstance(corpus, SmallTalkCorpus):
        return judgement
    generated = list(dialogues(corpus.split, corpus.count, recipe.seed))
    recalled = judge_recall(
        lambda asked: [reply.text for reply in chatbot.reply(asked)], generated, recipe.text.lowercase
    )
    return replace(judgement, scores=(*judgement.scores, *recalled, *judge_attention(chatbot, generated)))


def _print(name: str, judgement: "ChatJudgement", comparisons: "list[Comparison]", as_json: bool) -> None:
    """Print a judgement as a table, or as JSON."""
    if as_json:
        table = {"data": name, **judgement.to_json(), "comparisons": [asdict(row) for row in comparisons]}
        typer.echo(json.dumps(table, ensure_ascii=False, indent=2))
        return
    typer.echo("\n".join([name, "", *judgement.lines()]))
    if comparisons:
        typer.echo()
        print_comparisons(comparisons, as_json=False)
