"""The splits are disjoint, and novel has word pairs that train does not have."""

import random

import pytest

from regard.data import phrasebook
from regard.data.phrasebook import LANGUAGES, SPLITS, default_phrasebook, lectures, phrases
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


def test_a_novel_sentence_has_a_pair_of_words_that_train_never_has() -> None:
    known: set[tuple[str, str, str]] = set()
    for phrase in phrases("de", "train", 6000, seed=2):
        derivation = find(phrase.source, default_phrasebook().grammar) if len(known) < 200 else None
        known |= set(derivation.pairs) if derivation else set()
    splitter = default_phrasebook().splitter
    assert known
    assert not any(splitter.held_out(pair) for pair in known)
    for phrase in phrases("de", "novel", 25, seed=2):
        derivation = find(phrase.source, default_phrasebook().grammar)
        assert derivation is not None
        held = {pair for pair in derivation.pairs if splitter.held_out(pair)}
        assert held
        assert held.isdisjoint(known)


def test_every_content_word_of_novel_occurs_in_train() -> None:
    sampler, splitter = default_phrasebook().sampler, default_phrasebook().splitter
    draw = random.Random(5).random
    families: dict[str, set[str]] = {split: set() for split in SPLITS}
    for _ in range(30_000):
        derivation = sampler.sentence(draw)
        split = splitter.split(derivation)
        if split:
            families[split] |= {word for word in derivation.key if not word.isdigit()}
    assert families["novel"] <= families["train"]
    assert families["test"] <= families["train"]
    assert families["valid"] <= families["train"]


def test_sentences_that_differ_only_in_function_words_are_in_one_split() -> None:
    together = ["he bought a car", "she has bought the cars", "I will buy my car", "did they buy this car?"]
    derivations = [find(sentence, default_phrasebook().grammar) for sentence in together]
    assert None not in derivations
    assert len({default_phrasebook().splitter.split(derivation) for derivation in derivations if derivation}) == 1


def test_the_arabic_dual_is_in_the_split_of_an_equal_plural() -> None:
    grammar, splitter = default_phrasebook().grammar, default_phrasebook().splitter
    dual, plural = find("she will see two authors", grammar), find("she will see authors", grammar)
    assert dual is not None
    assert plural is not None
    assert default_phrasebook().phrase(dual, "ar").target == default_phrasebook().phrase(plural, "ar").target
    assert splitter.split(dual) == splitter.split(plural)


def test_words_with_the_same_translation_share_a_family() -> None:
    verbs = {lexeme.key: lexeme.family for lexeme in default_phrasebook().grammar.lexemes["verb"]}
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


def test_asking_for_more_phrases_than_a_split_has_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    # A small grammar is soon exhausted; that of the package would take hours.
    small = phrasebook.Phrasebook(only_numbers())
    monkeypatch.setattr(phrasebook, "PATIENCE", 2000)
    with pytest.raises(ValueError, match=r"has no more than \d+ of the 100000 phrases"):
        list(small.draw("de", "valid", 100_000, seed=0))


def only_numbers() -> Grammar:
    grammar = default_phrasebook().grammar
    rules = {"sentence": [rule for rule in grammar.rules["sentence"] if rule.name == "the number"]}
    return Grammar(grammar.languages, grammar.lexemes, rules)
