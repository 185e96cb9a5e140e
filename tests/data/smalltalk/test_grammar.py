"""The tables of small talk: what a reply may depend on, and errors that name file and line."""

import random
from pathlib import Path

import pytest

from regard.data.smalltalk.grammar import ROLES, Topic, load
from regard.data.smalltalk.sampling import DialogueSampler

WORDS = """name: Ann, Ben, Cleo, Dan
person he his: brother/he/his, sister/she/her
friend he his: Eve/she/her, Finn/he/his
dish bare: a pie/pie, a soup/soup
"""
UNRELATED = "  user Well.\n  bot Yes.\n"
OTHERS = """
opening greeting 1
  user  Hello.
  bot   Hello.
filler talk 1
  user  It is cold.
  bot   Yes.
closing thanks 1
  user  Thanks.
  bot   Bye.
"""


def topics(folder: Path, exchanges: str, words: str = WORDS) -> list[Topic]:
    (folder / "words.txt").write_text(words, encoding="utf-8")
    (folder / "exchanges.txt").write_text(exchanges + OTHERS, encoding="utf-8")
    return list(load(folder)["topic"])


def test_the_reply_depends_on_the_turn_that_has_its_words(tmp_path: Path) -> None:
    (topic,) = topics(
        tmp_path,
        "topic order 2\n  user I want {dish}.\n  bot We have no {dish.bare}. Does {name} know?\n"
        "  then {name2} does.\n  bot Good.\n  ask What do I want? | What was it?\n  bot You want {dish}.\n"
        "  or ask What do you not have?\n  bot We have no {dish.bare}.\n".replace("Does {name} know?", "Who knows?"),
    )
    first, second = topic.steps[2]
    assert (first.gold, first.words) == ((0, 0), (("dish", 0),))
    assert (second.gold, second.words) == ((0, 1), (("dish", 1),))
    assert [exchange.follows for step in topic.steps for exchange in step] == [False, True, False, False]
    assert len(topic.told().steps) == 2


def test_agreeing_words_have_the_same_pronouns_and_sentences_begin_with_a_capital(tmp_path: Path) -> None:
    topics(
        tmp_path,
        "topic name 1\n  user My {person} is {friend:person}.\n  bot Nice.\n"
        "  pronoun What is {person.his} name?\n  bot {person.his} name is {friend}. {person.he} is nice.\n",
    )
    found = set()
    for split in ("train", "valid", "test"):
        sampler = DialogueSampler(load(tmp_path), split)
        draw = random.Random(1).random
        for _ in range(30):
            dialogue = sampler.draw(draw)
            found |= set(dialogue.turns) if dialogue else set()
    assert {"Her name is Eve. She is nice.", "His name is Finn. He is nice."} <= found
    assert not {turn for turn in found if "brother is Eve" in turn or "sister is Finn" in turn}


@pytest.mark.parametrize(
    ("exchanges", "message"),
    [
        ("  user Hello.\n", r"txt:1: this line is before any topic"),
        ("topic name\n", r"txt:1: a topic begins with role, kind and weight"),
        ("topic name 1\n", r"txt:1: this topic has no exchange"),
        ("topic name 1\n  say Hello.\n", r"txt:2: the lines of a topic begin with about, bot, or, user"),
        ("topic name 1\n  user Hello.\n", r"txt:2: each turn of the user is followed by a line with bot"),
        ("topic name 1\n  or user Hello.\n  bot Hi.\n", r"txt:2: an exchange is a line with user"),
        ("topic name 1\n  user Hello\n  bot Hi.\n", r"txt:2: a turn is sentences with slots"),
        ("topic name 1\n  user {town}.\n  bot Hi.\n", r"txt:2: no slot 'town' in words.txt"),
        ("topic name 1\n  user {name.he}.\n  bot Hi.\n", r"txt:2: 'name' has no form 'he'"),
        ("topic name 1\n  user {friend:person}.\n  bot Hi.\n", r"txt:2: 'friend' cannot agree with 'person'"),
        ("topic name 1\n  user Hello.\n  bot Hi, {name}.\n", r"txt:2: the reply has 'name', but the turn before it"),
        ("topic name 1\n  user {name}.\n  bot Hi.\n  ask Who?\n  bot {name2}.\n", r"txt:4: 0 earlier turns have"),
        (
            "topic name 1\n  user {name}.\n  bot Hi, {name}.\n  ask Who?\n  bot {name}.\n",
            "txt:4: 2 earlier turns",
        ),
        (
            "topic name 1\n  user {name}. | Me.\n  bot Hi.\n  ask Who?\n  bot {name}.\n",
            r"txt:4: an earlier turn has only some words of the reply",
        ),
        (
            "topic name 1\n  user {name}.\n  bot Hi.\n  ask Who? | {name}?\n  bot {name}.\n",
            r"txt:4: the wordings of a turn lack different slots",
        ),
        (
            "topic name 1\n  user {name}.\n  bot Hi.\n"
            + "  user Well.\n  bot Yes.\n" * 2
            + "  ask Who?\n  bot {name}.\n",
            r"txt:8: the reply depends on a turn 7 turns back, but the limit is 6",
        ),
    ],
)
def test_a_wrong_table_is_an_error_with_file_and_line(tmp_path: Path, exchanges: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        topics(tmp_path, exchanges)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("name Ann\n", r"words\.txt:1: a line is `slot: word, word`"),
        ("name = other\n", r"words\.txt:1: a line is"),
        ("name: Ann, Ann\n", r"words\.txt:1: a slot has a name and distinct words"),
        ("person he: brother/he, sister\n", r"words\.txt:1: expected person/he, found 'sister'"),
    ],
)
def test_a_wrong_list_of_words_is_an_error_with_file_and_line(tmp_path: Path, words: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        topics(tmp_path, "", words)


def test_a_missing_role_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"exchanges\.txt has no topic: add one"):
        topics(tmp_path, "")
    assert ROLES == ("opening", "topic", "filler", "closing")
