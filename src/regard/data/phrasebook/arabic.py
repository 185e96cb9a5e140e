"""Arabic inflection, unvocalised: agreement, definiteness, written cases, verbs before subjects, clitics.

The indefinite accusative is written with alif and tanwin (كلباً), except on words in ة or اء and on diptotes.
"""

from regard.data.phrasebook import numerals
from regard.data.phrasebook.language import (
    Entry,
    Features,
    Form,
    Language,
    Word,
    invariable,
    possessive,
    pronoun_features,
    split_options,
)

PAST = {"1sg": "ت", "2sg": "ت", "1pl": "نا"}
PREFIX = {"1sg": "أ", "2sg": "ت", "1pl": "ن", "3sgf": "ت"}
SUFFIXES = {"1sg": "ني", "2sg": "ك", "3sgm": "ه", "3sgf": "ها", "1pl": "نا", "3plm": "هم", "3plf": "هن"}
DEFINITE = frozenset({"the", "this"})


class Arabic(Language):
    """Arabic."""

    code = "ar"
    capitalised = False
    attached = frozenset({"،", "؟"})
    kinds = ("mass", "person")

    def read(self, category: str, field: str) -> Entry:
        """Parse a field: `شارع m شوارع*`, `كبير pl=كبار`, `نام ينام نوم stem=نم jus=ينم`."""
        parts, named = split_options(field)
        match category:
            case "noun":
                return read_noun(field)
            case "adjective":
                text = parts[0].rstrip("*")
                plural = named.get("pl", text + "ون")
                return {"text": text, "f": named.get("f", text + "ة"), "pl": plural.rstrip("*"),
                        "def": named.get("def", ""), "diptote": "yes" if parts[0].endswith("*") else "",
                        "pl.diptote": "yes" if plural.endswith("*") else ""}  # fmt: skip
            case "verb":
                if len(parts) != 3:
                    raise ValueError("an Arabic verb is past, present and verbal noun: كتب يكتب كتابة")
                past, present, masdar = parts
                return {
                    "text": past, "present": present, "masdar": masdar, "women": women(past, present, named),
                    "stem": named.get("stem", past), "jussive": named.get("jus", present),
                }  # fmt: skip
            case "pronoun":
                return dict(zip(("text", "suffix"), parts, strict=True))
        return {"text": field.strip()}

    def features(self, word: Word) -> Features:
        """Return gender and number; plurals of people agree in full, all other plurals are feminine singular."""
        match word.category:
            case "name":
                return super().features(word)._replace(determiner="the", kind="person")
            case "pronoun":
                return pronoun_features(word)._replace(determiner="the")
            case "number":
                return Features(number=word.key)
        return super().features(word)

    def inflect(self, word: Word, form: str, case: str, agree: Features) -> tuple[Form, ...]:
        """Return the tokens of a word in a form."""
        entry = word.entry
        match word.category:
            case "noun":
                return noun(word, form, case, agree)
            case "adjective":
                return adjective(entry, form, case, agree)
            case "determiner":
                return determiner(word, form, agree)
            case "verb":
                return verb(word, form, agree)
            case "pronoun":
                if case == "drop":
                    return ()
                return (Form("+" + entry["suffix"]),) if "suffix" in {form, case} else (Form(entry["text"]),)
            case "number":
                return numerals.arabic(int(word.key), form, agree.gender)
        return invariable(entry)

    def pronoun(self, of: Features, form: str) -> tuple[Form, ...]:
        """Return the pronoun suffixed to a verb, to لأن and to أن; الذي or التي in relative clauses."""
        of = agreement(of)
        if form != "pronoun":
            many, one = ("اللواتي", "التي") if of.gender == "f" else ("الذين", "الذي")
            return (Form(many if of.number == "pl" else one),)
        key = of.person + of.number
        return (Form("+" + (SUFFIXES.get(key) or SUFFIXES[key + of.gender])),)

    def before(self, token: str, following: str, next_token: str) -> tuple[bool, str]:
        """Join a prefix to its word; ل and the article merge."""
        prefix = token.rstrip("+")
        if prefix == "ل" and following.startswith("ال") and next_token == "ال+":
            rest = following[2:]
            return True, "ل" + (rest if rest.startswith("ل") else "ل" + rest)
        return True, prefix + following

    def attach(self, token: str, suffix: str) -> str:
        """Attach punctuation or a suffix pronoun to a word."""
        token = token.rstrip("+")
        if suffix in self.attached:
            return token + suffix
        if token in {"على", "إلى"}:
            return token[:-1] + "ي" + ("" if suffix in {"ني", "ي"} else suffix)
        if token.endswith("أى"):
            token = token[:-2] + "آ"
        elif token.endswith("ى"):
            token = token[:-1] + "ا"
        elif token.endswith("ة"):
            token = token[:-1] + "ت"
        elif token.endswith("وا"):
            token = token[:-1]
        return token + suffix


