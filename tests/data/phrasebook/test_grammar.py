"""The grammar is data: words and rules are added by lines of text, and errors name the file and the line."""

import random
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import pytest

from regard.data.phrasebook import LANGUAGES, Phrasebook
from regard.data.phrasebook.grammar import LEXICON, RULES, load
from regard.data.phrasebook.search import find

Edit = Callable[[str, str, str], Path]


@pytest.fixture
def edited(tmp_path: Path) -> Edit:
    """Return a function that copies the grammar and replaces a piece of its text."""

    def edit(name: str, old: str, new: str) -> Path:
        for file in (*LEXICON, RULES):
            text = (files("regard.data.phrasebook") / file).read_text(encoding="utf-8")
            if file == name:
                assert old in text
                text = text.replace(old, new, 1)
            (tmp_path / file).write_text(text, encoding="utf-8")
        return tmp_path

    return edit


def translated(phrasebook: Phrasebook, sentence: str, to: str) -> str:
    derivation = find(sentence, phrasebook.grammar)
    assert derivation is not None, sentence
    return phrasebook.phrase(derivation, to).target


def test_a_word_is_added_by_one_line(edited: Edit) -> None:
    line = "penguin | animal | der Pinguin, Pinguine | pingouin m | pinguino m | بطريق m بطاريق*\n"
    folder = edited("nouns.txt", "[noun]\n", "[noun]\n" + line)
    phrasebook = Phrasebook(load(folder))
    sentence = "the penguin did not cross the street because it was too tired"
    assert translated(phrasebook, sentence, "de") == "Der Pinguin überquerte die Straße nicht, weil er zu müde war"
    assert (
        translated(phrasebook, sentence, "it") == "Il pinguino non ha attraversato la strada perché era troppo stanco"
    )
    assert translated(phrasebook, "I saw two penguins", "ar") == "رأيت بطريقين"
    assert translated(phrasebook, "the penguins will sleep", "fr") == "Les pingouins dormiront"


def test_there_is_no_elision_before_an_aspirate_h(edited: Edit) -> None:
    line = "owl | animal | die Eule, Eulen | *hibou m hiboux | gufo m | بومة f بوم\n"
    phrasebook = Phrasebook(load(edited("nouns.txt", "[noun]\n", "[noun]\n" + line)))
    assert translated(phrasebook, "the owl sleeps", "fr") == "Le hibou dort"


def test_a_rule_is_added_by_one_line_for_each_language(edited: Edit) -> None:
    rule = """
rule sentence 3 here is
  has   who=name
  en    here is {who}
  de    hier~here ist~is {who}
  fr    voici~here+is {who}
  it    ecco~here+is {who}
  ar    هنا~here+is? {who}
"""
    folder = edited(RULES, "# ---------------------------------------------------------------- being\n", rule)
    phrasebook = Phrasebook(load(folder))
    derivation = find("here is Anna", phrasebook.grammar)
    assert derivation is not None
    drawn = {to: phrasebook.phrase(derivation, to) for to in LANGUAGES}
    assert [drawn[to].target for to in LANGUAGES] == ["Hier ist Anna", "Voici Anna", "Ecco Anna", "هنا آنا"]
    assert drawn["de"].pharaoh() == "0-0 1-1 2-2"
    assert drawn["ar"].pharaoh() == "0-0 1p0 2-1"


RAT = "rat | animal | die Ratte, Ratten | rat m | ratto m | جرذ m جرذان\n"
HOP = "hop | acts | hüpfen | sauter | saltare | قفز يقفز قفز\n"
NOUN_PHRASE = "  en    {det@noun} {noun}"


@pytest.mark.parametrize(
    ("name", "section", "line", "message"),
    [
        ("nouns.txt", "[noun]", "rat | animal | die Ratte, Ratten | rat m\n", "expected 6 fields"),
        ("nouns.txt", "[noun]", RAT.replace("die Ratte, Ratten", "Ratte"), "die Katze, Katzen"),
        ("nouns.txt", "[noun]", RAT.replace("rat m", "rat"), "chat m"),
        ("nouns.txt", "[noun]", RAT.replace("ratto m", "ratto"), "gatto m"),
        ("nouns.txt", "[noun]", RAT.replace("m جرذان", "m"), "singular, gender and plural"),
        ("nouns.txt", "[noun]", RAT.replace("rat |", "sheep sheep |"), "`single`"),
        ("verbs.txt", "[verb]", HOP.replace("hop", "go went"), "see saw seen"),
        ("verbs.txt", "[verb]", HOP.replace("قفز يقفز قفز", "قفز يقفز"), "past, present and verbal noun"),
        ("verbs.txt", "[verb]", HOP.replace("sauter", "bondir"), "not in -er"),
        ("verbs.txt", "[verb]", HOP.replace("hüpfen", "hüpfen hüpfte"), "gehen ging gegangen geht"),
        ("verbs.txt", "[verb]", HOP.replace("saltare", "salt"), "io tu lui noi loro"),
    ],
)
def test_the_error_of_a_bad_word_names_file_and_line(
    edited: Edit, name: str, section: str, line: str, message: str
) -> None:
    folder = edited(name, section + "\n", section + "\n" + line)
    number = (folder / name).read_text(encoding="utf-8").splitlines().index(line.strip()) + 1
    with pytest.raises(ValueError, match=rf"{name}:{number}: .*{message}"):
        load(folder)


def test_a_word_before_any_section_raises(edited: Edit) -> None:
    with pytest.raises(ValueError, match=r"nouns.txt:\d+: .*before any section"):
        load(edited("nouns.txt", "[noun]\n", RAT + "[noun]\n"))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("rule np 5 plain", "rule np often plain", "a rule starts with category and weight"),
        (NOUN_PHRASE, "  xx    {det@noun} {noun}", ".*found 'xx'"),
        (NOUN_PHRASE + "\n", "", ".*has no line for en"),
        (NOUN_PHRASE, "  en    {det@noun} {nuon}", r".*uses \{nuon\}, but has only: noun, det"),
        (NOUN_PHRASE, "  en    {det@noun {noun}", "a slot in a template"),
        ("det=determiner:!noun.shuns\n", "det=determinant\n", ".*wants a 'determinant'"),
        ("has   who=name:?", "has   who=name:persn", ".*'persn'.*similar: person"),
        ("bind  adjective-noun adj noun", "bind  adjective-noun adj", "a relation is one of"),
        ("bind  adjective-noun adj noun", "bind  adjective-noun adj nuon", ".*names a slot that"),
        ("has   who=pronoun:?", "has   who:pronoun", "a slot is name=category"),
    ],
)
def test_the_error_of_a_bad_rule_names_file_and_line(edited: Edit, old: str, new: str, message: str) -> None:
    with pytest.raises(ValueError, match=rf"rules.txt:\d+: {message}"):
        load(edited(RULES, old, new))


def test_the_lexicon_has_at_least_250_words() -> None:
    grammar = load()
    words = [lexeme for group in grammar.lexemes.values() for lexeme in group]
    for code in ("en", *LANGUAGES):
        assert len({(word.category, word.forms[code]["text"]) for word in words}) >= 250


def test_every_rule_is_drawn_and_none_dominates() -> None:
    phrasebook = Phrasebook(load())
    draw = random.Random(9).random
    drawn = [phrasebook.sampler.sentence(draw).rule.name for _ in range(6000)]
    names = {rule.name for rule in phrasebook.grammar.rules["sentence"]}
    assert set(drawn) == names
    assert max(drawn.count(name) for name in names) < 0.12 * len(drawn)
