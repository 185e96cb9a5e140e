"""Italian inflection: agreement, dropped pronouns, passato prossimo, articles by sound, contraction."""

from regard.data.phrasebook import numerals
from regard.data.phrasebook.language import Entry, Features, Form, Language, Word, invariable, possessive, split_options

ROWS = ("1sg", "2sg", "3sg", "1pl", "3pl")
BE = dict(zip(ROWS, ("sono", "sei", "è", "siamo", "sono"), strict=True))
HAVE = dict(zip(ROWS, ("ho", "hai", "ha", "abbiamo", "hanno"), strict=True))
WAS = dict(zip(ROWS, ("ero", "eri", "era", "eravamo", "erano"), strict=True))
IMPERFECT = dict(zip(ROWS, ("vo", "vi", "va", "vamo", "vano"), strict=True))
FUTURE = dict(zip(ROWS, ("ò", "ai", "à", "emo", "anno"), strict=True))
PRESENT = {
    "a": ("o", "i", "a", "iamo", "ano"),
    "e": ("o", "i", "e", "iamo", "ono"),
    "i": ("o", "i", "e", "iamo", "ono"),
}
VOWELS = "aeiouàèéìòùAEIOU"
# Forms by the next sound: a plain consonant, s+consonant or z, a vowel.
BY_SOUND = {
    "il": ("il", "lo", "l'"), "un": ("un", "uno", "un"), "bel‿": ("bel", "bello", "bell'"),
    "i": ("i", "gli", "gli"), "dei": ("dei", "degli", "degli"), "bei‿": ("bei", "begli", "begli"),
    "del": ("del", "dello", "dell'"), "questo": ("questo", "questo", "quest'"),
    "la": ("la", "la", "l'"), "una": ("una", "una", "un'"), "della": ("della", "della", "dell'"),
    "questa": ("questa", "questa", "quest'"), "bella‿": ("bella", "bella", "bella"),
}  # fmt: skip
CONTRACT = {"di": "de", "a": "a", "da": "da", "in": "ne", "su": "su"}
TAIL = {"il": "l", "lo": "llo", "la": "lla", "i": "i", "gli": "gli", "le": "lle"}


def sound(following: str) -> int:
    """Return 0 for a plain consonant, 1 for s+consonant, z, ps or gn, and 2 for a vowel."""
    if following[0] in VOWELS:
        return 2
    hard = (
        following[0] in "zZ"
        or following.startswith(("ps", "gn"))
        or (following[0] in "sS" and following[1] not in VOWELS)
    )
    return 1 if hard else 0


class Italian(Language):
    """Italian."""

    code = "it"
    variable = frozenset(BY_SOUND) | frozenset(CONTRACT) | {"lo"}
    kinds = ("mass", "kin")  # kin has no article before a possessive

    def read(self, category: str, field: str) -> Entry:
        """Parse a field: `uomo m uomini`, `bello before`, `vedere visto fut=vedr`, `pulire isc`."""
        parts, named = split_options(field)
        match category:
            case "noun":
                return read_noun(field)
            case "adjective":
                flags = {"before", "invariable"}
                forms = [part for part in parts if part not in flags]
                place = "before" if "before" in parts else "after"
                return {"text": forms[0], "mp": forms[1] if len(forms) > 1 else "", "place": place,
                        "fixed": "yes" if "invariable" in parts else ""}  # fmt: skip
            case "verb":
                return read_verb(parts, named)
            case "pronoun":
                return dict(zip(("text", "object"), parts, strict=True))
            case "determiner":
                return dict(zip(("text", "f", "mp", "fp"), parts, strict=True))
        return {"text": field.strip()}

    def inflect(self, word: Word, form: str, case: str, agree: Features) -> tuple[Form, ...]:
        """Return the tokens of a word in a form."""
        entry = word.entry
        match word.category:
            case "noun":
                prefix = "f." if agree.gender == "f" and "f.sg" in entry else ""
                return (Form(entry[prefix + (agree.number if agree.person else word.variant)]),)
            case "adjective":
                return adjective(entry, form, agree)
            case "determiner":
                return determiner(word, form, agree)
            case "verb":
                return verb(word, form, agree)
            case "pronoun":
                return () if case == "drop" else (Form(entry.get(form, entry["text"])),)
            case "number":
                return numerals.italian(int(word.key), form)
        return invariable(entry)

    def pronoun(self, of: Features, form: str) -> tuple[Form, ...]:
        """Return nothing, because subject pronouns are dropped; che in relative clauses."""
        return () if form == "pronoun" else (Form("che"),)

    def before(self, token: str, following: str, next_token: str) -> tuple[bool, str]:
        """Choose articles by sound, contract prepositions with articles, and elide object pronouns before avere."""
        if token in {"lo", "la"} and following in HAVE.values() and following[0] == "h":
            return True, "l'" + following
        if token in BY_SOUND:
            text = BY_SOUND[token][sound(following)]
            return (True, text + following) if text.endswith("'") else (False, text)
        if token in CONTRACT and next_token in {"il", "la", "i", "le"}:
            if following.startswith("l'"):
                return True, CONTRACT[token] + "l" + following
            return True, CONTRACT[token] + TAIL[following]
        return False, token.rstrip("‿")


