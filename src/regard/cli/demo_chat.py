"""`regard demo --task chat`: answers that need an earlier turn, perplexity without it, and a conversation."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from regard.cli.demo import DemoOptions, print_heading, train_model
from regard.cli.demo_tasks import print_report

if TYPE_CHECKING:
    from regard.data.smalltalk import Dialogue
    from regard.predict import Chatbot
    from regard.recipe import Recipe
    from regard.train.report.html_report import ReportNote

FIGURE = "dialogue.png"
TRAINING_DIALOGUES = 2
MESSAGES = (
    "Good evening.",
    "My name is Clara.",
    "I am twenty, my sister is eighteen.",
    "What is my name?",
    "How old is my sister?",
)
"""What the user says in the conversation that the demo ends with."""
SHOWN = 3
"""The number of the message whose reply is explained."""


def demo_chat(recipe: "Recipe", folder: Path, options: DemoOptions) -> None:
    """Train a chatbot on generated small talk; judge its memory and its attention, and talk to it."""
    from regard.analysis.dialogue import context_perplexity, judge_attention, judge_recall, replies_of
    from regard.data.smalltalk import dialogues
    from regard.tasks import load_chatbot
    from regard.train.report.html_report import ReportNote, write_report

    print_heading("1. Training data: generated small talk; an answer in [] stands in the turn with that number")
    for dialogue in dialogues("train", TRAINING_DIALOGUES, recipe.seed):
        typer.echo("\n".join(f"  {line}" for line in _marked(dialogue)) + "\n")
    train_model(recipe, folder, options.again, options.plain, "2. Training a chatbot")
    chatbot = load_chatbot(folder, precision="float32")
    print_heading("3. Unseen dialogues: does it remember?")
    unseen = list(dialogues("test", options.sentences, recipe.seed))
    explanations = {
        "recalled": "right answers to questions that an earlier turn answers",
        "gold turn": "of these, the most attended turn is the one with the answer",
        "gold word": "of these, the most attended word is the answer",
    }
    recalled = judge_recall(lambda asked: [reply.text for reply in chatbot.reply(asked)], unseen, recipe.text.lowercase)
    lines = [
        f"{score.value:5.1f} % {score.detail} {explanations[score.name]}"
        for score in (*recalled, *judge_attention(chatbot, unseen))
    ]
    perplexity = context_perplexity(chatbot, *replies_of(unseen))
    contexts = {"full": "the history", "shuffled": "earlier turns in random order", "last": "the last turn alone"}
    figures = {name: getattr(perplexity, name).to_json()["word_perplexity"] for name in contexts}
    lines.append("perplexity per word given " + ", ".join(f"{contexts[name]} {figures[name]:.2f}" for name in contexts))
    typer.echo("\n".join(f"  {line}" for line in lines))
    note = ReportNote("Unseen dialogues", "\n".join(lines))
    print_report(folder, *write_report(folder, notes=[note, _talk(chatbot, folder)]))
    typer.echo(f"  a figure of the conversation: {folder / FIGURE}")
    typer.echo(f"  regard chat {folder}\n  regard chat {folder} --turns 1     # without the turns before the last one")
    typer.echo(f"  regard evaluate {folder}\n  regard look {folder}")


def _marked(dialogue: "Dialogue") -> list[str]:
    """Return the turns of a dialogue with their numbers, and the number of the turn that each reply depends on."""
    lines = []
    for number, (turn, evidence) in enumerate(zip(dialogue.turns, dialogue.evidence, strict=True)):
        source = f"  [{evidence.turn + 1}]" if evidence is not None and dialogue.is_recalled(number) else ""
        lines.append(f"{number + 1:>2} {'bot ' if number % 2 else 'user'} {turn}{source}")
    return lines


def _talk(chatbot: "Chatbot", folder: Path) -> "ReportNote":
    """Print a conversation and what one of its replies attends to, and draw it."""
    from regard.cli.chat_view import describe_attention
    from regard.explore.figures import dialogue_figure
    from regard.plot import save
    from regard.predict import Conversation
    from regard.predict.chat_attention import has_attention
    from regard.train.report.html_report import ReportNote

    print_heading("4. A conversation")
    conversation, lines, shown = Conversation(chatbot, beam=1), [], list[str]()
    figure = None
    for number, message in enumerate(MESSAGES):
        exchange = conversation.send(message)
        lines += [f"you> {message}", f"bot> {exchange.text}"]
        if number == SHOWN and has_attention(chatbot):
            shown = ["", f"What “{exchange.text}” attends to:", *describe_attention(conversation)]
            title = "blue: weight of a turn; red: weight of a word"
            figure = dialogue_figure(chatbot, exchange.history, target=exchange.text, title=title)
            save(figure, folder / FIGURE, dpi=120)
    typer.echo("\n".join(f"  {line}".rstrip() for line in [*lines, *shown]))
    return ReportNote("A conversation", "\n".join([*lines, *shown]), figure, "Attention of a reply to a conversation")
