"""German inflection: genders and cases, weak, mixed and strong adjectives, separable verbs, verb-final clauses."""

from regard.data.phrasebook import numerals
from regard.data.phrasebook.language import Entry, Features, Form, Language, Word, invariable, possessive, split_options

# Endings by case, each for masculine, feminine, neuter, plural.
DEFINITE = {"nom": ("er", "ie", "as", "ie"), "acc": ("en", "ie", "as", "ie"), "dat": ("em", "er", "em", "en")}
POINTING = {"nom": ("er", "e", "es", "e"), "acc": ("en", "e", "es", "e"), "dat": ("em", "er", "em", "en")}
INDEFINITE = {"nom": ("", "e", "", "e"), "acc": ("en", "e", "", "e"), "dat": ("em", "er", "em", "en")}
STRONG = {"nom": ("er", "e", "es", "e"), "acc": ("en", "e", "es", "e"), "dat": ("em", "er", "em", "en")}
WEAK = {"nom": ("e", "e", "e", "en"), "acc": ("en", "e", "e", "en"), "dat": ("en", "en", "en", "en")}
MIXED = {"nom": ("er", "e", "es", "en"), "acc": ("en", "e", "es", "en"), "dat": ("en", "en", "en", "en")}

BE = {"1sg": "bin", "2sg": "bist", "3sg": "ist", "pl": "sind"}
HAVE = {"1sg": "habe", "2sg": "hast", "3sg": "hat", "pl": "haben"}
WILL = {"1sg": "werde", "2sg": "wirst", "3sg": "wird", "pl": "werden"}
PRONOUNS = {"1sg": "ich", "2sg": "du", "3sgm": "er", "3sgf": "sie", "3sgn": "es", "1pl": "wir", "3pl": "sie"}
MERGE = {("in", "dem"): "im", ("an", "dem"): "am", ("bei", "dem"): "beim", ("von", "dem"): "vom", ("zu", "dem"): "zum"}
GENDERS = {"der": "m", "die": "f", "das": "n"}


def column(features: Features) -> int:
    """Return the column of a gender and number in the tables of endings."""
    return 3 if features.number == "pl" else "mfn".index(features.gender or "m")


def slot(features: Features) -> str:
    """Return the key of person and number in a conjugation."""
    return "pl" if features.number == "pl" else features.person + "sg"


class German(Language):
    """German."""

    code = "de"
    variable = frozenset(preposition for preposition, _ in MERGE)
    kinds = ("mass", "she")  # das Mädchen is neuter, but das Mädchen ist Bäckerin

    def read(self, category: str, field: str) -> Entry:
        """Parse a field: `die Katze, Katzen`, `dunkel:dunkl`, `auf|machen`, `gehen ging gegangen geht sein`."""
        parts, named = split_options(field)
        match category:
            case "noun":
                return read_noun(field)
            case "adjective":
                plain, _, stem = field.strip().partition(":")
                return {"text": plain, "stem": stem or plain.removesuffix("e")}
            case "verb":
                return read_verb(parts, named)
            case "pronoun":
                return dict(zip(("text", "acc", "dat"), parts, strict=True))
        return {"text": field.strip()}

    def inflect(self, word: Word, form: str, case: str, agree: Features) -> tuple[Form, ...]:
        """Return the tokens of a word in a form."""
        case = case if case in DEFINITE else "nom"
        match word.category:
            case "noun":
                return (Form(noun(word, case, agree)),)
            case "adjective":
                return (Form(adjective(word.entry, form, case, agree)),)
            case "determiner":
                text = determiner(word, case, agree)
                return (Form(text),) if text else ()
            case "verb":
                return verb(word, form, agree)
            case "pronoun":
                return (Form(word.entry.get(form or case, word.entry["text"])),)
            case "number":
                return numerals.german(int(word.key), form)
        return invariable(word.entry)

    def pronoun(self, of: Features, form: str) -> tuple[Form, ...]:
        """Return er, sie or es by the gender of the antecedent; der, die or das in relative clauses."""
        if form != "pronoun":
            return (Form("d" + DEFINITE["acc" if form == "whom" else "nom"][column(of)]),)
        key = of.person + of.number
        return (Form(PRONOUNS.get(key) or PRONOUNS[key + of.gender]),)

    def before(self, token: str, following: str, next_token: str) -> tuple[bool, str]:
        """Contract *in dem* to *im*, and so on."""
        merged = MERGE.get((token, following))
        return (True, merged) if merged else (False, token)


def read_noun(field: str) -> Entry:
    """Parse a noun: `der Student, Studenten, weak / die Studentin, Studentinnen`."""
    entry: dict[str, str] = {}
    for prefix, half in zip(("", "f."), field.split("/"), strict=False):
        parts = [part.strip() for part in half.split(",")]
        article, _, singular = parts[0].partition(" ")
        if article not in GENDERS or len(parts) < 2 or not singular:
            raise ValueError("a German noun is written with article and plural: die Katze, Katzen")
        entry |= {prefix + "gender": GENDERS[article], prefix + "sg": singular, prefix + "pl": parts[1]}
        entry[prefix + "weak"] = "weak" if "weak" in parts[2:] else ""
    return entry | {"text": entry["sg"]}


