"""Dialogues become histories and replies: each turn but the first is a reply to the turns before it."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data import dialogues as module
from regard.data.build import build_store
from regard.data.corpus import Reader
from regard.data.dialogues import CHUNK, Turn, examples, given_examples, read_dialogues, read_examples
from regard.data.fields import Fields, TextField, TurnsField
from regard.data.fields.lists import on_one_line, split_turns
from regard.recipe import ME, YOU, Corpus, Data, DialogueCorpus, Filter, JsonlCorpus, TextCorpus, TsvCorpus
from regard.text import Tokenizer, TokenizerSettings

FIELDS = ("history", "reply")
TEXT = st.text(st.characters(exclude_categories=["Cs"]))
TURN = TEXT.filter(lambda text: bool(text.split()))
TALK = ["Hi.", "Hello.", "My name is Anna.", "Nice to meet you.", "What is my name?", "Anna."]


def write(path: Path, text: str) -> Path:
    path.write_bytes(gzip.compress(text.encode(), 1) if path.suffix == ".gz" else text.encode())
    return path


def write_json(path: Path, *dialogues: list[Any], key: str = "turns") -> Path:
    return write(path, "".join(json.dumps({key: turns}, ensure_ascii=False) + "\n" for turns in dialogues))


def texts(path: Path, key: str = "turns") -> list[list[str]]:
    return [[turn.text for turn in dialogue] for dialogue in read_dialogues(path, key)]


def read(
    path: Path, turns: int = 6, reverse: bool = False, key: str = "turns", speaker: str = ""
) -> list[tuple[str, ...]]:
    corpus = DialogueCorpus(path=path.name, key=key, speaker=speaker)
    return list(reader(path.parent, turns, reverse).records(corpus))


def reader(root: Path, turns: int = 6, reverse: bool = False) -> Reader:
    return Reader(FIELDS, root, turns=turns, reverse=reverse)


def refusal(path: Path, speaker: str = "") -> str:
    with pytest.raises(ValueError, match=r"\w") as caught:
        read(path, speaker=speaker)
    return str(caught.value).removeprefix(str(path))


@given(st.lists(st.lists(TURN, min_size=1), min_size=1), st.sampled_from(["jsonl", "json", "jsonl.gz"]))
def test_json_dialogues_are_read_back_with_white_space_as_spaces(
    tmp_path_factory: pytest.TempPathFactory, dialogues: list[list[str]], suffix: str
) -> None:
    path = write_json(tmp_path_factory.mktemp("json") / f"talk.{suffix}", *dialogues)
    assert texts(path) == [[on_one_line(turn) for turn in turns] for turns in dialogues]


@pytest.mark.parametrize("suffix", ["txt", "txt.gz", "dialogues"])
def test_blank_lines_separate_the_dialogues_of_a_text(tmp_path: Path, suffix: str) -> None:
    path = write(tmp_path / f"talk.{suffix}", "\n \nHi.\r\n Hello. \n\n\t\n\nBye.\nBye\tbye.\nSee  you.")
    assert texts(path) == [["Hi.", "Hello."], ["Bye.", "Bye bye.", "See you."]]
    assert [[turn.line for turn in dialogue] for dialogue in read_dialogues(path)] == [[3, 4], [8, 9, 10]]


def test_a_turn_is_a_string_or_an_object_with_text_and_speaker(tmp_path: Path) -> None:
    path = write_json(
        tmp_path / "talk.jsonl",
        ["Hi.", {"text": "Hello."}, {"text": "Yes?", "speaker": "bot"}, {"content": "No.", "role": "user"}],
    )
    assert list(read_dialogues(path)) == [
        [Turn("Hi.", None, 1), Turn("Hello.", None, 1), Turn("Yes?", "bot", 1), Turn("No.", "user", 1)]
    ]


def test_successive_turns_of_one_speaker_are_joined_and_empty_ones_left_out(tmp_path: Path) -> None:
    said = [("a", "Hi."), ("a", "I am Anna."), ("b", ""), ("b", " \t "), ("a", "You?"), ("b", "Ben."), ("b", "And?")]
    turns = [{"speaker": speaker, "text": text} for speaker, text in said]
    path = write_json(tmp_path / "talk.jsonl", turns, ["So.", "", "So."])
    assert texts(path) == [["Hi. I am Anna. You?", "Ben. And?"], ["So.", "So."]]


def test_the_key_of_the_turns_can_be_named(tmp_path: Path) -> None:
    path = write_json(tmp_path / "talk.jsonl", ["Hi.", "Hello."], key="utterances")
    assert read(path, key="utterances") == [("Hi.\t", "Hello.")]
    assert refusal(path) == (
        ", line 1: no key 'turns'; its keys are: 'utterances'. Set the corpus's key to that of the turns."
    )


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ('["Hi.", "Hello."]', "the JSON value must be an object with an array of turns."),
        ("{}", "no key 'turns'; its keys are: none."),
        ('{"turns": "Hi."}', "the value of 'turns' must be an array of turns."),
        ('{"turns": ["Hi.", 3]}', "turn 2 must be a string, or an object with the strings 'text' and"),
        ('{"turns": [{"speaker": "a"}]}', "turn 1 must be a string, or an object"),
        ('{"turns": [{"text": "Hi.", "speaker": 1}]}', "turn 1 must be a string, or an object"),
        ('{"turns": ["Hi.", "\\ud800"]}', "turn 2 contains \\ud800, a lone surrogate, which is no character."),
    ],
)
def test_a_malformed_line_is_named(tmp_path: Path, line: str, complaint: str) -> None:
    path = write(tmp_path / "talk.jsonl", f'{{"turns": ["Hi.", "Hello."]}}\n\n{line}\n')
    assert refusal(path).startswith(f", line 3: {complaint}")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", " has no replies: it has no turns."),
        ("\n\n  \n", " has no replies: it has no turns."),
        ("Hi.\n\nHello.\n", " has no replies: its 2 dialogues have a single turn or none."),
    ],
)
def test_a_file_without_replies_is_an_error_that_says_why(tmp_path: Path, text: str, complaint: str) -> None:
    assert refusal(write(tmp_path / "talk.txt", text)).startswith(complaint)


@given(st.lists(TURN.map(on_one_line), max_size=12), st.integers(1, 8))
def test_each_turn_but_the_first_has_the_turns_before_it_as_history(dialogue: list[str], turns: int) -> None:
    expected = [(dialogue[max(0, at - turns) : at], dialogue[at]) for at in range(1, len(dialogue))]
    assert [(split_turns(history), reply) for history, reply in examples(dialogue, turns)] == expected


@given(st.lists(TURN.map(on_one_line), max_size=12))
def test_a_reverse_model_predicts_the_last_turn_of_each_history_from_the_reply(dialogue: list[str]) -> None:
    swapped = [([reply], split_turns(history)[-1]) for history, reply in examples(dialogue, 3)]
    assert [(split_turns(history), reply) for history, reply in examples(dialogue, 3, reverse=True)] == swapped


@given(st.lists(st.tuples(st.lists(TEXT.map(lambda text: text.replace("\t", " "))), TEXT)), st.integers(1, 4))
def test_given_histories_are_cut_and_reversed_like_those_of_dialogues(
    records: list[tuple[list[str], str]], turns: int
) -> None:
    histories, replies = ["\t".join(history) for history, _ in records], [reply for _, reply in records]
    spoken = [[text for turn in history if (text := on_one_line(turn))] for history, _ in records]
    cut, same = given_examples(histories, replies, turns)
    assert [split_turns(history) for history in cut] == [history[-turns:] for history in spoken]
    assert same == replies
    swapped, last = given_examples(histories, replies, turns, reverse=True)
    assert [split_turns(history) for history in swapped] == [
        [on_one_line(text)] * bool(text.split()) for text in replies
    ]
    assert last == [(history or [""])[-1] for history in spoken]


def test_only_replies_of_the_named_speaker_are_learned_and_reversed_the_same_pairs(tmp_path: Path) -> None:
    turns = [{"speaker": "user" if at % 2 == 0 else "bot", "text": text} for at, text in enumerate(TALK)]
    path = write_json(tmp_path / "talk.jsonl", turns)
    forward = read(path, speaker="bot", turns=1)
    assert forward == [("Hi.\t", "Hello."), (f"{TALK[2]}\t", TALK[3]), (f"{TALK[4]}\t", "Anna.")]
    reverse = read(path, speaker="bot", turns=1, reverse=True)
    assert reverse == [(f"{reply}\t", history.strip()) for history, reply in forward]
    assert len(read(path)) == 5
    assert len(read(path, speaker="user")) == 2
    assert refusal(path, speaker="Bot") == (
        ": no reply is by 'Bot', the corpus's speaker; replies are by 'bot', 'user'. Name one of them."
    )


def test_turns_without_a_speaker_are_learned_whatever_speaker_is_named(tmp_path: Path) -> None:
    path = write_json(tmp_path / "talk.jsonl", TALK)
    assert len(read(path, speaker="bot")) == 5


def test_a_reply_has_the_line_on_which_it_stands(tmp_path: Path) -> None:
    path = write(tmp_path / "talk.txt", "Hi.\nHello.\n\nBye.\n\nWho?\nMe.\nOh.\n")
    (chunk,) = reader(tmp_path).chunks(DialogueCorpus(path=path.name))
    assert [chunk.line(index) for index in range(3)] == [2, 7, 8]


def test_five_hundred_turns_are_as_many_examples_of_at_most_six_turns(tmp_path: Path) -> None:
    path = write_json(tmp_path / "talk.jsonl", [f"Turn {number}." for number in range(500)])
    records = read(path)
    assert len(records) == 499
    assert [len(split_turns(history)) for history, _ in records[:7]] == [1, 2, 3, 4, 5, 6, 6]
    assert records[-1] == ("\t".join(f"Turn {number}." for number in range(493, 499)), "Turn 499.")


def test_long_turns_are_read_in_parts_that_lose_nothing(tmp_path: Path) -> None:
    long = "word " * 200_000  # 1 MB
    path = write_json(tmp_path / "talk.jsonl", *[[long, f"{number}.", long] for number in range(9)])
    parts = list(read_examples(path, DialogueCorpus(path=path.name), turns=2, reverse=False))
    assert len(parts) > 1
    assert all(sum(map(len, [*histories, *replies])) < module.CHARACTERS + 3e6 for histories, replies, _ in parts)
    replies = [reply for _, part, _ in parts for reply in part]
    assert replies == [text for number in range(9) for text in (f"{number}.", long.strip())]
    assert [line for _, _, lines in parts for line in lines] == [1 + number // 2 for number in range(18)]


def test_examples_are_read_in_bounded_chunks(tmp_path: Path) -> None:
    path = write(tmp_path / "talk.txt", "Hi.\nHello.\n\n" * (CHUNK + 5))
    sizes = [len(replies) for _, replies, _ in read_examples(path, DialogueCorpus(path=path.name), 6, False)]
    assert sizes == [CHUNK, 5]


@pytest.mark.parametrize(
    ("name", "content", "corpus"),
    [
        ("t.tsv", "a\tb\n", TsvCorpus(path="t.tsv")),
        ("t.jsonl", '{"history": ["x", "", "y", "a"], "reply": "b"}\n', JsonlCorpus(path="t.jsonl")),
        ("t.jsonl", '{"history": "x\\ty\\ta", "reply": "b"}\n', JsonlCorpus(path="t.jsonl")),
        ("h.txt", "x\ty\ta\n", TextCorpus(files={"history": "h.txt", "reply": "r.txt"})),
    ],
)
def test_files_of_histories_and_replies_obey_the_settings_of_dialogues(
    tmp_path: Path, name: str, content: str, corpus: Corpus
) -> None:
    write(tmp_path / name, content)
    write(tmp_path / "r.txt", "b\n")
    ((history, reply),) = reader(tmp_path, turns=2).records(corpus)
    assert (split_turns(history)[-1], reply) == ("a", "b")
    assert len(split_turns(history)) == (1 if name == "t.tsv" else 2)
    assert list(reader(tmp_path, reverse=True).records(corpus)) == [("b\t", "a")]


def test_a_store_has_the_histories_and_replies_as_they_were_read_and_drops_what_filters_reject(tmp_path: Path) -> None:
    tokenizer = Tokenizer.learn(TALK * 4, 320, TokenizerSettings(symbols=(YOU, ME)))
    fields = Fields({"history": TurnsField(tokenizer), "reply": TextField(tokenizer)})
    long = "my name " * 60
    rows = [["Hi.", long, "Hello."], ["Hi.", "Hello."], ["Hi.", "Hello."], ["Hello.", "Hello."], ["a" * 99, "Hi."]]
    path = write_json(tmp_path / "talk.jsonl", *rows)
    data = Data(root=str(tmp_path), train=(DialogueCorpus(path=path.name),), longest=40)
    drop: tuple[Filter, ...] = ("empty", "long", "duplicate")  # those of the task
    store = build_store(data.train[0], data, fields, cache=tmp_path / "cache", drop=drop, keep_text=True)
    # The long reply is dropped, but not a long history; what was said may be repeated.
    assert store.report.dropped == {"empty": 0, "long": 1, "duplicate": 1}
    assert store.text(np.arange(4)) == {
        "history": [f"Hi.\t{long.strip()}", "Hi.\t", "Hello.\t", f"{'a' * 99}\t"],
        "reply": ["Hello.", "Hello.", "Hello.", "Hi."],
    }
    assert store.lengths["history"].max() > 40
    other = data.model_copy(update={"turns": 1})
    again = build_store(other.train[0], other, fields, cache=tmp_path / "cache", drop=drop, keep_text=True)
    assert again.folder != store.folder
    assert again.text(np.arange(1))["history"] == [f"{long.strip()}\t"]
