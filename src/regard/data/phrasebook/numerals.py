"""Numbers from 0 to 9,999 in words, in the five languages.

The parts of a token are `k` (thousands), `h` (hundreds) and `u` (tens and units), so that `two hundred` aligns with
مئتان. French follows the spelling of 1990: all parts of a number are joined by hyphens.
"""

from importlib.resources import files

from regard.data.phrasebook.language import Form


def series(name: str) -> list[str]:
    """Return the words of a line of `numerals.txt`."""
    text = (files("regard.data.phrasebook") / "numerals.txt").read_text(encoding="utf-8")
    return next(line.split()[2:] for line in text.splitlines() if line.split()[:2] == name.split())


EN_SMALL, EN_TENS = series("en small"), series("en tens")
EN_ORDINAL = {
    "one": "first", "two": "second", "three": "third", "five": "fifth",
    "eight": "eighth", "nine": "ninth", "twelve": "twelfth",
}  # fmt: skip
DE_SMALL, DE_TENS = series("de small"), series("de tens")
DE_ORDINAL = {1: "erst", 3: "dritt", 7: "siebt", 8: "acht"}
FR_SMALL, FR_TENS = series("fr small"), series("fr tens")
IT_SMALL, IT_TENS = series("it small"), series("it tens")
AR_UNITS, AR_TENS = series("ar small"), series("ar tens")
AR_HUNDREDS, AR_ORDINAL = series("ar hundreds"), series("ar ordinals")


