"""Filters drop what they say, count each pair once, and tell about it."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.corpus import Chunk
from regard.data.filters import FILTERS, Example, FilterReport, Sieve
from regard.recipe import Data, Filter, TextCorpus

ALL = frozenset(FILTERS)


def sieve(*drop: Filter, longest: int = 10, ratio: float = 3.0) -> Sieve:
    return Sieve(frozenset(drop), longest, ratio)


def verdict(rules: Sieve, source: str, target: str, *, duplicate: bool = False, tagged: bool = False) -> Filter | None:
    """The filter that drops a pair whose tokens are its words."""
    lengths = [np.array([len(text.split())]) for text in (source, target)]
    [code] = rules.judge(
        Chunk(1, [source], [target]), lengths[0], lengths[1], duplicate=np.array([duplicate]), tagged=tagged
    )
    return FILTERS[code - 1] if code else None


@pytest.mark.parametrize(
    ("source", "target", "dropped"),
    [
        ("a b", "c d", None),
        ("", "c", "empty"),
        ("a", "", "empty"),
        (" \u3000\t", "c", "empty"),
        ("a " * 10, "c " * 10, None),
        ("a " * 11, "c " * 11, "long"),
        ("a " * 9, "c " * 11, "long"),
        ("a", "c c c", None),
        ("a", "c c c c", "ratio"),
        ("a a a a", "c", "ratio"),
        ("a b", " a b ", "copy"),
        ("a b", "A b", None),
    ],
)
def test_each_filter_drops_what_it_says(source: str, target: str, dropped: Filter | None) -> None:
    assert verdict(Sieve(ALL, 10, 3.0), source, target) == dropped
    if dropped:
        assert verdict(Sieve(ALL - {dropped}, 10, 3.0), source, target) is None


def test_a_duplicate_is_dropped_only_by_the_filter_of_that_name() -> None:
    assert verdict(sieve("duplicate"), "a", "b", duplicate=True) == "duplicate"
    assert verdict(sieve(*ALL - {"duplicate"}), "a", "b", duplicate=True) is None


def test_a_side_with_text_but_no_tokens_is_empty() -> None:
    zero, one = np.array([0]), np.array([1])
    assert sieve("empty").judge(Chunk(1, ["\u200b"], ["b"]), zero, one)[0] == 1 + FILTERS.index("empty")


def test_with_empty_switched_off_empty_sides_stay() -> None:
    rules = sieve("long", "ratio", "copy", "duplicate")
    assert verdict(rules, "", "one two three four five") is None
    assert verdict(rules, "", "") is None


def test_the_tag_counts_as_a_token_for_long_and_not_for_ratio() -> None:
    assert verdict(sieve("long", longest=2), "a b", "c d", tagged=True) == "long"
    assert verdict(sieve("long", longest=2), "a", "c d", tagged=True) is None
    assert verdict(sieve("ratio", ratio=2.0), "a a", "b", tagged=True) is None


def test_a_pair_counts_under_the_first_filter_that_drops_it() -> None:
    everything = "x " * 11  # long, a copy and a duplicate
    assert verdict(Sieve(ALL, 10, 3.0), everything, everything, duplicate=True) == "long"
    assert verdict(sieve("copy", "duplicate"), everything, everything, duplicate=True) == "copy"


def test_the_sieve_of_a_recipe_has_its_settings() -> None:
    data = Data(train=(TextCorpus(source="a", target="b"),), drop=("copy", "long"), longest=7, ratio=2.5)
    assert Sieve.of(data) == Sieve(frozenset({"copy", "long"}), 7, 2.5)


WORDS = st.lists(st.sampled_from(["a", "b", " "]), max_size=5).map("".join)
CHUNKS = st.lists(st.tuples(WORDS, WORDS), max_size=20)


def reported(rules: Sieve, pairs: list[tuple[str, str]], first: int) -> FilterReport:
    chunk = Chunk(first, [source for source, _ in pairs], [target for _, target in pairs])
    lengths = [
        np.array([len(text.replace(" ", "")) for text in side], np.int64) for side in (chunk.source, chunk.target)
    ]
    return rules.report(chunk, rules.judge(chunk, lengths[0], lengths[1]))


@given(pairs=CHUNKS, drop=st.sets(st.sampled_from(FILTERS)))
def test_every_pair_is_kept_or_counted_once(pairs: list[tuple[str, str]], drop: set[Filter]) -> None:
    report = reported(Sieve(frozenset(drop), 3, 2.0), pairs, 1)
    assert report.read == len(pairs)
    assert report.kept + sum(report.dropped.values()) == len(pairs)
    assert set(report.dropped) == drop
    for name, examples in report.examples.items():
        assert len(examples) == min(3, report.dropped[name])
        for example in examples:
            assert pairs[example.line - 1] == (example.source, example.target)


@given(left=CHUNKS, right=CHUNKS)
def test_reports_of_two_parts_add_up_to_the_report_of_the_whole(
    left: list[tuple[str, str]], right: list[tuple[str, str]]
) -> None:
    rules = Sieve(ALL, 3, 2.0)
    whole = reported(rules, left + right, 1)
    assert reported(rules, left, 1) + reported(rules, right, 1 + len(left)) == whole
    assert FilterReport() + whole == whole


@given(pairs=CHUNKS)
def test_a_report_survives_json(pairs: list[tuple[str, str]]) -> None:
    report = reported(Sieve(ALL, 3, 2.0), pairs, 1)
    assert FilterReport.model_validate_json(report.model_dump_json()) == report


def test_a_report_reads_as_a_table() -> None:
    example = Example(line=1234, source="\x1b[2J evil", target="gut")
    counts: dict[Any, int] = {"empty": 0, "copy": 250}
    report = FilterReport(read=1000, kept=750, dropped=counts, examples={"copy": (example,)})
    assert str(report).split("\n") == [
        "read      1,000",
        "empty         0   0.0%",
        "copy        250  25.0%",
        "    line 1,234: \\x1b[2J evil ||| gut",
        "kept        750  75.0%",
    ]


def test_examples_of_long_texts_are_clipped() -> None:
    chunk = Chunk(1, ["x" * 1_000_000], ["y"])
    long = sieve("long")
    report = long.report(chunk, long.judge(chunk, np.array([1_000_000]), np.array([1])))
    [example] = report.examples["long"]
    assert len(example.source) == 80
    assert example.source.endswith("…")
