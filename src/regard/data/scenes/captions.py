"""Captions of scenes in English, German, French, Italian and Arabic, and what each word is about.

The phrasebook's languages inflect and join the words: gender and number agree, German has the dative and Arabic the
genitive after a relation, and an Arabic two is the dual.
"""

from functools import cache, lru_cache
from importlib.resources import files

from regard.data.phrasebook.arabic import Arabic
from regard.data.phrasebook.english import English
from regard.data.phrasebook.french import French
from regard.data.phrasebook.german import German
from regard.data.phrasebook.grammar import Lexeme, read_lexeme, sections
from regard.data.phrasebook.italian import Italian
from regard.data.phrasebook.language import Features, Form, Language, Word, invariable
from regard.data.scenes.description import Description, Group

LANGUAGES = ("en", "de", "fr", "it", "ar")
_CASES = {"de": "dat", "ar": "gen"}  # the case after a relation
_ORDER = {  # of noun and adjectives
    "en": ("size", "colour", "noun"),
    "de": ("size", "colour", "noun"),
    "fr": ("size", "noun", "colour"),
    "it": ("size", "noun", "colour"),
    "ar": ("noun", "colour", "size"),
}

Token = tuple[str, int | None]
"""A word and the number of the group it is about; None for articles and relations."""


@lru_cache(1 << 17)
def caption(description: Description, code: str) -> tuple[Token, ...]:
    """Return the words of the caption of a scene."""
    tokens = [(text, 0 if is_about else None) for text, is_about in _phrase(description.first, code, "nom")]
    if description.second is not None:
        tokens += [(form.text, None) for form in invariable(_lexicon()[description.relation].forms[code])]
        second = _phrase(description.second, code, _CASES.get(code, "nom"))
        tokens += [(text, 1 if is_about else None) for text, is_about in second]
    words, positions = _languages()[code].join([text for text, _ in tokens])
    groups: list[int | None] = [None] * len(words)
    for (_, group), position in zip(tokens, positions, strict=True):
        groups[position] = group  # only an article and a preposition share a word: d'un
    return tuple(zip(words, groups, strict=True))


@cache
def _phrase(group: Group, code: str, case: str) -> tuple[tuple[str, bool], ...]:
    """Return the tokens of a group, and whether each says something about it: number, noun and adjectives do."""
    noun = _lexicon()[group.kind].forms[code]
    number = "sg" if group.amount == 1 else "pl"
    agree = Features(noun.get("gender", ""), number, "3", "a" if group.amount == 1 else "")
    parts = {
        "noun": _noun(group, code, case, number),
        "colour": _adjective(group.colour, code, case, agree, group.amount, "after"),
        "size": _adjective(group.size, code, case, agree, group.amount, "before"),
    }
    article = _article(code, agree.gender, case) if group.amount == 1 else ()
    content = [*(() if group.amount == 1 else _number(group.amount, code, agree.gender))]
    content += [form for part in _ORDER[code] for form in parts[part]]
    return tuple((form.text, False) for form in article) + tuple((form.text, True) for form in content)


def _noun(group: Group, code: str, case: str, number: str) -> tuple[Form, ...]:
    word = Word("noun", group.kind, _lexicon()[group.kind].forms[code], number, frozenset())
    if code == "ar" and group.amount > 1:
        return tuple(_languages()[code].inflect(word, "counted", case, Features(number=str(group.amount))))
    return tuple(_languages()[code].inflect(word, "", case, Features()))


def _adjective(key: str, code: str, case: str, agree: Features, amount: int, place: str) -> tuple[Form, ...]:
    word = Word("adjective", key, _lexicon()[key].forms[code], "", frozenset())
    if code == "ar" and amount == 2:
        (form,) = _languages()[code].inflect(word, "", case, agree._replace(number="sg"))
        return (Form(dual(form.text, case)),)
    return tuple(_languages()[code].inflect(word, place if code in ("fr", "it") else "", case, agree))


def dual(text: str, case: str) -> str:
    """Return the dual of an Arabic adjective from its singular: حمراء becomes حمراوان, and صغيرة becomes صغيرتان."""
    stem = text[:-1] + "و" if text.endswith("اء") else text[:-1] + "ت" if text.endswith("ة") else text
    return stem + ("ان" if case == "nom" else "ين")


def _article(code: str, gender: str, case: str) -> tuple[Form, ...]:
    word = Word("determiner", "a", _lexicon()["a"].forms[code], "", frozenset())
    return tuple(_languages()[code].inflect(word, "", case, Features(gender, "sg", "3")))


def _number(amount: int, code: str, gender: str) -> tuple[Form, ...]:
    word = Word("number", str(amount), {}, "", frozenset())
    return tuple(_languages()[code].inflect(word, "count", "nom", Features(gender)))


@cache
def _languages() -> dict[str, Language]:
    return {language.code: language for language in (English(), German(), French(), Italian(), Arabic())}


@cache
def _lexicon() -> dict[str, Lexeme]:
    """Return the words of captions by their English form."""
    lines = sections(files("regard.data.scenes"), "words.txt")
    lexemes = (read_lexeme(category, line, where, _languages()) for where, category, line in lines)
    return {lexeme.key: lexeme for lexeme in lexemes}
