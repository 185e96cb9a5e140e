"""The split of a sentence, which depends only on what the sentence says.

The content words of a sentence (without pronouns, articles, tense and number) are hashed to train, valid or test. So
`he bought a car` and `she has bought the cars` are in the same split, as they must be because some language may
translate them in the same way. Some pairs of words in a grammatical relation are held out by a hash of their own: a
sentence with such a pair is in the split `novel`.
"""

from regard.data.generation import fraction
from regard.data.phrasebook.derivation import Derivation
from regard.data.phrasebook.grammar import Grammar

SPLITS = ("train", "valid", "test", "novel")
HELD_OUT = 0.04  # the share of word pairs that are held out
VALID, TEST = 0.04, 0.08  # upper bounds of the hash: four per cent each
PARTNERS = 5  # verbs and adjectives with fewer possible partners have no pair held out


class Splitter:
    """Assigns derivations to splits."""

    def __init__(self, grammar: Grammar) -> None:
        """Find the words that have too few partners to hold out a pair."""
        nouns = grammar.lexemes["noun"]
        self.protected = {
            lexeme.family
            for category, wants in (("verb", "object"), ("adjective", "classes"))
            for lexeme in grammar.lexemes[category]
            if (classes := lexeme.object if wants == "object" else lexeme.classes)
            and sum(bool(noun.classes & classes) for noun in nouns) < PARTNERS
        }
        self.held: dict[tuple[str, str, str], bool] = {}

    def split(self, derivation: Derivation) -> str:
        """Return the split of a sentence, or an empty string for a held-out pair together with a number.

        German and Italian write a number as one word. Without this exception, novel would have words that train does
        not have.
        """
        if any(self.held_out(pair) for pair in derivation.pairs):
            numbered = any(child.head.category == "number" for child in derivation.children.values())
            return "" if numbered else "novel"
        value = fraction(" ".join(sorted(set(derivation.key))))
        return "valid" if value < VALID else "test" if value < TEST else "train"

    def held_out(self, pair: tuple[str, str, str]) -> bool:
        """Whether a pair of words occurs only in `novel`."""
        held_out = self.held.get(pair)
        if held_out is None:
            kind, start, end = pair
            unprotected = {start, end}.isdisjoint(self.protected)
            held_out = self.held[pair] = unprotected and fraction(f"{kind} {start} {end}") < HELD_OUT
        return held_out
