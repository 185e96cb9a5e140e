"""The grammar is data: a word is one line, a rule is one line a language, and a bad line says where it stands."""

import random
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import pytest

from regard.data.phrasebook import LANGUAGES, Book
from regard.data.phrasebook.derivation import ANY, Chooser
from regard.data.phrasebook.grammar import LEXICON, RULES, Grammar, load
from regard.data.phrasebook.search import find, trees

Edit = Callable[[str, str, str], Path]


@pytest.fixture
def edited(tmp_path: Path) -> Edit:
    """A copy of the grammar in which one piece of text has been replaced."""

    def edit(name: str, old: str, new: str) -> Path:
        for file in (*LEXICON, RULES):
            text = (files("regard.data.phrasebook") / file).read_text(encoding="utf-8")
            if file == name:
                assert old in text
                text = text.replace(old, new, 1)
            (tmp_path / file).write_text(text, encoding="utf-8")
        return tmp_path

    return edit


def said(book: Book, sentence: str, to: str) -> str:
    tree = find(sentence, book.grammar)
    assert tree is not None, sentence
    return book.phrase(tree, to).target


def test_a_word_is_added_by_one_line(edited: Edit) -> None:
    line = "penguin | animal | der Pinguin, Pinguine | pingouin m | pinguino m | بطريق m بطاريق*\n"
    folder = edited("nouns.txt", "[noun]\n", "[noun]\n" + line)
    book = Book(load(folder))
    sentence = "the penguin did not cross the street because it was too tired"
    assert said(book, sentence, "de") == "Der Pinguin überquerte die Straße nicht, weil er zu müde war"
    assert said(book, sentence, "it") == "Il pinguino non ha attraversato la strada perché era troppo stanco"
    assert said(book, "I saw two penguins", "ar") == "رأيت بطريقين"
    assert said(book, "the penguins will sleep", "fr") == "Les pingouins dormiront"


def test_an_aspirate_h_is_marked_in_the_lexicon_and_does_not_elide(edited: Edit) -> None:
    line = "owl | animal | die Eule, Eulen | *hibou m hiboux | gufo m | بومة f بوم\n"
    book = Book(load(edited("nouns.txt", "[noun]\n", "[noun]\n" + line)))
    assert said(book, "the owl sleeps", "fr") == "Le hibou dort"


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
    book = Book(load(folder))
    tree = find("here is Anna", book.grammar)
    assert tree is not None
    drawn = {to: book.phrase(tree, to) for to in LANGUAGES}
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
def test_a_bad_word_is_an_error_with_file_line_and_remedy(
    edited: Edit, name: str, section: str, line: str, message: str
) -> None:
    folder = edited(name, section + "\n", section + "\n" + line)
    number = (folder / name).read_text(encoding="utf-8").splitlines().index(line.strip()) + 1
    with pytest.raises(ValueError, match=rf"{name}:{number}: .*{message}"):
        load(folder)


def test_a_word_before_any_section_is_an_error(edited: Edit) -> None:
    with pytest.raises(ValueError, match=r"nouns.txt:\d+: .*before any section"):
        load(edited("nouns.txt", "[noun]\n", RAT + "[noun]\n"))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("rule np 5 plain", "rule np often plain", "a rule opens with category and weight"),
        (NOUN_PHRASE, "  xx    {det@noun} {noun}", ".*found 'xx'"),
        (NOUN_PHRASE + "\n", "", ".*has no line for en"),
        (NOUN_PHRASE, "  en    {det@noun} {nuon}", r".*uses \{nuon\}, but has: noun, det"),
        (NOUN_PHRASE, "  en    {det@noun {noun}", "a slot in a template"),
        ("det=determiner:!noun.shuns\n", "det=determinant\n", ".*wants a 'determinant'"),
        ("has   who=name:?", "has   who=name:persn", ".*'persn'.*near: person"),
        ("bind  adjective-noun adj noun", "bind  adjective-noun adj", "a link is one of"),
        ("bind  adjective-noun adj noun", "bind  adjective-noun adj nuon", ".*names a slot that"),
        ("has   who=pronoun:?", "has   who:pronoun", "a slot is name=category"),
    ],
)
def test_a_bad_rule_is_an_error_with_file_line_and_remedy(edited: Edit, old: str, new: str, message: str) -> None:
    with pytest.raises(ValueError, match=rf"rules.txt:\d+: {message}"):
        load(edited(RULES, old, new))


def test_there_are_words_enough() -> None:
    grammar = load()
    words = [lexeme for group in grammar.lexemes.values() for lexeme in group]
    for code in ("en", *LANGUAGES):
        assert len({(word.category, word.forms[code]["text"]) for word in words}) >= 250


def test_every_rule_is_used_and_none_crowds_out_the_others() -> None:
    book = Book(load())
    dice = random.Random(9).random
    drawn = [book.chooser.sentence(dice).rule.name for _ in range(6000)]
    names = {rule.name for rule in book.grammar.rules["sentence"]}
    assert set(drawn) == names
    assert max(drawn.count(name) for name in names) < 0.12 * len(drawn)


def test_counting_derivations_agrees_with_listing_them() -> None:
    grammar = load()
    few = {category: group[:3] for category, group in grammar.lexemes.items()}
    few["verb"] = [lexeme for lexeme in grammar.lexemes["verb"] if lexeme.key in {"invite", "cross", "be"}]
    few["adjective"] = [lexeme for lexeme in grammar.lexemes["adjective"] if lexeme.classes & {"state"}]
    rules = dict(grammar.rules)
    rules["sentence"] = [rule for rule in rules["sentence"] if rule.name in {"transitive", "was", "and"}]
    small = Chooser(Grammar(grammar.languages, few, rules))
    listed = sum(1 for rule in rules["sentence"] for _ in trees(rule, small, ANY, set()))
    assert small.count() == listed > 1000
