"""Compare BM25, a dual encoder and both, by recall among candidates and by the replies that are retrieved.

python bench/retrieval.py RUN --data FOLDER     DailyDialog: train.jsonl.gz is the knowledge base, dev.jsonl.gz is asked
"""

import argparse
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from regard.data.dialogues import read_dialogues
from regard.predict import BM25Retriever, DualEncoderRetriever, FusedRetriever, KnowledgeBase, ReplyRanker, Retriever
from regard.predict.bm25 import Bm25Index, search_words
from regard.predict.retriever import DENSE_WEIGHT, EARLIER, standardised
from regard.score import bleu
from regard.score.dialogue import draw_candidates, rank_of_first
from regard.tasks import load_reply_ranker

TURNS, EXAMPLES = 3, 1500
Example = tuple[list[str], str]


def main() -> None:
    """Print one line for each method."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run")
    parser.add_argument("--data", type=Path, required=True)
    arguments = parser.parse_args()
    dialogues = [[turn.text for turn in turns] for turns in read_dialogues(arguments.data / "dev.jsonl.gz")]
    examples = [(turns[max(0, at - TURNS) : at], turns[at]) for turns in dialogues for at in range(1, len(turns))]
    ranker = load_reply_ranker(arguments.run)
    show_candidates(ranker, examples)
    base = KnowledgeBase.read(arguments.data / "train.jsonl.gz")
    bm25, dual = BM25Retriever(base), DualEncoderRetriever(ranker, base)
    for weight in (0.0, 0.1, 0.3, 0.5, 1.0):
        show_retrieved(f"BM25, earlier turns {weight}", BM25Retriever(base, weight), examples)
    show_retrieved("dual encoder", dual, examples)
    for weight in (0.3, 0.5, DENSE_WEIGHT, 0.8):
        show_retrieved(f"both, weight {weight}", FusedRetriever(bm25, dual, weight), examples)
    show_retrieved("both, reciprocal ranks", ReciprocalRanks(bm25, dual), examples)


class ReciprocalRanks(FusedRetriever):
    """Reciprocal rank fusion (Cormack et al. 2009): the sum of 1 / (60 + rank), equal scores on one rank."""

    def scores(self, histories: Sequence[str | Sequence[str]]) -> NDArray[np.float64]:
        """Return the fused scores."""
        return sum(
            (
                np.stack([1 / (60 + ranks(row)) for row in part.scores(histories)])
                for part in (self.lexical, self.dense)
            ),
            np.zeros((len(histories), len(self.knowledge))),
        )


def ranks(scores: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the rank of each score, counted from 1; equal scores share the best rank."""
    return len(scores) - np.searchsorted(np.sort(scores), scores, side="right") + 1


def show_candidates(ranker: ReplyRanker, examples: Sequence[Example]) -> None:
    """Print recall@1 and @5 among 10 and 1,000 replies; BM25 compares the words of the history and the reply."""
    pool = list(dict.fromkeys(reply for _, reply in examples))
    numbers = {reply: number for number, reply in enumerate(pool)}
    index, vectors = Bm25Index(pool), ranker.reply_vectors(pool)
    queries = ranker.history_vectors([history for history, _ in examples])
    found: dict[tuple[str, int], list[int]] = {}
    for number, ((history, reply), query) in enumerate(zip(examples, queries, strict=True)):
        dense = (vectors @ query).astype(np.float64)
        words = {
            earlier: index.scores([(turn, earlier**age) for age, turn in enumerate(reversed(history))])
            for earlier in (0.0, EARLIER, 0.5)
        }
        for size in (10, 1000):
            places = draw_candidates(numbers[reply], len(pool), size, seed=number)
            lexical, similarity = standardised(words[0.5][None, places])[0], standardised(dense[None, places])[0]
            scores = {
                **{f"BM25, earlier turns {earlier}": row[places] for earlier, row in words.items()},
                "dual encoder": similarity,
                **{f"both, weight {w}": (1 - w) * lexical + w * similarity for w in (0.5, DENSE_WEIGHT, 0.8)},
            }
            for name, row in scores.items():
                found.setdefault((name, size), []).append(rank_of_first(row))
    for (name, size), positions in found.items():
        first, fifth = (100 * np.mean(np.array(positions) <= most) for most in (1, 5))
        print(f"{name:28} of {size:5,}: recall@1 {first:5.1f}  recall@5 {fifth:5.1f}", flush=True)


def show_retrieved(name: str, retriever: Retriever, examples: Sequence[Example]) -> None:
    """Print how often the right reply is retrieved if it is in the knowledge base, and how similar the first one is."""
    replies = {pair.reply for pair in retriever.knowledge.pairs}
    known = [example for example in examples if example[1] in replies]
    lists = retriever.retrieve_batch([history for history, _ in known], top=5)
    first = np.mean([found[0].text == reply for found, (_, reply) in zip(lists, known, strict=True)])
    fifth = np.mean([reply in map(str, found) for found, (_, reply) in zip(lists, known, strict=True)])
    some = [examples[at] for at in np.random.default_rng(0).permutation(len(examples))[:EXAMPLES]]
    best = [found[0].text for found in retriever.retrieve_batch([history for history, _ in some], top=1)]
    overlap = np.mean([word_f1(text, reply) for text, (_, reply) in zip(best, some, strict=True)])
    score = bleu(best, [reply for _, reply in some], lowercase=True).value
    print(
        f"{name:28} {len(known)} known replies: recall@1 {100 * first:5.1f}  recall@5 {100 * fifth:5.1f}; "
        f"{len(some)} replies: word F1 {100 * overlap:5.2f}  BLEU {score:5.2f}",
        flush=True,
    )


def word_f1(text: str, reference: str) -> float:
    """Return the F1 of the words of a text and those of a reference."""
    words, expected = Counter(search_words(text)), Counter(search_words(reference))
    return 2 * sum((words & expected).values()) / max(1, sum(words.values()) + sum(expected.values()))


if __name__ == "__main__":
    main()
