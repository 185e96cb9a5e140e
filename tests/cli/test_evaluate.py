"""Scores by source length."""

from regard.cli.evaluate import score_by_length
from regard.score import bleu

SOURCES = ["a b c", "one two three four five six seven eight nine ten eleven", "x " * 80, "y z"]
OUTPUTS = ["the cat sits on the mat", "the dog sleeps in the house now", "it rains a lot today here", "no"]
REFERENCES = ["the cat sits on the mat", "the dog sleeps in a house now", "it rains a lot today there", "yes"]


def test_each_bucket_is_scored_as_a_corpus_of_its_own() -> None:
    buckets = score_by_length(SOURCES, OUTPUTS, [REFERENCES], ["bleu"])
    assert [(bucket.label, bucket.sentences) for bucket in buckets] == [("1–10", 2), ("11–20", 1), ("51+", 1)]
    assert buckets[0].scores == (bleu([OUTPUTS[0], OUTPUTS[3]], [REFERENCES[0], REFERENCES[3]]),)
