"""French inflection: agreement, passé composé with its auxiliaries, elision and contraction."""

from regard.data.phrasebook import numerals
from regard.data.phrasebook.language import Entry, Features, Form, Language, Word, invariable, split_options

BE = {"1sg": "suis", "2sg": "es", "3sg": "est", "1pl": "sommes", "3pl": "sont"}
HAVE = {"1sg": "ai", "2sg": "as", "3sg": "a", "1pl": "avons", "3pl": "ont"}
FUTURE = {"1sg": "ai", "2sg": "as", "3sg": "a", "1pl": "ons", "3pl": "ont"}
IMPERFECT = {"1sg": "ais", "2sg": "ais", "3sg": "ait", "1pl": "ions", "3pl": "aient"}
PRONOUNS = {"1sg": "je", "2sg": "tu", "1pl": "nous", "3sgm": "il", "3sgf": "elle", "3plm": "ils", "3plf": "elles"}
VOWELS = "aàâeéèêiîoôuyœAEIOUÉh"
ELIDE = frozenset({"le", "la", "de", "que", "ne", "je", "me", "te"})
MERGE = {("de", "le"): "du", ("de", "les"): "des", ("à", "le"): "au", ("à", "les"): "aux"}
BEFORE_VOWEL = {
    "ma": "mon",
    "ta": "ton",
    "sa": "son",
    "ce": "cet",
    "beau‿": "bel",
    "nouveau‿": "nouvel",
    "vieux‿": "vieil",
}


class French(Language):
    """French."""

    code = "fr"
    attached = frozenset({","})  # a space precedes the question mark
    variable = ELIDE | {"à", "ma", "ta", "sa", "ce"}

    def __init__(self) -> None:
        """Start without words with an aspirate h; the lexicon marks them."""
        self.aspirate: set[str] = set()

    def read(self, category: str, field: str) -> Entry:
        """Parse a field: `journal m journaux`, `vieux vieille before`, `lire lu lis lit lisons lisent`."""
        parts, named = split_options(field)
        match category:
            case "noun":
                return self.read_noun(field)
            case "adjective":
                forms = [part for part in parts if part != "before"]
                feminine = forms[1] if len(forms) > 1 else feminine_of(forms[0])
                return {"text": forms[0], "f": feminine, "place": "before" if "before" in parts else "after"}
            case "adverb":
                return {"text": parts[0], "place": "before" if "before" in parts else "after"}
            case "verb":
                return read_verb(parts, named)
            case "pronoun":
                return dict(zip(("text", "object"), parts, strict=True))
            case "determiner":
                return dict(zip(("text", "f", "pl"), parts, strict=True))
        return {"text": field.strip()}

    def read_noun(self, field: str) -> Entry:
        """Parse a noun: singular, gender, and an irregular plural."""
        entry: dict[str, str] = {}
        for prefix, half in zip(("", "f."), field.split("/"), strict=False):
            parts = half.split()
            if len(parts) not in {2, 3} or parts[1] not in {"m", "f"}:
                raise ValueError("a French noun is written with its gender: chat m, or journal m journaux")
            singular = parts[0].removeprefix("*")
            if parts[0].startswith("*"):
                self.aspirate.add(singular)
            many = parts[2] if len(parts) == 3 else plural_of(singular)
            entry |= {prefix + "gender": parts[1], prefix + "sg": singular, prefix + "pl": many}
        return entry | {"text": entry["sg"]}

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
                return determiner(word, agree)
            case "verb":
                return verb(word, form, agree)
            case "pronoun":
                return (Form(entry.get(form, entry["text"])),)
            case "adverb" if form and form != entry["place"]:
                return ()
            case "number":
                return numerals.french(int(word.key), form)
        return invariable(entry)

    def pronoun(self, of: Features, form: str) -> tuple[Form, ...]:
        """Return il, elle, ils or elles by the gender of the antecedent; qui or que in relative clauses."""
        if form != "pronoun":
            return (Form("que" if form == "whom" else "qui"),)
        key = of.person + of.number
        return (Form(PRONOUNS.get(key) or PRONOUNS[key + of.gender]),)

    def before(self, token: str, following: str, next_token: str) -> tuple[bool, str]:
        """Elide before a vowel, and contract prepositions with articles."""
        vowel = following[0] in VOWELS and following not in self.aspirate and not following.startswith(("huit", "onze"))
        if vowel and token in ELIDE:
            return True, token[:-1] + "'" + following
        if (token, following) in MERGE and next_token == following:
            return True, MERGE[token, following]
        return False, BEFORE_VOWEL.get(token, token.rstrip("‿")) if vowel else token.rstrip("‿")


