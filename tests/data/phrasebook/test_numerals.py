"""Numbers in words over the whole range, as grammars and dictionaries have them."""

import re

import pytest

from regard.data.phrasebook import numerals
from regard.data.phrasebook.language import Form


def text_of(tokens: tuple[Form, ...]) -> str:
    return " ".join(token.text for token in tokens)


def in_words(language: str, value: int, form: str = "") -> str:
    match language:
        case "en":
            return text_of(numerals.english(value, form))
        case "de":
            return text_of(numerals.german(value, form))
        case "fr":
            return text_of(numerals.french(value, form))
        case "it":
            return text_of(numerals.italian(value, form))
    return text_of(numerals.arabic(value, form, "m"))


IRREGULAR = {
    "en": {0: "zero", 13: "thirteen", 40: "forty", 21: "twenty-one", 100: "one hundred", 1000: "one thousand",
           9999: "nine thousand nine hundred ninety-nine", 2010: "two thousand ten"},
    "de": {1: "eins", 16: "sechzehn", 17: "siebzehn", 21: "einundzwanzig", 24: "vierundzwanzig", 30: "dreißig",
           70: "siebzig", 101: "einhunderteins", 1001: "eintausendeins", 1121: "eintausendeinhunderteinundzwanzig"},
    "fr": {21: "vingt-et-un", 31: "trente-et-un", 70: "soixante-dix", 71: "soixante-et-onze", 79: "soixante-dix-neuf",
           80: "quatre-vingts", 81: "quatre-vingt-un", 90: "quatre-vingt-dix", 91: "quatre-vingt-onze",
           99: "quatre-vingt-dix-neuf", 100: "cent", 200: "deux-cents", 201: "deux-cent-un",
           280: "deux-cent-quatre-vingts", 1000: "mille", 1984: "mille-neuf-cent-quatre-vingt-quatre",
           2000: "deux-mille", 3200: "trois-mille-deux-cents"},
    "it": {3: "tre", 13: "tredici", 21: "ventuno", 23: "ventitré", 28: "ventotto", 33: "trentatré", 81: "ottantuno",
           88: "ottantotto", 100: "cento", 103: "centotré", 108: "centotto", 113: "centotredici", 180: "centottanta",
           1000: "mille", 1001: "milleuno", 2000: "duemila", 1984: "millenovecentottantaquattro"},
    "ar": {2: "اثنان", 11: "أحد عشر", 12: "اثنا عشر", 13: "ثلاثة عشر", 20: "عشرون", 21: "واحد وعشرون",
           24: "أربعة وعشرون", 100: "مئة", 200: "مئتان", 303: "ثلاثمئة وثلاثة", 1000: "ألف", 2000: "ألفان",
           3000: "ثلاثة آلاف", 1234: "ألف ومئتان وأربعة وثلاثون", 9999: "تسعة آلاف وتسعمئة وتسعة وتسعون"},
}  # fmt: skip


@pytest.mark.parametrize(
    ("language", "value", "words"), [(k, n, w) for k, v in IRREGULAR.items() for n, w in v.items()]
)
def test_irregular_numbers(language: str, value: int, words: str) -> None:
    assert in_words(language, value) == words


@pytest.mark.parametrize("language", list(IRREGULAR))
def test_different_numbers_have_different_words(language: str) -> None:
    assert len({in_words(language, value) for value in range(10_000)}) == 10_000


def value_of(words: list[str], small: dict[str, int]) -> int:
    """Parse English number words, independently of the code under test."""
    total = current = 0
    for word in words:
        if word == "hundred":
            current *= 100
        elif word == "thousand":
            total, current = total + current * 1000, 0
        else:
            current += small[word]
    return total + current


NAMES = """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen
seventeen eighteen nineteen"""
TENS = "twenty thirty forty fifty sixty seventy eighty ninety"


def test_english_numbers_can_be_parsed() -> None:
    small = {word: value for value, word in enumerate(NAMES.split())}
    small |= {ten: 10 * (i + 2) for i, ten in enumerate(TENS.split())}
    for value in range(10_000):
        assert value_of(re.split(r"[ -]", in_words("en", value)), small) == value


