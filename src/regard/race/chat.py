"""Evaluate a trained chatbot of a race: its replies, its use of earlier turns, and its attention."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Self

from regard.analysis.dialogue import (
    Replier,
    judge_attention,
    judge_chatbot,
    judge_recall,
    recall_questions,
    replies_of,
    reply_scores,
)
from regard.data.corpus import Reader
from regard.data.fields.lists import SEPARATOR, split_list
from regard.data.smalltalk import Dialogue, dialogues
from regard.predict import BM25Retriever, Chatbot, KnowledgeBase, ReplyRanker
from regard.predict.chatbot import History
from regard.race.result import RaceResult, training_figures
from regard.recipe import Recipe, SmallTalkCorpus, dump
from regard.score import Score
from regard.score.dialogue import draw_candidates, rank_of_first, recall_at
from regard.tasks import load

PERPLEXITIES = {"full": "perplexity", "shuffled": "shuffled", "last": "last turn"}
"""The names of the perplexities, by what a chatbot reads; see `ContextPerplexity`."""
CANDIDATES = (10, 1000)
"""Numbers of replies to choose from, of which a retriever's recall is measured."""
LOWERCASED = " (lower-cased)"
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
    unseen, lowercase = _unseen(name, recipe), recipe.text.lowercase
    predictor = load(run, device)
    histories, references = replies_of(unseen)
    perplexities: dict[str, float] = {}
    if isinstance(predictor, ReplyRanker):
        reply = _selector(predictor, recipe)
        judged = (*reply_scores(reply(histories), references, lowercase), *judge_recall(reply, unseen, lowercase))
        judged += _candidate_scores(predictor, histories, references)
    else:
        reply = partial(_write, predictor)
        judgement = judge_chatbot(predictor, histories, references, lowercase)
        judged = (*judgement.scores, *judge_recall(reply, unseen, lowercase), *judge_attention(predictor, unseen))
        perplexities = {
            column: getattr(judgement.perplexity, context).to_json()["word_perplexity"]
            for context, column in PERPLEXITIES.items()
        }
    result = ChatResult(
        name=name,
        seed=recipe.seed,
        **training_figures(run),
        **_scored(judged, perplexities),
        shown=_shown(reply, unseen, recipe.data.turns),
        recipe=dump(recipe),
    )
    result.save(run)
    return result


def evaluate_bm25(recipe: Recipe) -> ChatResult:
    """Return the result of a retriever that needs no training: BM25 over the turns before the training replies."""
    unseen, lowercase = _unseen("bm25", recipe), recipe.text.lowercase
    histories, references = replies_of(unseen)
    retriever = BM25Retriever(KnowledgeBase.of([(history[-1], reply) for history, reply in _training_pairs(recipe)]))

    def reply(asked: Sequence[History]) -> list[str]:
        return [found[0].text for found in retriever.retrieve_batch(asked, top=1)]

    judged = (*reply_scores(reply(histories), references, lowercase), *judge_recall(reply, unseen, lowercase))
    cost: dict[str, Any] = dict.fromkeys(("parameters", "steps", "tokens", "flops", "seconds", "training_speed"), 0)
    return ChatResult(
        name="bm25",
        kind="bm25",
        seed=recipe.seed,
        device="cpu",
        **cost,
        memory=None,
        loss=None,
        points=[],
        **_scored(judged, {}),
        shown=_shown(reply, unseen, recipe.data.turns),
        recipe=dump(recipe),
    )


def _unseen(name: str, recipe: Recipe) -> list[Dialogue]:
    """Return the dialogues that chatbots are judged on."""
    corpus = recipe.data.test or recipe.data.valid
    if not isinstance(corpus, SmallTalkCorpus):
        raise ValueError(f"{name}: a race of chatbots judges them on generated small talk; set data.test to it")
    return list(dialogues(corpus.split, corpus.count, recipe.seed))


def _training_pairs(recipe: Recipe) -> list[tuple[list[str], str]]:
    """Return the histories and replies that a recipe trains with."""
    reader = Reader.of(recipe.data, ("history", "reply"), recipe.seed)
    records = (record for corpus in recipe.data.train for record in reader.records(corpus))
    return [(split_list(history, SEPARATOR), reply) for history, reply in records]


def _write(chatbot: Chatbot, histories: Sequence[History]) -> list[str]:
    return [reply.text for reply in chatbot.reply(histories)]


def _selector(ranker: ReplyRanker, recipe: Recipe) -> Replier:
    """Return the function that selects the best training reply to each history."""
    replies = list(dict.fromkeys(reply for _, reply in _training_pairs(recipe)))
    vectors = ranker.reply_vectors(replies)

    def select(histories: Sequence[History]) -> list[str]:
        best = (ranker.history_vectors(histories) @ vectors.T).argmax(1)
        return [replies[number] for number in best]

    return select


def _candidate_scores(
    ranker: ReplyRanker, histories: Sequence[History], references: Sequence[str]
) -> tuple[Score, ...]:
    """Return recall@1 of several numbers of candidates, or of all distinct test replies if they are fewer."""
    pool = list(dict.fromkeys(references))
    number = {reply: place for place, reply in enumerate(pool)}
    similarity = ranker.history_vectors(histories) @ ranker.reply_vectors(pool).T
    scores = []
    for size in CANDIDATES:
        drawn = (draw_candidates(number[right], len(pool), size, seed) for seed, right in enumerate(references))
        ranks = [rank_of_first(row[places]) for row, places in zip(similarity, drawn, strict=True)]
        score = recall_at(ranks, 1, min(size, len(pool)))
        scores.append(replace(score, name=f"recall@1 of {size:,}"))
    return tuple(scores)


def _scored(judged: Sequence[Score], perplexities: dict[str, float]) -> dict[str, Any]:
    # With lower-cased text, the names of scores say so; the signatures do too.
    names = [score.name.removesuffix(LOWERCASED) for score in judged]
    return {
        "scores": perplexities | {name: score.value for name, score in zip(names, judged, strict=True)},
        "signatures": {name: score.signature for name, score in zip(names, judged, strict=True)},
    }


def _shown(reply: Replier, unseen: Sequence[Dialogue], turns: int) -> list[ShownReply]:
    """Return the replies to some questions about earlier turns, the same ones for all contenders."""
    questions = [next(recall_questions([dialogue]), None) for dialogue in unseen]
    chosen = [question for question in questions if question is not None][:SHOWN]
    histories = [list(dialogue.turns[:number][-turns:]) for dialogue, number in chosen]
    return [
        ShownReply(history, text, dialogue.turns[number])
        for history, text, (dialogue, number) in zip(histories, reply(histories), chosen, strict=True)
    ]
