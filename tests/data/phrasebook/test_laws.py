"""Laws of every phrase: valid links, aligned words, one translation, and the same draw on every machine."""

from collections.abc import Callable
from hashlib import sha256
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.data import phrasebook
from regard.data.phrasebook import LANGUAGES, SPLITS, Phrase, phrases

KINDS = {"subject-verb", "verb-object", "adjective-noun", "pronoun-antecedent"}
# Words of the target without a meaning of their own: only a separate question mark.
SILENT = {"?"}

any_language = st.sampled_from(LANGUAGES)
any_split = st.sampled_from(SPLITS)
any_seed = st.integers(0, 10**6)


def draw(to: str, split: str, count: int, seed: int) -> list[Phrase]:
    return list(phrases(to, split, count, seed))


@settings(max_examples=40, deadline=None)
@given(any_language, any_split, any_seed)
def test_links_and_relations_are_between_words_of_the_sentence(to: str, split: str, seed: int) -> None:
    for phrase in draw(to, split, 20, seed):
        source, target = phrase.source.split(), phrase.target.split()
        assert all(0 <= link.source < len(source) and 0 <= link.target < len(target) for link in phrase.alignment)
        for words, relations in ((source, phrase.relations), (target, phrase.target_relations)):
            assert all(0 <= r.start < len(words) and 0 <= r.end < len(words) for r in relations)
            assert {r.kind for r in relations} <= KINDS


@settings(max_examples=40, deadline=None)
@given(any_language, any_split, any_seed)
def test_every_word_but_an_english_article_has_a_link(to: str, split: str, seed: int) -> None:
    # Stronger than covering content words: in these languages the only words without a link are punctuation
    # and an English article that the other language does without.
    for phrase in draw(to, split, 25, seed):
        linked = {link.source for link in phrase.alignment}, {link.target for link in phrase.alignment}
        left = [word for i, word in enumerate(phrase.source.split()) if i not in linked[0]]
        assert set(left) <= {"a", "an"}, phrase
        right = [word for i, word in enumerate(phrase.target.split()) if i not in linked[1]]
        assert set(right) <= SILENT, phrase


@settings(max_examples=25, deadline=None)
@given(any_language, any_split, any_seed)
def test_a_longer_draw_with_the_same_seed_begins_with_the_shorter(to: str, split: str, seed: int) -> None:
    longer = draw(to, split, 30, seed)
    assert draw(to, split, 30, seed) == longer
    assert list(islice(phrases(to, split, 10, seed), 10)) == longer[:10]


def test_the_draw_is_the_same_on_every_machine_and_python_version() -> None:
    # Recorded once; only a change of the grammar, the lexicon or the drawing may change it.
    text = "\n".join(f"{p.source}\t{p.target}\t{p.pharaoh()}" for to in LANGUAGES for p in draw(to, "train", 50, 7))
    assert len(text.splitlines()) == 200
    assert sha256(text.encode()).hexdigest()[:16] == RECORDED


RECORDED = "8f9f0b95e9a9558a"


@pytest.mark.parametrize("to", LANGUAGES)
def test_an_english_sentence_has_one_translation_and_pairs_are_distinct(to: str) -> None:
    seen: dict[str, str] = {}
    for seed in range(3):
        batch = draw(to, "train", 4000, seed)
        assert len({phrase.source for phrase in batch}) == len(batch)
        for phrase in batch:
            assert seen.setdefault(phrase.source, phrase.target) == phrase.target


def test_the_english_side_is_the_same_for_all_languages() -> None:
    sides = [[phrase.source for phrase in draw(to, "novel", 200, 3)] for to in LANGUAGES]
    assert all(side == sides[0] for side in sides)


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: phrases("xx", "train", 1), "de, fr, it, ar"),
        (lambda: phrases("de", "dev", 1), "train, valid, test, novel"),
        (lambda: phrases("de", "train", -1), "0 or more"),
        (lambda: phrasebook.lectures("en"), "de, fr, it, ar"),
    ],
)
def test_the_error_of_an_unknown_name_lists_the_known_ones(call: Callable[[], object], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        call()


def test_a_count_of_zero_gives_nothing() -> None:
    assert draw("de", "train", 0, 0) == []


def test_the_pharaoh_format_distinguishes_sure_and_possible_links() -> None:
    phrase = phrasebook.look_up("I closed the windows", "it")
    assert phrase is not None
    assert phrase.target == "Ho chiuso le finestre"
    assert phrase.pharaoh() == "0p0 0p1 1p0 1-1 2-2 3-3"


def test_independent_draws_have_few_sentences_in_common() -> None:
    first, second = ({phrase.source for phrase in draw("de", "train", 3000, seed)} for seed in (1, 2))
    # The Lincoln-Petersen estimate of the number of sentences, from how many were drawn twice. Short sentences are
    # drawn far more often than long ones, so it is far too low, and still in the tens of thousands.
    assert len(first) * len(second) / max(1, len(first & second)) > 30_000
