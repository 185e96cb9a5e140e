"""Small talk: replies follow from their histories, the evidence is right, splits, and the corpus of a recipe."""

import hashlib
import re
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path

import pytest

from regard.data.corpus import Reader
from regard.data.fields.lists import join_list
from regard.data.smalltalk import FORMS, SPEAKERS, SPLITS, Dialogue, dialogues
from regard.recipe import Data, SmallTalkCorpus

SIZES = {"train": 20_000, "valid": 1000, "test": 1000}
WINDOW = Data.model_fields["turns"].default
RECALLED = {"direct", "pronoun", "ellipsis", "correction"}


@pytest.fixture(scope="module")
def drawn() -> dict[str, list[Dialogue]]:
    return {split: list(dialogues(split, SIZES[split], seed=5)) for split in SPLITS}


@pytest.fixture(scope="module")
def every(drawn: dict[str, list[Dialogue]]) -> list[Dialogue]:
    return [dialogue for split in SPLITS for dialogue in drawn[split]]


def words_of(text: str) -> list[str]:
    return re.findall(r"[\w']+|[^\w\s]", text.casefold())


def replies(dialogue: Dialogue) -> range:
    return range(1, len(dialogue.turns), len(SPEAKERS))


def test_a_dialogue_has_4_to_12_turns_and_ends_with_a_reply(every: list[Dialogue]) -> None:
    lengths = Counter(len(dialogue.turns) for dialogue in every)
    assert set(lengths) == {4, 6, 8, 10, 12}
    assert lengths[6] + lengths[8] + lengths[10] > 0.7 * len(every)
    for dialogue in every:
        assert len(dialogue.evidence) == len(dialogue.turns)


def test_each_turn_is_sentences_that_begin_with_a_capital(every: list[Dialogue]) -> None:
    for turn in {turn for dialogue in every for turn in dialogue.turns}:
        assert re.fullmatch(r"(?:[A-Z][\w']*(?:,? [\w']+)*[.!?](?: |$))+", turn), turn
        assert not turn.endswith(" ")


def test_an_article_fits_the_word_after_it(every: list[Dialogue]) -> None:
    for turn in {turn for dialogue in every for turn in dialogue.turns}:
        for article, word in pairwise(words_of(turn)):
            if article in ("a", "an"):
                assert (article == "an") == (word[0] in "aeiou"), turn


def test_a_history_has_one_right_reply(every: list[Dialogue]) -> None:
    right: dict[tuple[str, ...], str] = {}
    for dialogue in every:
        for turn in replies(dialogue):
            history = dialogue.turns[max(0, turn - WINDOW) : turn]
            assert right.setdefault(history, dialogue.turns[turn]) == dialogue.turns[turn]


def test_a_user_says_nothing_twice(every: list[Dialogue]) -> None:
    for dialogue in every:
        said = [turn for turn in dialogue.turns[:: len(SPEAKERS)] if len(turn.split()) > 2]
        repeated = {turn for turn, count in Counter(said).items() if count > 1}
        # Only what the bot could not answer at first is asked again, after it was told.
        assert all(turn.endswith("name?") or turn == "What am I called?" for turn in repeated)


def test_turns_of_the_user_have_no_evidence_and_those_of_the_bot_have(every: list[Dialogue]) -> None:
    for dialogue in every:
        for turn, evidence in enumerate(dialogue.evidence):
            assert (evidence is None) == (SPEAKERS[turn % 2] == "user")


def test_the_words_of_the_evidence_stand_in_the_reply(every: list[Dialogue]) -> None:
    for dialogue in every:
        for turn in replies(dialogue):
            evidence = dialogue.evidence[turn]
            assert evidence is not None
            gold = [dialogue.turns[evidence.turn][begin:end] for begin, end in evidence.words]
            reply = [dialogue.turns[turn][begin:end] for begin, end in evidence.reply_words]
            assert [word.casefold() for word in gold] == [word.casefold() for word in reply]
            assert all(re.fullmatch(r"\w+(?: \w+)*", word) for word in gold)


def test_every_dialogue_has_a_reply_whose_evidence_is_in_the_window_but_not_the_last_turn(
    every: list[Dialogue],
) -> None:
    distances: Counter[int] = Counter()
    for dialogue in every:
        assert dialogue.recalled
        for turn in replies(dialogue):
            evidence = dialogue.evidence[turn]
            assert evidence is not None
            if dialogue.is_recalled(turn):
                distances[turn - evidence.turn] += 1
                assert evidence.words
                assert turn in dialogue.recalled
            else:
                assert evidence.turn == turn - 1
            assert dialogue.is_recalled(turn) == (evidence.form in RECALLED)
    assert set(distances) == {3, 4, 5, 6}
    assert WINDOW == 6


def test_the_words_that_decide_a_recalled_reply_stand_in_no_other_turn_of_the_history(every: list[Dialogue]) -> None:
    for dialogue in every:
        for turn in dialogue.recalled:
            evidence = dialogue.evidence[turn]
            assert evidence is not None
            others = [dialogue.turns[number] for number in range(max(0, turn - WINDOW), turn)]
            others.remove(dialogue.turns[evidence.turn])
            said = {word for text in others for word in words_of(text)}
            for begin, end in evidence.words:
                assert dialogue.turns[evidence.turn][begin:end].casefold().split()[-1] not in said