def read_verb(parts: list[str], named: dict[str, str]) -> Entry:
    """Parse the principal parts of a verb, and derive the regular ones."""
    helper = "sein" if "sein" in parts[1:] else "haben"
    forms = [parts[0], *(part for part in parts[1:] if part != "sein")]
    prefix, _, infinitive = forms[0].rpartition("|")
    stem = infinitive[:-2] if infinitive.endswith("en") else infinitive[:-1]
    if len(forms) == 1:
        link = "e" if stem.endswith(("t", "d")) else ""
        opening = "" if stem.startswith(("be", "ver", "er", "ent", "zer")) else "ge"
        forms += [stem + link + "te", opening + stem + link + "t", stem + link + "t"]
    if len(forms) != 4:
        raise ValueError(
            "a German verb is its infinitive, or infinitive, past, participle and er-form: gehen ging gegangen geht"
        )
    return {
        "text": prefix + infinitive, "infinitive": infinitive, "prefix": prefix, "stem": stem, "helper": helper,
        "past": forms[1], "participle": forms[2], "third": forms[3], "plural": named.get("wir", infinitive),
    }  # fmt: skip


def noun(word: Word, case: str, agree: Features) -> str:
    """Return a noun: dative plurals end in -n, and weak masculines in -en outside the nominative."""
    female = agree.gender == "f" or agree.kind == "she"  # das Mädchen ist Lehrerin
    prefix = "f." if female and "f.sg" in word.entry else ""
    number = agree.number if agree.person else word.variant
    text = word.entry[prefix + (number or "sg")]
    if number == "pl":
        return text + "n" if case == "dat" and not text.endswith(("n", "s")) else text
    if word.entry[prefix + "weak"] and case != "nom":
        return word.entry[prefix + "pl"]
    return text


def adjective(entry: Entry, form: str, case: str, agree: Features) -> str:
    """Return an adjective, which is declined before a noun and not after *sein*."""
    if form == "plain":
        return entry["text"]
    if agree.determiner in {"the", "this"}:
        table = WEAK
    elif possessive(agree) or (agree.determiner == "a" and agree.number == "sg" and agree.kind != "mass"):
        table = MIXED
    else:
        table = STRONG
    return entry["stem"] + table[case][column(agree)]


def determiner(word: Word, case: str, agree: Features) -> str:
    """Return an article, *this* or a possessive."""
    stem = word.entry["text"]
    match word.key:
        case "the":
            return stem + DEFINITE[case][column(agree)]
        case "this":
            return stem + POINTING[case][column(agree)]
        case "a" if agree.number == "pl" or agree.kind == "mass":
            return ""
    return stem + INDEFINITE[case][column(agree)]


def finite(word: Word, agree: Features) -> str:
    """Return the conjugated present or past, without a separable prefix."""
    entry, row = word.entry, slot(agree)
    if word.variant == "past":
        past = entry["past"]
        endings = {
            "2sg": "est" if past.endswith(("t", "d", "s", "ß")) else "st",
            "pl": "n" if past.endswith("e") else "en",
        }
        return past + endings.get(row, "")
    if entry["text"] == "sein":
        return BE[row]
    third = entry["third"]
    plain = third if not third.endswith("t") else third[:-1]
    if row == "2sg":
        return plain + ("t" if plain.endswith(("s", "ß", "z")) else "st")
    first = entry["stem"] + "e" if third.endswith("t") else third
    return {"1sg": first, "3sg": third, "pl": entry["plural"]}[row]


def verb(word: Word, form: str, agree: Features) -> tuple[Form, ...]:
    """Return a verb: `finite` is second, `rest` last, `final` both at the end of a clause, `inf` the infinitive."""
    entry, tense = word.entry, word.variant
    whole = entry["prefix"] + entry["infinitive"]
    if form == "inf":
        return (Form(whole),)
    # With du the perfect replaces the past ("du machtest zu" is unusual), except for sein and the modal verbs.
    perfect = tense == "perfect" or (tense == "past" and slot(agree) == "2sg" and "stative" not in word.classes)
    if perfect or tense == "future":
        helper = (WILL if tense == "future" else BE if entry["helper"] == "sein" else HAVE)[slot(agree)]
        main = whole if tense == "future" else entry["prefix"] + entry["participle"]
        first, rest = Form(helper, sure=False), Form(main)
        return {"rest": (rest,), "final": (rest, first)}.get(form, (first,))
    text, prefix = finite(word, agree), entry["prefix"]
    if form == "rest":
        return (Form(prefix),) if prefix else ()
    return (Form(prefix + text if form == "final" else text),)
