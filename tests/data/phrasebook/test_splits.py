"""The splits: no sentence in two of them, novel pairs unseen in train, and what decides stays where it is."""

import random

import pytest

from regard.data import phrasebook
from regard.data.phrasebook import LANGUAGES, SPLITS, book, lectures, phrases
from regard.data.phrasebook.grammar import Grammar
from regard.data.phrasebook.search import find

SIZES = {"train": 6000, "valid": 800, "test": 800, "novel": 800}


@pytest.mark.parametrize("to", LANGUAGES)
def test_no_english_sentence_and_no_translation_occurs_in_two_splits(to: str) -> None:
    sources: dict[str, str] = {}
    targets: dict[str, str] = {}
    for split in SPLITS:
        for phrase in phrases(to, split, SIZES[split], seed=11):
            assert sources.setdefault(phrase.source, split) == split
            assert targets.setdefault(phrase.target, split) == split, phrase


def test_what_is_novel_has_a_pair_of_words_that_train_never_has() -> None:
    known: set[tuple[str, str, str]] = set()
    for phrase in phrases("de", "train", 6000, seed=2):
        tree = find(phrase.source, book().grammar) if len(known) < 200 else None
        known |= set(tree.pairs) if tree else set()
    splitter = book().splitter
    assert known
    assert not any(splitter.held_out(pair) for pair in known)
    for phrase in phrases("de", "novel", 25, seed=2):
        tree = find(phrase.source, book().grammar)
        assert tree is not None
        held = {pair for pair in tree.pairs if splitter.held_out(pair)}
        assert held
        assert held.isdisjoint(known)


def test_every_content_word_of_novel_occurs_in_train() -> None:
    chooser, splitter = book().chooser, book().splitter
    dice = random.Random(5).random
    families: dict[str, set[str]] = {split: set() for split in SPLITS}
    for _ in range(30_000):
        tree = chooser.sentence(dice)
        split = splitter.split(tree)
        if split:
            families[split] |= {word for word in tree.key if not word.isdigit()}
    assert families["novel"] <= families["train"]
    assert families["test"] <= families["train"]
    assert families["valid"] <= families["train"]


def test_sentences_that_differ_in_pronoun_tense_article_or_number_stay_together() -> None:
    together = ["he bought a car", "she has bought the cars", "I will buy my car", "did they buy this car?"]
    trees = [find(sentence, book().grammar) for sentence in together]
    assert None not in trees
    assert len({book().splitter.split(tree) for tree in trees if tree}) == 1


def test_the_arabic_dual_stays_with_the_plural_that_looks_like_it() -> None:
    grammar, splitter = book().grammar, book().splitter
    dual, plural = find("she will see two authors", grammar), find("she will see authors", grammar)
    assert dual is not None
    assert plural is not None
    assert book().phrase(dual, "ar").target == book().phrase(plural, "ar").target
    assert splitter.split(dual) == splitter.split(plural)


def test_words_that_some_language_translates_alike_share_a_family() -> None:
    verbs = {lexeme.key: lexeme.family for lexeme in book().grammar.lexemes["verb"]}
    assert verbs["carry"] == verbs["wear"]  # both tragen and porter
    assert verbs["carry"] != verbs["read"]


@pytest.mark.parametrize("to", LANGUAGES)
def test_no_split_contains_a_lecture_sentence_or_its_translation(to: str) -> None:
    withheld = lectures(to)
    sources, targets = {p.source for p in withheld}, {p.target for p in withheld}
    for split in SPLITS:
        for phrase in phrases(to, split, 1500, seed=1):
            assert phrase.source not in sources
            assert phrase.target not in targets


def test_asking_for_more_than_a_split_has_ends_in_an_error_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    # A little grammar runs dry soon; the shipped one would take hours.
    small = phrasebook.Book(only_numbers())
    monkeypatch.setattr(phrasebook, "PATIENCE", 2000)
    with pytest.raises(ValueError, match=r"ran dry after \d+ of 100000 phrases"):
        list(small.draw("de", "valid", 100_000, seed=0))


def only_numbers() -> Grammar:
    grammar = book().grammar
    rules = {"sentence": [rule for rule in grammar.rules["sentence"] if rule.name == "the number"]}
    return Grammar(grammar.languages, grammar.lexemes, rules)
