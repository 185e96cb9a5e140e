"""What every language of the phrasebook offers: reading lexicon fields, inflecting words, joining tokens into text.

In: an `Entry` (what one lexicon field says) and the `Features` of the words it agrees with. Out: `Token`s, which
`Language.join` turns into whitespace words. A token ending in `+` clings to the next one, `+ه` to the one before.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

Entry = Mapping[str, str]
"""What one language's field of a lexicon line says, by name: `{"singular": "Katze", "gender": "f", …}`."""


PRONOUN_CLASSES = ("m f", "sg pl", "1 2 3")


class Features(NamedTuple):
    """What other words agree with. The empty string means: not said."""

    gender: str = ""  # m f n
    number: str = ""  # sg pl
    person: str = ""  # 1 2 3
    determiner: str = ""  # the English determiner: the, a, this, my, …
    kind: str = ""  # pronoun person mass kin
    place: str = ""  # before, for an adjective that stands before its noun

    def merge(self, other: "Features") -> "Features":
        """Fill what is not said here with what the other says."""
        return Features(*(mine or theirs for mine, theirs in zip(self, other, strict=True)))


class Token(NamedTuple):
    """A piece of text with how it aligns: surely or possibly, as the whole word or as the named parts of it."""

    text: str
    sure: bool = True
    parts: tuple[str, ...] = ("",)


class Word(NamedTuple):
    """One word to inflect: what the lexicon says, and the variant chosen (number of a noun, tense of a verb)."""

    category: str
    key: str
    entry: Entry
    variant: str
    classes: frozenset[str]


class Language:
    """The shared part; each language subclasses it and fills in `read`, `inflect`, `pronoun` and `meet`."""

    code = ""
    active: frozenset[str] = frozenset()  # tokens that may change before the next word
    clings: frozenset[str] = frozenset({",", "?"})  # punctuation written to the word before
    capital = True  # sentences open with a capital
    kinds: tuple[str, ...] = ("mass",)  # classes of nouns that other words ask for

    def read(self, category: str, field: str) -> Entry:
        """Parse one lexicon field; a `ValueError` says what the field should look like."""
        raise NotImplementedError

    def features(self, word: Word) -> Features:
        """What others agree with when they agree with this word."""
        match word.category:
            case "noun":
                kind = next((kind for kind in self.kinds if kind in word.classes), "")
                return Features(word.entry["gender"], word.variant, "3", kind=kind)
            case "name":
                return Features("f" if "f" in word.classes else "m", "sg", "3")
            case "pronoun":
                return speaker(word)
            case "determiner":
                return Features(determiner=word.key)
            case "adjective":
                return Features(place=word.entry.get("place", ""))
        return Features()

    def inflect(self, word: Word, form: str, case: str, agree: Features) -> Sequence[Token]:
        """The word in the wanted form, or no token where the language drops it."""
        raise NotImplementedError

    def pronoun(self, of: Features, form: str) -> Sequence[Token]:
        """The pronoun for something: `pronoun` (a subject), `relative`, `whom` (a relative object)."""
        raise NotImplementedError

    def meet(self, token: str, following: str, next_token: str) -> tuple[bool, str]:
        """How a token behaves before the next word: (does it merge?, its text, or the text of both)."""
        return False, token

    def attach(self, token: str, suffix: str) -> str:
        """Write a clinging suffix (a comma, an Arabic pronoun) to its word."""
        return token + suffix

    def join(self, tokens: Sequence[str]) -> tuple[list[str], list[int]]:
        """Turn tokens into whitespace words; also, for each token, the index of the word it became part of."""
        words: list[str] = []  # from last to first, since a word's shape depends on what follows it
        index = [0] * len(tokens)
        suffix, next_token, active, clings = "", "", self.active, self.clings
        for i in range(len(tokens) - 1, -1, -1):
            token = tokens[i]
            index[i] = len(words)
            if token in clings or token[0] == "+":
                suffix = token.lstrip("+") + suffix
                continue
            if suffix:
                words.append(self.attach(token, suffix))
                suffix = ""
            elif words and (token in active or token[-1] in "+‿"):
                merged, text = self.meet(token, words[-1], next_token)
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


def speaker(word: Word) -> Features:
    """The features of a personal pronoun, which the lexicon lists among its classes."""
    gender, number, person = (
        next(group for group in groups.split() if group in word.classes) for groups in PRONOUN_CLASSES
    )
    return Features(gender, number, person, kind="pronoun")


def fixed(entry: Entry) -> tuple[Token, ...]:
    """The tokens of a word that never changes; an underscore in the lexicon divides words."""
    return tuple(Token(part) for part in entry["text"].split("_"))


def options(field: str) -> tuple[list[str], dict[str, str]]:
    """Divide a field into its plain parts and its `name=value` options."""
    plain = [part for part in field.split() if "=" not in part]
    named = dict(part.split("=", 1) for part in field.split() if "=" in part)
    return plain, named