def test_german_numbers_can_be_parsed() -> None:
    units = dict(
        zip(["ein", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun"], range(1, 10), strict=True)
    )
    teens = {"zehn": 10, "elf": 11, "zwölf": 12, "sechzehn": 16, "siebzehn": 17}
    teens |= {f"{unit}zehn": value + 10 for unit, value in units.items() if value in {3, 4, 5, 8, 9}}
    stems = ["zwan", "drei", "vier", "fünf", "sech", "sieb", "acht", "neun"]
    tens = {stem + ("ßig" if stem == "drei" else "zig"): 10 * (i + 2) for i, stem in enumerate(stems)}
    pattern = re.compile(rf"(?:({'|'.join(units)})tausend)?(?:({'|'.join(units)})hundert)?(.*)")
    for value in range(1, 10_000):
        match = pattern.fullmatch(in_words("de", value))
        assert match
        thousand, hundred, rest = match.groups()
        unit, und, ten = rest.rpartition("und")
        last = teens.get(rest) or units.get(rest.removesuffix("s") if rest == "eins" else rest) or tens.get(ten) or 0
        total = units.get(thousand, 0) * 1000 + units.get(hundred, 0) * 100 + last + (units[unit] if und else 0)
        assert total == value


@pytest.mark.parametrize(
    ("language", "value", "words"),
    [
        ("en", 1, "first"), ("en", 12, "twelfth"), ("en", 20, "twentieth"), ("en", 21, "twenty-first"),
        ("de", 1, "ersten"), ("de", 3, "dritten"), ("de", 7, "siebten"), ("de", 8, "achten"), ("de", 20, "zwanzigsten"),
        ("fr", 1, "premier"), ("fr", 2, "deux"), ("it", 1, "primo"), ("it", 23, "ventitré"),
        ("ar", 1, "الأول"), ("ar", 11, "الحادي عشر"), ("ar", 20, "العشرين"), ("ar", 21, "الحادي والعشرين"),
    ],
)  # fmt: skip
def test_days_of_the_month(language: str, value: int, words: str) -> None:
    assert in_words(language, value, "ordinal") == words


@pytest.mark.parametrize(
    ("language", "value", "words"),
    [
        ("en", 1984, "nineteen eighty-four"), ("en", 1900, "nineteen hundred"), ("en", 1907, "nineteen oh seven"),
        ("en", 2012, "two thousand twelve"), ("de", 2012, "zweitausendzwölf"),
        ("de", 1984, "neunzehnhundertvierundachtzig"),
        ("ar", 1984, "ألف وتسعمئة وأربعة وثمانين"), ("ar", 2002, "ألفين واثنين"),
    ],
)  # fmt: skip
def test_years(language: str, value: int, words: str) -> None:
    assert in_words(language, value, "year") == words


def test_arabic_numerals_have_the_opposite_gender_of_the_noun() -> None:
    assert text_of(numerals.arabic(3, "count", "m")) == "ثلاثة"
    assert text_of(numerals.arabic(3, "count", "f")) == "ثلاث"
    assert text_of(numerals.arabic(8, "count", "f")) == "ثماني"
    assert text_of(numerals.arabic(2, "count", "m")) == ""  # the noun is in the dual instead


def test_the_dual_loses_its_n_before_a_noun() -> None:
    assert text_of(numerals.arabic(200, "price", "m")) == "مئتا"
    assert text_of(numerals.arabic(1200, "price", "m")) == "ألف ومئتا"


def test_every_part_of_a_number_is_expressed_in_every_language() -> None:
    for value in (0, 7, 42, 300, 4005, 9999, 6000, 710):
        expected = {part for token in numerals.english(value, "") for part in token.parts}
        for tokens in (numerals.german(value, ""), numerals.french(value, ""), numerals.italian(value, ""),
                       numerals.arabic(value, "", "m")):  # fmt: skip
            assert {part for token in tokens for part in token.parts} == expected