def agreement(of: Features) -> Features:
    """Return the features that agreement uses: plurals that are not people are feminine singular."""
    if of.number == "pl" and of.kind not in {"person", "pronoun"}:
        return of._replace(gender="f", number="sg")
    return of


def read_noun(field: str) -> Entry:
    """Parse a noun: singular, gender, plural; a star marks a diptote."""
    entry: dict[str, str] = {}
    for prefix, half in zip(("", "f."), field.split("/"), strict=False):
        parts, named = split_options(half)
        if len(parts) != 3 or parts[1] not in {"m", "f"}:
            raise ValueError("an Arabic noun is singular, gender and plural: شارع m شوارع*")
        entry |= {prefix + "gender": parts[1], prefix + "sg": parts[0].rstrip("*"), prefix + "pl": parts[2].rstrip("*")}
        entry |= {prefix + "sg*": parts[0][-1], prefix + "pl*": parts[2][-1], prefix + "def": named.get("def", "")}
    return entry | {"text": entry["sg"]}


def ending(text: str, case: str, definite: bool, diptote: bool) -> str:
    """Return a word with its case ending, where unvocalised Arabic writes one."""
    if text.endswith("ون"):
        return text if case in {"", "nom", "drop"} else text[:-2] + "ين"
    if case not in {"acc", "suffix"} or definite or diptote or text.endswith(("ة", "اء", "ات", "ى", "ا")):
        return text
    return (text[:-1] + "ئ" if text.endswith("يء") else text) + "اً"


def noun(word: Word, form: str, case: str, agree: Features) -> tuple[Form, ...]:
    """Return a noun with number, case and definiteness; `counted` follows a numeral."""
    entry = word.entry
    prefix = "f." if agree.gender == "f" and "f.sg" in entry else ""
    number = agree.number if agree.person else word.variant
    if form.startswith("counted"):
        return (Form(counted(entry, int(agree.number), "acc" if form.endswith("acc") else case)),)
    text, star = entry[prefix + number], entry[prefix + number + "*"] == "*"
    if agree.determiner in DEFINITE and number == "sg" and entry[prefix + "def"]:
        text = entry[prefix + "def"]
    if possessive(agree):
        return (Form(possessed(text, case, agree.determiner == "my")),)
    return (Form(ending(text, case, agree.determiner in DEFINITE, star)),)


def possessed(text: str, case: str, mine: bool) -> str:
    """Return a noun before a possessive suffix: معلمون loses its ن, and اء shows the case."""
    high = case in {"", "nom", "drop"} and not mine
    if text.endswith("ون"):
        return text[:-2] + ("و" if high else "ي" if not mine else "")
    if text.endswith("اء"):
        return text[:-1] + ("ؤ" if high else "ء" if case in {"acc", "suffix"} and not mine else "ئ")
    return text


def counted(entry: Entry, value: int, case: str) -> str:
    """Return the dual for two, the plural genitive for three to ten, the singular accusative for more."""
    if value == 2:
        last = {"ة": "ت", "ى": "ي"}.get(entry["sg"][-1], entry["sg"][-1])
        return entry["sg"][:-1] + last + ("ان" if case in {"", "nom", "drop"} else "ين")
    if value <= 10:
        return ending(entry["pl"], "gen", definite=False, diptote=False)
    return ending(entry["sg"], "acc", definite=False, diptote=entry["sg*"] == "*")


