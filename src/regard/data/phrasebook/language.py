"""What every language of the phrasebook provides: parsing of lexicon fields, inflection, and joining of tokens.

A language inflects a `Word`, given the `Features` of the words it agrees with, to one or more `Form`s, whose texts
`Language.join` joins to words separated by white space. A token that ends in `+` is attached to the next one, and one
that starts with `+` (such as `+ه`) to the one before it.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

Entry = Mapping[str, str]
"""The parsed field of one language in a line of the lexicon: `{"singular": "Katze", "gender": "f", …}`."""


PRONOUN_CLASSES = ("m f", "sg pl", "1 2 3")


class Features(NamedTuple):
    """What other words agree with; an empty string means unspecified."""

    gender: str = ""  # m f n
    number: str = ""  # sg pl
    person: str = ""  # 1 2 3
    determiner: str = ""  # the English determiner: the, a, this, my, …
    kind: str = ""  # pronoun person mass kin
    place: str = ""  # before, for an adjective that precedes its noun

    def merge(self, other: "Features") -> "Features":
        """Return these features, with those that are unspecified taken from the other."""
        return Features(*(mine or theirs for mine, theirs in zip(self, other, strict=True)))


class Form(NamedTuple):
    """An inflected form and how it aligns: surely or possibly, with the whole word or with named parts of it."""

    text: str
    sure: bool = True
    parts: tuple[str, ...] = ("",)


class Word(NamedTuple):
    """A word to inflect: its lexicon entry, and the variant chosen (number of a noun, tense of a verb)."""

    category: str
    key: str
    entry: Entry
    variant: str
    classes: frozenset[str]


class Language:
    """The base class of the languages, which implement `read`, `inflect`, `pronoun` and `before`."""

    code = ""
    variable: frozenset[str] = frozenset()  # tokens whose text may depend on the next word
    attached: frozenset[str] = frozenset({",", "?"})  # punctuation written without a space before it
    capitalised = True  # whether sentences start with a capital
    kinds: tuple[str, ...] = ("mass",)  # the classes of nouns that `Features.kind` reports

    def read(self, category: str, field: str) -> Entry:
        """Parse a field of the lexicon; a ValueError says what the field should look like."""
        raise NotImplementedError

    def features(self, word: Word) -> Features:
        """Return what other words agree with when they agree with this word."""
        match word.category:
            case "noun":
                kind = next((kind for kind in self.kinds if kind in word.classes), "")
                return Features(word.entry["gender"], word.variant, "3", kind=kind)
            case "name":
                return Features("f" if "f" in word.classes else "m", "sg", "3")
            case "pronoun":
                return pronoun_features(word)
            case "determiner":
                return Features(determiner=word.key)
            case "adjective":
                return Features(place=word.entry.get("place", ""))
        return Features()

    def inflect(self, word: Word, form: str, case: str, agree: Features) -> Sequence[Form]:
        """Return the tokens of a word in a form, or none if the language drops the word."""
        raise NotImplementedError

    def pronoun(self, of: Features, form: str) -> Sequence[Form]:
        """Return the pronoun of something: `pronoun` (a subject), `relative`, or `whom` (a relative object)."""
        raise NotImplementedError

    def before(self, token: str, following: str, next_token: str) -> tuple[bool, str]:
        """Return how a token is written before the next word: whether the two merge, and its text or that of both."""
        return False, token

    def attach(self, token: str, suffix: str) -> str:
        """Attach a suffix (a comma, an Arabic pronoun) to a word."""
        return token + suffix

    def join(self, tokens: Sequence[str]) -> tuple[list[str], list[int]]:
        """Join tokens to words, and return the words and for each token the index of its word."""
        words: list[str] = []  # from last to first, because the text of a word depends on what follows it
        index = [0] * len(tokens)
        suffix, next_token, variable, attached = "", "", self.variable, self.attached
        for i in range(len(tokens) - 1, -1, -1):
            token = tokens[i]
            index[i] = len(words)
            if token in attached or token[0] == "+":
                suffix = token.lstrip("+") + suffix
                continue
            if suffix:
                words.append(self.attach(token, suffix))
                suffix = ""
            elif words and (token in variable or token[-1] in "+‿"):
                merged, text = self.before(token, words[-1], next_token)
                if merged:
                    words[-1] = text
                    index[i] -= 1
                else:
                    words.append(text)
            else:
                words.append(token.rstrip("‿"))
            next_token = token
        words.reverse()
        last = len(words) - 1
        return words, [last - i for i in index]


def possessive(features: Features) -> bool:
    """Whether the determiner is my, your, his, …"""
    return features.determiner in {"my", "your", "his", "her", "our"}


def pronoun_features(word: Word) -> Features:
    """Return the features of a personal pronoun, which the lexicon lists among its classes."""
    gender, number, person = (
        next(group for group in groups.split() if group in word.classes) for groups in PRONOUN_CLASSES
    )
    return Features(gender, number, person, kind="pronoun")


def invariable(entry: Entry) -> tuple[Form, ...]:
    """Return the tokens of a word that is never inflected; an underscore in the lexicon separates words."""
    return tuple(Form(part) for part in entry["text"].split("_"))


def split_options(field: str) -> tuple[list[str], dict[str, str]]:
    """Split a field into its plain parts and its `name=value` options."""
    plain = [part for part in field.split() if "=" not in part]
    named = dict(part.split("=", 1) for part in field.split() if "=" in part)
    return plain, named
