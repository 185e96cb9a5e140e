"""Parts of speech of the phrasebook, compared with sentences that were tagged by hand."""

import random
from pathlib import Path

import pytest

from regard.data.corpus import Reader
from regard.data.phrasebook import LANGUAGES, default_phrasebook, look_up_tags, tagged_sentences
from regard.data.phrasebook.tags import PRIORITY
from regard.recipe import PhrasebookCorpus

TAGGED_BY_HAND = [
    ("en", "I can go alone", "I/PRON can/AUX go/VERB alone/ADJ"),
    ("en", "I love you very much", "I/PRON love/VERB you/PRON very/ADV much/ADV"),
    (
        "en",
        "the animal did not cross the street because it was too tired",
        "the/DET animal/NOUN did/AUX not/PART cross/VERB the/DET street/NOUN because/SCONJ it/PRON was/AUX too/ADV "
        "tired/ADJ",
    ),
    (
        "en",
        "I bought a new Windows for my computer",
        "I/PRON bought/VERB a/DET new/ADJ Windows/PROPN for/ADP my/PRON computer/NOUN",
    ),
    ("en", "she will turn on our television", "she/PRON will/AUX turn/VERB on/ADP our/PRON television/NOUN"),
    ("en", "did Anna read the book?", "did/AUX Anna/PROPN read/VERB the/DET book/NOUN ?/PUNCT"),
    ("en", "I cannot open the door", "I/PRON cannot/AUX open/VERB the/DET door/NOUN"),
    ("en", "Anna wanted to sell a book", "Anna/PROPN wanted/VERB to/PART sell/VERB a/DET book/NOUN"),
    ("en", "the number is five", "the/DET number/NOUN is/AUX five/NUM"),
    (
        "en",
        "Anna was born on the fifteenth of May",
        "Anna/PROPN was/AUX born/VERB on/ADP the/DET fifteenth/ADJ of/ADP May/PROPN",
    ),
    ("de", "she will turn on our television", "Sie/PRON wird/AUX unseren/DET Fernseher/NOUN einschalten/VERB"),
    ("de", "I opened the box", "Ich/PRON machte/VERB die/DET Kiste/NOUN auf/ADP"),
    (
        "de",
        "the animal did not cross the street because it was too wide",
        "Das/DET Tier/NOUN überquerte/VERB die/DET Straße/NOUN nicht/PART ,/PUNCT weil/SCONJ sie/PRON zu/ADV breit/ADJ "
        "war/AUX",
    ),
    (
        "fr",
        "the animal did not cross the street because it was too tired",
        "L'animal/NOUN n'a/AUX pas/ADV traversé/VERB la/DET rue/NOUN parce/ADV qu'il/SCONJ était/AUX trop/ADV "
        "fatigué/ADJ",
    ),
    ("fr", "I love you very much", "Je/PRON t'aime/VERB beaucoup/ADV"),
    ("it", "I can go alone", "Posso/AUX andare/VERB da/ADP solo/ADJ"),
    ("it", "the dog waits in front of the museum", "Il/DET cane/NOUN aspetta/VERB davanti/ADV al/ADP museo/NOUN"),
    ("ar", "I can go alone", "أستطيع/VERB الذهاب/NOUN وحيداً/ADJ"),
    (
        "ar",
        "the animal did not cross the street because it was too tired",
        "لم/PART يعبر/VERB الحيوان/NOUN الشارع/NOUN لأنه/SCONJ كان/AUX متعباً/ADJ جداً/ADV",
    ),
]


@pytest.mark.parametrize(("language", "sentence", "expected"), TAGGED_BY_HAND)
def test_a_sentence_has_the_tags_that_a_person_gave_it(language: str, sentence: str, expected: str) -> None:
    tagged = look_up_tags(sentence, language)
    assert tagged is not None
    assert " ".join(f"{word}/{tag}" for word, tag in zip(*tagged, strict=True)) == expected


@pytest.mark.parametrize("language", ["en", *LANGUAGES])
def test_every_rule_has_tags_and_the_words_are_those_of_the_translation(language: str) -> None:
    book = default_phrasebook()
    draw = random.Random(5).random
    rules = set()
    for _ in range(1500):
        derivation = book.sampler.sentence(draw)
        rules.add(derivation.rule.name)
        tagged = book.tagged(derivation, language)
        assert len(tagged.words) == len(tagged.tags)
        assert set(tagged.tags) <= set(PRIORITY)
        written = " ".join(book.realisers[language].sentence(derivation).words)
        assert "".join(tagged.words) == written.replace(" ", "")
    assert len(rules) == len({rule.name for rule in book.grammar.rules["sentence"]})


def test_tagged_sentences_are_distinct_and_splits_do_not_overlap() -> None:
    drawn = {
        split: {sentence.words for sentence in tagged_sentences("en", split, 100)}
        for split in ("train", "valid", "test")
    }
    assert all(len(sentences) == 100 for sentences in drawn.values())
    assert not drawn["train"] & drawn["test"]
    assert not drawn["train"] & drawn["valid"]


def test_a_recipe_tags_the_language_it_names() -> None:
    reader = Reader(("words", "tags"), Path())
    for language in ("en", "ar"):
        records = list(reader.records(PhrasebookCorpus(to=language, pairs=5)))
        expected = [(" ".join(words), " ".join(tags)) for words, tags in tagged_sentences(language, "train", 5)]
        assert records == expected


def test_english_is_no_target_language_of_a_translation() -> None:
    with pytest.raises(ValueError, match="translated from English, so name de, fr, it or ar"):
        Reader(("source", "target"), Path()).paths(PhrasebookCorpus(to="en"))


def test_a_language_without_a_grammar_is_an_error() -> None:
    with pytest.raises(ValueError, match="no language 'es': choose one of en, de, fr, it, ar"):
        tagged_sentences("es", "train", 1)