def test_the_last_turn_alone_does_not_answer_a_question_about_an_earlier_one(drawn: dict[str, list[Dialogue]]) -> None:
    answers: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for dialogue in drawn["train"]:
        for turn in dialogue.recalled:
            answers[dialogue.turns[turn - 1]][dialogue.turns[turn]] += 1
    guessed = [
        answers[dialogue.turns[turn - 1]].most_common(1)[0][0] == dialogue.turns[turn]
        for dialogue in drawn["test"]
        for turn in dialogue.recalled
        if answers[dialogue.turns[turn - 1]]
    ]
    assert len(guessed) > 500
    assert sum(guessed) < 0.15 * len(guessed)


def test_a_question_that_no_turn_answers_is_one_that_another_dialogue_answers(every: list[Dialogue]) -> None:
    asked = {dialogue.turns[turn - 1] for dialogue in every for turn in dialogue.recalled}
    unknown = [
        dialogue.turns[turn - 1]
        for dialogue in every
        for turn, evidence in enumerate(dialogue.evidence)
        if evidence is not None and evidence.form == "unknown"
    ]
    assert len(unknown) > 500
    assert set(unknown) <= asked


def test_a_corrected_value_stands_in_an_earlier_turn_than_the_right_one(every: list[Dialogue]) -> None:
    corrected = {"name": 0, "age": 0, "order": 0, "time": 0}
    for dialogue in every:
        for turn in dialogue.recalled:
            evidence = dialogue.evidence[turn]
            assert evidence is not None
            if evidence.form == "correction":
                corrected[evidence.kind] += 1
                assert evidence.turn >= 2
    assert min(corrected.values()) > 30


def test_every_form_occurs(every: list[Dialogue]) -> None:
    found = Counter(evidence.form for dialogue in every for evidence in dialogue.evidence if evidence is not None)
    assert set(found) == set(FORMS)
    assert min(found.values()) > 500


def test_no_question_occurs_in_two_splits_with_the_turns_it_depends_on(drawn: dict[str, list[Dialogue]]) -> None:
    split_of: dict[tuple[str, ...], str] = {}
    for split in SPLITS:
        for dialogue in drawn[split]:
            for turn in dialogue.recalled:
                evidence = dialogue.evidence[turn]
                assert evidence is not None
                before = dialogue.turns[turn - 3] if evidence.form == "ellipsis" else ""
                needed = dialogue.turns[turn - 1], dialogue.turns[evidence.turn], before
                assert split_of.setdefault(needed, split) == split


def test_every_word_of_valid_and_test_occurs_in_train(drawn: dict[str, list[Dialogue]]) -> None:
    words = {
        split: {word for dialogue in drawn[split] for turn in dialogue.turns for word in words_of(turn)}
        for split in SPLITS
    }
    assert words["valid"] | words["test"] <= words["train"]
    assert 300 <= len(words["train"]) <= 600


def test_50_000_dialogues_are_distinct_and_another_seed_repeats_few_of_them() -> None:
    one = {dialogue.turns for dialogue in dialogues("train", 50_000, seed=1)}
    assert len(one) == 50_000
    other = {dialogue.turns for dialogue in dialogues("train", 5_000, seed=2)}
    assert len(one & other) < 0.05 * len(other)


def test_a_seed_gives_the_same_dialogues_everywhere_and_another_seed_gives_others() -> None:
    turns = [dialogue.turns for dialogue in dialogues("test", 50, seed=3)]
    assert turns == [dialogue.turns for dialogue in dialogues("test", 50, seed=3)]
    assert turns != [dialogue.turns for dialogue in dialogues("test", 50, seed=4)]
    # Random.random and BLAKE2 are the same on every machine.
    assert (
        hashlib.sha256("\n".join("\n".join(turn) for turn in turns).encode()).hexdigest().startswith("8471eeea810803d6")
    )


def test_a_wrong_split_or_count_is_an_error() -> None:
    with pytest.raises(ValueError, match="no split 'novel': choose one of train, valid, test"):
        dialogues("novel", 1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="ask for 0 or more"):
        dialogues("train", -1)


@pytest.mark.parametrize("speaker", ["", *SPEAKERS])
def test_a_recipe_reads_the_replies_of_a_speaker_with_their_histories(speaker: str) -> None:
    corpus = SmallTalkCorpus.model_validate({"count": 20, "split": "valid", "speaker": speaker})
    records = list(Reader(("history", "reply"), Path(), seed=1, turns=3).records(corpus))
    expected = [
        (join_list(dialogue.turns[max(0, turn - 3) : turn]), dialogue.turns[turn])
        for dialogue in dialogues("valid", 20, seed=1)
        for turn in range(1, len(dialogue.turns))
        if speaker in ("", SPEAKERS[turn % 2])
    ]
    assert records == expected