def plural_of(text: str) -> str:
    """Return the regular plural of a noun or adjective."""
    if text.endswith(("s", "x", "z")):
        return text
    if text.endswith("al"):
        return text[:-2] + "aux"
    return text + ("x" if text.endswith(("eau", "eu")) and text != "bleu" else "s")


def feminine_of(text: str) -> str:
    """Return the regular feminine of an adjective or participle."""
    if text.endswith("e"):
        return text
    for ending, change in (("eux", "euse"), ("er", "ère"), ("f", "ve")):
        if text.endswith(ending):
            return text[: -len(ending)] + change
    return text + "e"


def read_verb(parts: list[str], named: dict[str, str]) -> Entry:
    """Parse a verb: infinitive, participle, je, il, nous, ils, future stem; only the infinitive for those in -er."""
    helper = "être" if "être" in parts[1:] else "avoir"
    forms = [parts[0], *(part for part in parts[1:] if part != "être")]
    infinitive, stem = forms[0], forms[0][:-2]
    if len(forms) == 1 and infinitive.endswith("er"):
        soft = stem + "e" if stem.endswith("g") else stem[:-1] + "ç" if stem.endswith("c") else stem
        forms += [stem + "é", stem + "e", stem + "e", soft + "ons", stem + "ent"]
    if len(forms) not in {6, 7}:
        raise ValueError(
            "a French verb not in -er is: infinitive participle je il nous ils: lire lu lis lit lisons lisent"
        )
    _, participle, first, third, we, they, *future = forms
    second = named.get("tu") or (first + "s" if first.endswith("e") else first)
    return {
        "text": infinitive, "participle": participle, "1sg": first, "2sg": second, "3sg": third, "1pl": we, "3pl": they,
        "future": future[0] if future else infinitive.removesuffix("e"), "helper": helper,
    }  # fmt: skip


def agreeing(text: str, feminine: str, agree: Features) -> str:
    """Return the form for a gender and number."""
    chosen = feminine if agree.gender == "f" else text
    return plural_of(chosen) if agree.number == "pl" else chosen


def adjective(entry: Entry, form: str, agree: Features) -> tuple[Form, ...]:
    """Return an adjective: `before` or `after` its noun, if it belongs there; without a form, as a predicate."""
    if form in {"before", "after"} and entry["place"] != form:
        return ()
    text = agreeing(entry["text"], entry["f"], agree)
    return (Form(text + "‿" if form == "before" and agree.number == "sg" else text),)


def determiner(word: Word, agree: Features) -> tuple[Form, ...]:
    """Return an article, *this* or a possessive; mass nouns take the partitive, and des is de before an adjective."""
    entry = word.entry
    if word.key == "a" and agree.kind == "mass":
        return Form("de"), Form("la" if agree.gender == "f" else "le")
    if agree.number == "pl":
        return (Form("de" if word.key == "a" and agree.place == "before" else entry["pl"]),)
    return (Form(entry["f"] if agree.gender == "f" else entry["text"]),)


def simple(word: Word, row: str) -> str:
    """Return the present, imperfect or future."""
    entry = word.entry
    if word.variant == "future":
        return entry["future"] + FUTURE[row]
    if word.variant != "past":
        return "es" if entry["text"] == "être" and row == "2sg" else entry[row]
    stem = "ét" if entry["text"] == "être" else entry["1pl"][:-3]
    return stem + IMPERFECT[row]


def verb(word: Word, form: str, agree: Features) -> tuple[Form, ...]:
    """Return a verb: `finite` is the verb or its auxiliary, `rest` the participle, `inf` the infinitive.

    With avoir the participle agrees only with a preceding object: `given`, as in "la lettre que j'ai lue".
    """
    entry, row = word.entry, agree.person + agree.number
    if form == "inf":
        return (Form(entry["text"]),)
    if word.variant not in {"past", "perfect"} or "stative" in word.classes:
        return () if form in {"rest", "given"} else (Form(simple(word, row)),)
    if form in {"rest", "given"}:
        participle = entry["participle"]
        changes = entry["helper"] == "être" or form == "given"
        return (Form(agreeing(participle, feminine_of(participle), agree) if changes else participle),)
    return (Form((BE if entry["helper"] == "être" else HAVE)[row], sure=False),)