def plural_of(text: str) -> str:
    """Return the regular plural of a noun or adjective."""
    match text[-1]:
        case "o":
            stem = text[:-1]
            if stem.endswith("i"):
                return stem
            hard = stem.endswith(("c", "g")) and not stem.endswith("ic")
            return stem + ("hi" if hard else "i")
        case "a":
            return text[:-1] + ("he" if text.endswith(("ca", "ga")) else "e")
        case "e":
            return text[:-1] + "i"
    return text


def read_noun(field: str) -> Entry:
    """Parse a noun: singular, gender, and an irregular plural."""
    entry: dict[str, str] = {}
    for prefix, half in zip(("", "f."), field.split("/"), strict=False):
        parts = half.split()
        if len(parts) not in {2, 3} or parts[1] not in {"m", "f"}:
            raise ValueError("an Italian noun is written with its gender: gatto m, or uomo m uomini")
        entry |= {prefix + "gender": parts[1], prefix + "sg": parts[0]}
        entry[prefix + "pl"] = parts[2] if len(parts) == 3 else plural_of(parts[0])
    return entry | {"text": entry["sg"]}


def read_verb(parts: list[str], named: dict[str, str]) -> Entry:
    """Parse a verb: infinitive, participle, and an irregular present."""
    helper = "essere" if "essere" in parts[1:] else "avere"
    forms = [parts[0], *(part for part in parts[1:] if part not in {"essere", "isc"})]
    infinitive, stem, theme = forms[0], forms[0][:-3], forms[0][-3]
    if len(forms) not in {1, 2, 7} or not infinitive.endswith(("are", "ere", "ire")):
        raise ValueError("an Italian verb is its infinitive, then participle, then io tu lui noi loro where irregular")
    participle = forms[1] if len(forms) > 1 else stem + {"a": "ato", "e": "uto", "i": "ito"}[theme]
    present = forms[2:]
    if not present:
        hard = stem + "h" if theme == "a" and stem.endswith(("c", "g")) else stem
        soft = stem[:-1] if theme == "a" and stem.endswith("i") else hard
        bases = (stem, soft, stem, soft, stem)
        present = [base + ending for base, ending in zip(bases, PRESENT[theme], strict=True)]
        if "isc" in parts:
            present = [stem + "isc" + PRESENT["i"][n] if n != 3 else stem + "iamo" for n in range(5)]
    future = stem + {"a": "er", "e": "er", "i": "ir"}[theme]
    if theme == "a" and stem.endswith(("c", "g", "i")):
        future = (stem[:-1] if stem.endswith("i") else stem + "h") + "er"
    return {"text": infinitive, "participle": participle, "future": named.get("fut", future), "helper": helper,
            **dict(zip(ROWS, present, strict=True))}  # fmt: skip


def agreeing(text: str, agree: Features) -> str:
    """Return the form for a gender and number, from the masculine singular."""
    if agree.gender == "f" and text.endswith("o"):
        text = text[:-1] + "a"
    return plural_of(text) if agree.number == "pl" else text


def adjective(entry: Entry, form: str, agree: Features) -> tuple[Form, ...]:
    """Return an adjective: `before` or `after` its noun, if it belongs there; without a form, as a predicate."""
    if form in {"before", "after"} and entry["place"] != form:
        return ()
    text = entry["text"]
    if not entry["fixed"]:
        masculines = agree.gender != "f" and agree.number == "pl" and entry["mp"]
        text = entry["mp"] if masculines else agreeing(text, agree)
    if form == "before":
        text = {"bello": "bel", "belli": "bei"}.get(text, text) + "‿"
    return (Form(text),)


def determiner(word: Word, form: str, agree: Features) -> tuple[Form, ...]:
    """Return an article, *this* or a possessive; `bare` has no plural, `full` keeps the article even for kin."""
    entry, many, female = word.entry, agree.number == "pl", agree.gender == "f"
    if word.key == "a" and agree.kind == "mass":
        return (Form("della" if female else "del"),)
    if many and form == "bare":
        return ()
    text = entry[("fp" if female else "mp") if many else ("f" if female else "text")]
    if not possessive(Features(determiner=word.key)) or (agree.kind == "kin" and not many and form != "full"):
        return (Form(text),)
    article = ("le" if female else "i") if many else ("la" if female else "il")
    return Form(article, sure=False), Form(text)


def simple(word: Word, row: str) -> str:
    """Return the present, imperfect or future."""
    entry = word.entry
    if word.variant == "future":
        return entry["future"] + FUTURE[row]
    if word.variant != "past":
        return entry[row]
    return WAS[row] if entry["text"] == "essere" else entry["text"][:-2] + IMPERFECT[row]


def verb(word: Word, form: str, agree: Features) -> tuple[Form, ...]:
    """Return a verb: `finite` (or its auxiliary), `rest` (participle), `given` (after an object pronoun) or `inf`."""
    entry, row = word.entry, agree.person + agree.number
    if form == "inf":
        return (Form(entry["text"]),)
    if word.variant not in {"past", "perfect"} or "stative" in word.classes:
        return () if form in {"rest", "given"} else (Form(simple(word, row)),)
    if form in {"rest", "given"}:
        participle = entry["participle"]
        changes = entry["helper"] == "essere" or form == "given"
        return (Form(agreeing(participle, agree) if changes else participle),)
    return (Form((BE if entry["helper"] == "essere" else HAVE)[row], sure=False),)