def parts(value: int) -> tuple[str, ...]:
    """Return the parts that a single word for this number expresses."""
    named = (("k", value // 1000), ("h", value // 100 % 10), ("u", value % 100))
    return tuple(part for part, amount in named if amount) or ("u",)


def english_pair(value: int) -> str:
    """Return a number from 0 to 99."""
    if value < 20:
        return EN_SMALL[value]
    return EN_TENS[value // 10] + ("-" + EN_SMALL[value % 10] if value % 10 else "")


def english(value: int, form: str) -> tuple[Form, ...]:
    """Return `twenty-four`, `twenty-fourth` or `nineteen eighty-four`."""
    if form == "ordinal":
        head, dash, last = english_pair(value).rpartition("-")
        regular = last[:-1] + "ieth" if last.endswith("y") else last + "th"
        return (Form(head + dash + EN_ORDINAL.get(last, regular), parts=("u",)),)
    if form == "year" and value // 100 % 10 and value // 100 != 20:
        century = Form(english_pair(value // 100), parts=("k", "h"))
        rest = english_pair(value % 100) if value % 100 else "hundred"
        middle = (Form("oh", parts=("u",)),) if 0 < value % 100 < 10 else ()
        return (century, *middle, Form(rest, parts=("u",) if value % 100 else ("k", "h")))
    tokens: list[Form] = []
    for part, amount, name in (("k", value // 1000, "thousand"), ("h", value // 100 % 10, "hundred")):
        if amount:
            tokens += [Form(EN_SMALL[amount], parts=(part,)), Form(name, parts=(part,))]
    if value % 100 or not tokens:
        tokens.append(Form(english_pair(value % 100), parts=("u",)))
    return tuple(tokens)


def german_words(value: int) -> str:
    """Return a number as one word, with the unit before the ten."""
    if value < 20:
        return DE_SMALL[value]
    if value < 100:
        return (inside(value % 10) + "und" if value % 10 else "") + DE_TENS[value // 10]
    size, name = (1000, "tausend") if value >= 1000 else (100, "hundert")
    return inside(value // size) + name + (german_words(value % size) if value % size else "")


def inside(digit: int) -> str:
    """Return a digit before another part, where eins loses its s."""
    return "ein" if digit == 1 else DE_SMALL[digit]


def german(value: int, form: str) -> tuple[Form, ...]:
    """Return `vierundzwanzig`, `vierundzwanzigsten` or `neunzehnhundertvierundachtzig`."""
    if form == "ordinal":
        stem = DE_ORDINAL.get(value) or german_words(value) + ("t" if value < 20 else "st")
        return (Form(stem + "en", parts=("u",)),)
    text = german_words(value)
    if form == "year" and 1100 <= value < 2000:
        text = DE_SMALL[value // 100] + "hundert" + (german_words(value % 100) if value % 100 else "")
    return (Form(text, parts=parts(value)),)


def french_words(value: int, last: bool = True) -> str:
    """Return a number with hyphens; cents and quatre-vingts keep their s only at the end."""
    if value >= 1000:
        thousands = "" if value // 1000 == 1 else french_words(value // 1000, last=False) + "-"
        return thousands + "mille" + ("-" + french_words(value % 1000) if value % 1000 else "")
    if value >= 100:
        hundreds = "" if value // 100 == 1 else FR_SMALL[value // 100] + "-"
        if value % 100:
            return hundreds + "cent-" + french_words(value % 100)
        return hundreds + ("cents" if hundreds and last else "cent")
    if value < 20:
        return FR_SMALL[value]
    if value == 80:
        return "quatre-vingts" if last else "quatre-vingt"
    ten, unit = FR_TENS[value // 10], value % 10 + (10 if value // 10 in {7, 9} else 0)
    joint = "-et-" if unit in {1, 11} and value < 80 else "-"
    return ten + (joint + FR_SMALL[unit] if unit else "")


def french(value: int, form: str) -> tuple[Form, ...]:
    """Return `vingt-quatre`; the first of a month is premier, other days are cardinal."""
    text = "premier" if form == "ordinal" and value == 1 else french_words(value)
    return (Form(text, parts=parts(value)),)


def italian_words(value: int) -> str:
    """Return a number as one word; a ten loses its vowel before uno and otto."""
    if value >= 1000:
        head = "mille" if value // 1000 == 1 else IT_SMALL[value // 1000] + "mila"
        return head + (italian_words(value % 1000) if value % 1000 else "")
    if value >= 100:
        head = ("" if value // 100 == 1 else IT_SMALL[value // 100]) + "cento"
        rest = italian_words(value % 100) if value % 100 else ""
        return (head[:-1] if rest.startswith("ott") else head) + rest
    if value < 20:
        return IT_SMALL[value]
    ten, unit = IT_TENS[value // 10], value % 10
    return (ten[:-1] if unit in {1, 8} else ten) + (IT_SMALL[unit] if unit else "")


def italian(value: int, form: str) -> tuple[Form, ...]:
    """Return `ventiquattro` or `ventitré`; the first of a month is primo, other days are cardinal."""
    text = "primo" if form == "ordinal" and value == 1 else italian_words(value)
    accent = value > 3 and value % 10 == 3 and value % 100 != 13
    return (Form(text[:-1] + "é" if accent else text, parts=parts(value)),)


def arabic_unit(value: int, gender: str) -> str:
    """Return a number from 1 to 10; from three on, it has the opposite gender of the counted noun."""
    text = AR_UNITS[value]
    if gender != "f":
        return text
    return {1: "واحدة", 2: "اثنتان", 8: "ثماني"}.get(value) or text.removesuffix("ة")


def arabic_pair(value: int, gender: str) -> list[str]:
    """Return the words of a number from 0 to 99, with the unit before the ten."""
    female = gender == "f"
    if value <= 10:
        return [arabic_unit(value, gender)]
    if value < 20:
        first = {11: "إحدى" if female else "أحد", 12: "اثنتا" if female else "اثنا"}
        return [first.get(value) or arabic_unit(value - 10, gender), "عشرة" if female else "عشر"]
    if value % 10 == 0:
        return [AR_TENS[value // 10]]
    unit = "إحدى" if female and value % 10 == 1 else arabic_unit(value % 10, gender)
    return [unit, AR_TENS[value // 10]]


def arabic(value: int, form: str, gender: str) -> tuple[Form, ...]:
    """Return thousands, hundreds, unit and ten, joined by و; `year` is genitive, `price` precedes its noun."""
    if form == "ordinal":
        return arabic_ordinal(value)
    if form == "count" and value == 2:
        return ()
    pieces: list[tuple[str, list[str]]] = []
    thousands, hundreds = value // 1000, value // 100 % 10
    if thousands:
        many = ["ألف"] if thousands == 1 else ["ألفان"] if thousands == 2 else [AR_UNITS[thousands], "آلاف"]
        pieces.append(("k", many))
    if hundreds:
        pieces.append(("h", [AR_HUNDREDS[hundreds]]))
    if value % 100 or not pieces:
        pair = arabic_pair(value % 100, gender)
        pieces += [("u", [word]) for word in pair] if value % 100 > 20 else [("u", pair)]
    tokens: list[Form] = []
    for order, (part, words) in enumerate(pieces):
        for place, word in enumerate(words):
            text = genitive(word) if form == "year" else word
            tokens.append(Form(("و" if order and not place else "") + text, parts=(part,)))
    if form == "price" and tokens[-1].text.endswith(("ألفان", "مئتان")):
        tokens[-1] = tokens[-1]._replace(text=tokens[-1].text[:-1])
    return tuple(tokens)


def genitive(word: str) -> str:
    """Return the genitive: عشرون becomes عشرين, and مئتان becomes مئتين."""
    if word.endswith("ون"):
        return word[:-2] + "ين"
    return {"اثنان": "اثنين", "اثنتان": "اثنتين", "اثنا": "اثني", "مئتان": "مئتين", "ألفان": "ألفين"}.get(word, word)


def arabic_ordinal(value: int) -> tuple[Form, ...]:
    """Return the day of a month, in the genitive and with the article."""
    if value <= 10:
        words = [AR_ORDINAL[value]]
    else:
        first = "الحادي" if value % 10 == 1 else AR_ORDINAL[value % 10] if value % 10 else ""
        ten = "عشر" if value < 20 else "ال" + genitive(AR_TENS[value // 10])
        words = [first, ten if value < 20 else "و" + ten] if first else [ten]
    return tuple(Form(word, parts=("u",)) for word in words)