def adjective(entry: Entry, form: str, case: str, agree: Features) -> tuple[Form, ...]:
    """Return an adjective, which agrees with its noun in everything; the form `acc` is the predicate of كان."""
    of = agreement(agree)
    case = form if form in {"acc", "nom"} else case
    if of.number == "pl":
        text, diptote = entry["pl"], bool(entry["pl.diptote"])
        if of.gender == "f":
            text, diptote = entry["f"].removesuffix("ة") + "ات", True
    elif of.gender == "f":
        text, diptote = entry["f"], True
    else:
        text, diptote = entry["text"], bool(entry["diptote"])
    definite = form == "" and (agree.determiner in DEFINITE or possessive(agree))
    if text == entry["text"] and entry["def"] and (definite or case in {"acc", "suffix"}):
        text = entry["def"]  # غال shows its ي only here
    token = Form(ending(text, case, definite, diptote))
    return (Form("ال+"), token) if definite else (token,)


def determiner(word: Word, form: str, agree: Features) -> tuple[Form, ...]:
    """Return the article or هذا before a noun; `suffix` is the possessive after it."""
    if form == "suffix":
        return (Form("+" + word.entry["text"]),) if word.entry["text"] != "-" else ()
    if word.key == "this":
        of = agreement(agree)
        pointer = "هؤلاء" if of.number == "pl" else "هذه" if of.gender == "f" else "هذا"
        return Form(pointer), Form("ال+", sure=False)
    return (Form("ال+"),) if word.key == "the" else ()


def past(entry: Entry, row: str, gender: str) -> str:
    """Return a form of the perfect."""
    if row in PAST:
        return entry["stem"].removesuffix(PAST[row][0]) + PAST[row]  # كن + نا is كنا
    text = entry["text"]
    weak = text[:-1] if text.endswith(("ى", "ا")) else text
    if row == "3sg":
        return weak + "ت" if gender == "f" else text
    if gender == "f":
        return entry["stem"].removesuffix("ن") + "ن"
    if text.endswith("أ"):
        return text[:-1] + "ؤوا"
    return (text[:-1] if text.endswith("ي") else weak) + "وا"


def present(entry: Entry, row: str, gender: str, mood: str = "") -> str:
    """Return a form of the imperfect, from its third person; the moods `sub` and `jussive` are shorter."""
    prefix = PREFIX.get(row) or PREFIX.get(row + gender) or "ي"
    if row == "3pl" and gender == "f":
        return entry["women"]
    body = entry["jussive" if mood == "jussive" and row != "3pl" else "present"][1:]
    if row == "3pl":
        body = body[:-1] if body.endswith(("ي", "ى", "و")) else body
        body = body[:-1] + "ؤ" if body.endswith("أ") else body
        return prefix + body + ("وا" if mood else "ون")
    return "آ" + body[1:] if prefix == "أ" and body.startswith("أ") else prefix + body


def women(past: str, present: str, named: dict[str, str]) -> str:
    """Return the third person feminine plural of the imperfect.

    A weak middle radical is lost, a doubled last one is written twice, and ى becomes ي.
    """
    stem, jussive = named.get("stem", past), named.get("jus", present)
    if stem[-2:] == past[-1] * 2:
        return present + past[-1] + "ن"
    if jussive != present and jussive[-1] == present[-1]:
        return jussive.removesuffix("ن") + "ن"
    return (present[:-1] + "ي" if present.endswith("ى") else present) + "ن"


def verb(word: Word, form: str, agree: Features) -> tuple[Form, ...]:
    """Return a verb.

    `finite` precedes its subject and `full` follows it; `negator` and `negated` form a negation; `sub` follows أن;
    `masdar` is the verbal noun; `counted` agrees with a counted noun, and `impersonal` with nothing.
    """
    entry, tense = word.entry, word.variant
    if form == "masdar":
        return (Form(entry["masdar"]),)
    if form == "negator":
        return (Form({"present": "لا", "future": "لن"}.get(tense, "لم"), sure=False),)
    of = Features(agree.gender or "m", "sg", "3") if form in {"counted", "impersonal"} else agreement(agree)
    # Before its subject the verb is singular, even if the noun is plural.
    single = form in {"", "finite", "negated"} and of.kind != "pronoun"
    row = of.person + ("sg" if single else of.number)
    if form == "negated" and tense in {"past", "perfect"}:
        return (Form(present(entry, row, of.gender, mood="jussive")),)
    if form == "sub":
        return (Form(present(entry, row, of.gender, mood="sub")),)
    if tense == "future":
        negated = form == "negated"
        return (Form(present(entry, row, of.gender, "sub") if negated else "س" + present(entry, row, of.gender)),)
    if tense == "present":
        return (Form(present(entry, row, of.gender)),)
    return (Form(past(entry, row, of.gender)),)
