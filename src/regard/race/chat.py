"""Evaluate a trained chatbot of a race: its replies, its use of earlier turns, and its attention."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from regard.analysis.dialogue import judge_chatbot, judge_recall, recall_questions, replies_of
from regard.data.smalltalk import Dialogue, dialogues
from regard.predict import Chatbot
from regard.race.result import RaceResult, training_figures
from regard.recipe import Recipe, SmallTalkCorpus, dump
from regard.tasks import load_chatbot

PERPLEXITIES = {"full": "perplexity", "shuffled": "shuffled", "last": "last turn"}
"""The names of the perplexities, by what a chatbot reads; see `ContextPerplexity`."""
SHOWN = 3  # questions about earlier turns that the report shows


@dataclass(frozen=True)
class ShownReply:
    """A question about an earlier turn, with the reply of a contender."""

    history: list[str]
    reply: str
    reference: str


@dataclass(frozen=True, kw_only=True)
class ChatResult(RaceResult):
    """The evaluation of a chatbot. Perplexities are per word; the other scores are in percent, or BLEU."""

    shown: list[ShownReply]

    @classmethod
    def from_json(cls, table: dict[str, Any]) -> Self:
        """Return the result that a JSON object describes."""
        return super().from_json({**table, "shown": [ShownReply(**reply) for reply in table["shown"]]})


def evaluate_chat(name: str, recipe: Recipe, run: Path, device: str = "auto") -> ChatResult:
    """Reply to the histories of the test dialogues with a trained run, and save the result in the run."""
    corpus = recipe.data.test or recipe.data.valid
    if not isinstance(corpus, SmallTalkCorpus):
        raise ValueError(f"{name}: a race of chatbots judges them on generated small talk; set data.test to it")
    unseen = list(dialogues(corpus.split, corpus.count, recipe.seed))
    chatbot = load_chatbot(run, device)
    histories, references = replies_of(unseen)
    judgement = judge_chatbot(chatbot, histories, references, recipe.text.lowercase)
    judged = (*judgement.scores, *judge_recall(chatbot, unseen, recipe.text.lowercase))
    perplexities = {
        column: getattr(judgement.perplexity, context).to_json()["word_perplexity"]
        for context, column in PERPLEXITIES.items()
    }
    result = ChatResult(
        name=name,
        seed=recipe.seed,
        **training_figures(run),
        scores=perplexities | {score.name: score.value for score in judged},
        signatures={score.name: score.signature for score in judged},
        shown=_shown(chatbot, unseen),
        recipe=dump(recipe),
    )
    result.save(run)
    return result


def _shown(chatbot: Chatbot, unseen: Sequence[Dialogue]) -> list[ShownReply]:
    """Return the replies to some questions about earlier turns, the same ones for all contenders."""
    questions = [next(recall_questions([dialogue]), None) for dialogue in unseen]
    chosen = [question for question in questions if question is not None][:SHOWN]
    histories = [list(dialogue.turns[:number][-chatbot.turns :]) for dialogue, number in chosen]
    replies = chatbot.reply(histories)
    return [
        ShownReply(history, reply.text, dialogue.turns[number])
        for history, reply, (dialogue, number) in zip(histories, replies, chosen, strict=True)
    ]
