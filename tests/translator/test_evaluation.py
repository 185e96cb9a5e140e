"""Scores of all, of short and long sentences, and beside another system."""

import json

import pytest

from regard.score import bleu
from regard.translator.evaluation import evaluate
from regard.translator.options import Options

SOURCES = ["a b c", "one two three four five six seven eight nine ten eleven", "x " * 80, "y z"]
SAID = ["the cat sits on the mat", "the dog sleeps in the house now", "it rains a lot today here", "no"]
MEANT = ["the cat sits on the mat", "the dog sleeps in a house now", "it rains a lot today there", "yes"]


def test_the_whole_scores_as_score_says_and_each_bucket_as_its_own_corpus() -> None:
    found = evaluate(SOURCES, SAID, [MEANT], ["bleu"])
    assert found.scores == (bleu(SAID, MEANT),)
    assert [(bucket.label, bucket.sentences) for bucket in found.buckets] == [("1–10", 2), ("11–20", 1), ("51+", 1)]
    assert found.buckets[0].scores == (bleu([SAID[0], SAID[3]], [MEANT[0], MEANT[3]]),)
    assert found.comparisons == ()


def test_beside_another_system_the_difference_is_tested() -> None:
    found = evaluate(SOURCES, SAID, [MEANT], ["chrf"], against=["nothing"] * 4, search="beam:5")
    (comparison,) = found.comparisons
    assert comparison.difference > 0
    table = json.loads(json.dumps(found.to_json()))
    assert (table["sentences"], table["search"], len(table["buckets"])) == (4, "beam:5", 3)


@pytest.mark.parametrize(
    ("told", "signature"),
    [
        ({}, "beam:5|length:gnmt-1"),
        ({"beam": 4, "length_penalty": 0.6, "no_repeat": 3}, "beam:4|length:gnmt-0.6|no-repeat:3"),
        ({"mbr": 8, "seed": 2, "top_k": 5}, "mbr:8|sample|temperature:1|top-k:5|top-p:1|min-p:0|seed:2"),
        ({"avoid": ("x",), "groups": 5}, "beam:5|length:gnmt-1|groups:5|avoid"),
    ],
)
def test_a_search_has_a_signature(told: dict[str, object], signature: str) -> None:
    assert Options().told(**told).signature == signature
