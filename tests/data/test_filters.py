"""Filters drop what they are named after, count each record once, and report it."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.corpus import Chunk
from regard.data.filters import FILTERS, DroppedExample, FilterReport, RecordFilter
from regard.recipe import Data, Filter, TextCorpus

ALL = frozenset(FILTERS)


def filters(*drop: Filter, longest: int = 10, ratio: float = 3.0) -> RecordFilter:
    return RecordFilter(frozenset(drop), longest, ratio)


def verdict(record_filter: RecordFilter, *texts: str, duplicate: bool = False, tagged: bool = False) -> Filter | None:
    """The filter that drops a record whose tokens are its words; its first text may be tagged."""
    columns = {f"field {at}": [text] for at, text in enumerate(texts)}
    lengths = {name: np.array([len(text.split())]) for name, [text] in columns.items()}
    [code] = record_filter.apply(
        Chunk(1, columns), lengths, duplicate=np.array([duplicate]), tagged=("field 0",) if tagged else ()
    )
    return FILTERS[code - 1] if code else None


@pytest.mark.parametrize(
    ("texts", "dropped"),
    [
        (["a b", "c d"], None),
        (["", "c"], "empty"),
        (["a", ""], "empty"),
        ([" \u3000\t", "c"], "empty"),
        (["a " * 10, "c " * 10], None),
        (["a " * 11, "c " * 11], "long"),
        (["a " * 9, "c " * 11], "long"),
        (["a", "c c c"], None),
        (["a", "c c c c"], "ratio"),
        (["a a a a", "c"], "ratio"),
        (["a b", " a b "], "copy"),
        (["a b", "A b"], None),
        # One text has no other to be compared with.
        (["a b"], None),
        ([" "], "empty"),
        (["a " * 11], "long"),
        # Of three texts any two may be too different; all three must be equal to be copies.
        (["a", "b b", "c c c"], None),
        (["a", "b", ""], "empty"),
        (["a", "b b", "c c c c"], "ratio"),
        (["a", "a", "a "], "copy"),
        (["a", "a", "b"], None),
    ],
)
def test_each_filter_drops_what_it_is_named_after(texts: list[str], dropped: Filter | None) -> None:
    assert verdict(RecordFilter(ALL, 10, 3.0), *texts) == dropped
    if dropped:
        assert verdict(RecordFilter(ALL - {dropped}, 10, 3.0), *texts) is None


def test_a_duplicate_is_dropped_only_by_the_filter_of_that_name() -> None:
    assert verdict(filters("duplicate"), "a", "b", duplicate=True) == "duplicate"
    assert verdict(filters(*ALL - {"duplicate"}), "a", "b", duplicate=True) is None


def test_a_text_without_tokens_is_empty() -> None:
    chunk = Chunk(1, {"source": ["\u200b"], "target": ["b"]})
    lengths = {"source": np.array([0]), "target": np.array([1])}
    assert filters("empty").apply(chunk, lengths)[0] == 1 + FILTERS.index("empty")


def test_a_label_is_no_text() -> None:
    chunk = Chunk(1, {"text": ["a b c d", "yes"], "label": ["", "yes"]})
    lengths = {"text": np.array([4, 1])}
    assert filters(*ALL).apply(chunk, lengths).tolist() == [0, 0]
    assert filters(*ALL, longest=3).report(chunk, np.array([2, 0], np.int8)).examples["long"][0].values == {
        "text": "a b c d",
        "label": "",
    }


def test_records_with_an_empty_text_are_kept_if_that_filter_is_off() -> None:
    record_filter = filters("long", "ratio", "copy", "duplicate")
    assert verdict(record_filter, "", "one two three four five") is None
    assert verdict(record_filter, "", "") is None


def test_the_tag_counts_as_a_token_for_long_but_not_for_ratio() -> None:
    assert verdict(filters("long", longest=2), "a b", "c d", tagged=True) == "long"
    assert verdict(filters("long", longest=2), "a", "c d", tagged=True) is None
    assert verdict(filters("ratio", ratio=2.0), "a a", "b", tagged=True) is None


def test_a_record_counts_under_the_first_filter_that_drops_it() -> None:
    text = "x " * 11  # long, a copy and a duplicate
    assert verdict(RecordFilter(ALL, 10, 3.0), text, text, duplicate=True) == "long"
    assert verdict(filters("copy", "duplicate"), text, text, duplicate=True) == "copy"


def test_the_filters_of_a_recipe_have_its_settings() -> None:
    corpus = TextCorpus(files={"source": "a", "target": "b"})
    data = Data(train=(corpus,), drop=("copy", "long"), longest=7, ratio=2.5)
    assert RecordFilter.of(data) == RecordFilter(frozenset({"copy", "long"}), 7, 2.5)
    assert RecordFilter.of(data, ()) == RecordFilter(frozenset(), 7, 2.5)


WORDS = st.lists(st.sampled_from(["a", "b", " "]), max_size=5).map("".join)
RECORDS = st.lists(st.tuples(WORDS, WORDS), max_size=20)
TRIPLES = st.lists(st.tuples(WORDS, WORDS, WORDS), max_size=20)
SINGLES = st.lists(st.tuples(WORDS), max_size=20)


def report_on(record_filter: RecordFilter, records: list[tuple[str, ...]], first: int, fields: int = 2) -> FilterReport:
    columns = {str(at): [record[at] for record in records] for at in range(fields)}
    chunk = Chunk(first, columns)
    lengths = {
        name: np.array([len(text.replace(" ", "")) for text in column], np.int64) for name, column in columns.items()
    }
    return record_filter.report(chunk, record_filter.apply(chunk, lengths))


@given(records=st.one_of(RECORDS, TRIPLES, SINGLES), drop=st.sets(st.sampled_from(FILTERS)))
def test_every_record_is_kept_or_counted_once(records: list[tuple[str, ...]], drop: set[Filter]) -> None:
    fields = len(records[0]) if records else 2
    report = report_on(RecordFilter(frozenset(drop), 3, 2.0), records, 1, fields)
    assert report.read == len(records)
    assert report.kept + sum(report.dropped.values()) == len(records)
    assert set(report.dropped) == drop
    for name, examples in report.examples.items():
        assert len(examples) == min(3, report.dropped[name])
        for example in examples:
            assert records[example.line - 1] == tuple(example.values.values())


@given(left=RECORDS, right=RECORDS)
def test_reports_of_two_parts_add_up_to_the_report_of_the_whole(
    left: list[tuple[str, ...]], right: list[tuple[str, ...]]
) -> None:
    record_filter = RecordFilter(ALL, 3, 2.0)
    whole = report_on(record_filter, left + right, 1)
    assert report_on(record_filter, left, 1) + report_on(record_filter, right, 1 + len(left)) == whole
    assert FilterReport() + whole == whole


@given(records=RECORDS)
def test_a_report_survives_json(records: list[tuple[str, ...]]) -> None:
    report = report_on(RecordFilter(ALL, 3, 2.0), records, 1)
    assert FilterReport.model_validate_json(report.model_dump_json()) == report


def test_a_report_is_printed_as_a_table() -> None:
    example = DroppedExample(line=1234, values={"source": "\x1b[2J evil", "target": "gut"})
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
    chunk = Chunk(1, {"source": ["x" * 1_000_000], "target": ["y"]})
    long = filters("long")
    lengths = {"source": np.array([1_000_000]), "target": np.array([1])}
    [example] = long.report(chunk, long.apply(chunk, lengths)).examples["long"]
    assert len(example.values["source"]) == 80
    assert example.values["source"].endswith("…")
