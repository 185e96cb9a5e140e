"""English inflection: plurals, verbs with do-support, articles before vowels."""

from regard.data.phrasebook import numerals
from regard.data.phrasebook.language import (
    Entry,
    Features,
    Form,
    Language,
    Word,
    invariable,
    split_options,
)

PRONOUNS = {("1", "sg"): "I", ("2", "sg"): "you", ("1", "pl"): "we", ("3", "pl"): "they"}
BE = {
    ("present", "1", "sg"): "am",
    ("present", "3", "sg"): "is",
    ("past", "1", "sg"): "was",
    ("past", "3", "sg"): "was",
}
VOWELS = "aeiouAEIOU"


def plural(noun: str) -> str:
    """Return the regular plural; irregular ones are in the lexicon."""
    if noun.endswith(("s", "x", "ch", "sh", "z")):
        return noun + "es"
    if noun.endswith("y") and noun[-2] not in VOWELS:
        return noun[:-1] + "ies"
    return noun + "s"


def past(verb: str) -> str:
    """Return the regular past."""
    return verb + ("d" if verb.endswith("e") else "ed")


class English(Language):
    """English, the source language."""

    code = "en"
    capitalised = False
    variable = frozenset({"a", "can"})

    def read(self, category: str, field: str) -> Entry:
        """Parse a field: `child children`, `see saw seen`, `turn +on`, `I me`."""
        parts, _ = split_options(field)
        match category:
            case "noun":
                return {"text": parts[0], "sg": parts[0], "pl": parts[1] if len(parts) > 1 else plural(parts[0])}
            case "verb":
                particle = " ".join(part[1:] for part in parts if part.startswith("+"))
                forms = [part for part in parts if not part.startswith("+")]
                if len(forms) == 1:
                    forms += [past(forms[0])] * 2
                if len(forms) != 3:
                    raise ValueError("an English verb is its base, or base, past and participle: see saw seen")
                base, before, participle = (form.replace("_", " ") for form in forms)
                return {"text": base, "past": before, "participle": participle, "particle": particle}
            case "pronoun" | "determiner":
                if len(parts) != 2:
                    raise ValueError(f"an English {category} has two forms: I me, this these")
                return {"text": parts[0], "other": "" if parts[1] == "-" else parts[1]}
        return {"text": field.strip()}

    def features(self, word: Word) -> Features:
        """Return person, number, and the gender that decides between he, she and it."""
        if word.category != "noun":
            return super().features(word)
        person = "person" in word.classes
        gender = ("f" if "she" in word.classes else "m") if person else "n"
        return Features(gender, word.variant, "3", kind="mass" if "mass" in word.classes else "")

    def inflect(self, word: Word, form: str, case: str, agree: Features) -> tuple[Form, ...]:
        """Return the tokens of a word in a form."""
        entry = word.entry
        match word.category:
            case "noun":
                return (Form(entry[agree.number or word.variant]),)
            case "verb":
                return self.verb(word, form, agree)
            case "pronoun":
                return (Form(entry["other" if form == "object" else "text"]),)
            case "determiner":
                bare = word.key == "a" and (agree.number == "pl" or agree.kind == "mass")
                text = "" if bare else entry["other" if agree.number == "pl" else "text"]
                return (Form(text),) if text else ()
            case "number":
                return numerals.english(int(word.key), form)
        return invariable(entry)

    def verb(self, word: Word, form: str, agree: Features) -> tuple[Form, ...]:
        """Return a verb: the whole verb (the default), or `aux` and `main`, which surround *not* or a subject."""
        entry, tense = word.entry, word.variant
        main, helper = self.main(word, agree), ""
        if "copula" in word.classes:
            return () if form == "main" else (Form(main),)
        match tense:
            case "future":
                helper, main = "will", entry["text"]
            case "perfect":
                helper, main = self.third(agree, "has", "have"), entry["participle"]
            case "past" if form in {"aux", "main"}:
                helper, main = "did", entry["text"]
            case "present" if form in {"aux", "main"}:
                helper, main = self.third(agree, "does", "do"), entry["text"]
        if form == "base":
            helper, main = "", entry["text"]
        first = (Form(helper, sure=False),) if helper and form != "main" else ()
        rest = tuple(Form(part) for part in (main + " " + entry["particle"]).split())
        return first if form == "aux" else rest if form == "main" else first + rest

    def main(self, word: Word, agree: Features) -> str:
        """Return the present or past in one word."""
        entry, tense = word.entry, word.variant
        if "copula" in word.classes:
            return BE.get((tense, agree.person, agree.number), "are" if tense == "present" else "were")
        if tense == "past":
            return entry["past"]
        if "modal" in word.classes and not entry["particle"]:
            return entry["text"]
        base = entry["text"]
        third = base[:-1] + "ies" if base.endswith("y") and base[-2] not in VOWELS else plural(base)
        return self.third(agree, "goes" if base == "go" else third, base)

    @staticmethod
    def third(agree: Features, yes: str, no: str) -> str:
        """Return `yes` for he, she and it, and `no` for all others."""
        return yes if (agree.person, agree.number) == ("3", "sg") else no

    def pronoun(self, of: Features, form: str) -> tuple[Form, ...]:
        """Return he, she, it and so on; who or that in relative clauses."""
        if form != "pronoun":
            return (Form("that" if of.gender == "n" else "who"),)
        third = {"m": "he", "f": "she", "n": "it"}[of.gender]
        return (Form(PRONOUNS.get((of.person, of.number), third)),)

    def before(self, token: str, following: str, next_token: str) -> tuple[bool, str]:
        """Write *an* before a vowel, and *cannot*."""
        if token == "can":
            return (True, "cannot") if following == "not" else (False, token)
        return False, "an" if following[0] in VOWELS else "a"
