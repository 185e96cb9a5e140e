"""Which split a sentence belongs to, decided by what it says and never by chance.

The content words of a sentence (never its pronouns, articles, tense or number) are hashed to train, valid or test, so
that `he bought a car` and `she has bought the cars` stay together, as they must where a language translates them alike.
Some pairs of words joined by a grammatical link are set aside by a hash of their own: with one, a sentence is `novel`.
"""

from hashlib import blake2b

from regard.data.phrasebook.derivation import Tree
from regard.data.phrasebook.grammar import Grammar

SPLITS = ("train", "valid", "test", "novel")
SALT = "regard"
HELD_OUT = 0.04  # of all pairs of words that a grammatical link may join
VALID, TEST = 0.04, 0.08  # bounds on the hash: four in a hundred each
PARTNERS = 5  # a verb or adjective with fewer partners loses none


def digest(text: str) -> bytes:
    """Eight bytes that depend on the text alone, on every machine and in every version of Python."""
    return blake2b(f"{SALT}|{text}".encode(), digest_size=8).digest()


def fraction(text: str) -> float:
    """The digest as a number in [0, 1)."""
    return int.from_bytes(digest(text), "big") / 2**64


class Splitter:
    """Knows the split of every derivation."""

    def __init__(self, grammar: Grammar) -> None:
        """Find out which words have too few partners to lose one."""
        nouns = grammar.lexemes["noun"]
        self.protected = {
            lexeme.family
            for category, wants in (("verb", "object"), ("adjective", "classes"))
            for lexeme in grammar.lexemes[category]
            if (classes := lexeme.object if wants == "object" else lexeme.classes)
            and sum(bool(noun.classes & classes) for noun in nouns) < PARTNERS
        }
        self.held: dict[tuple[str, str, str], bool] = {}

    def split(self, tree: Tree) -> str:
        """The split of a sentence, or nothing for one that no split may have: a novel pair beside a number.

        Numbers are words of their own in German and Italian; without this, novel would have words that train has not.
        """
        if any(self.held_out(pair) for pair in tree.pairs):
            numbered = any(child.head.category == "number" for child in tree.children.values())
            return "" if numbered else "novel"
        place = fraction(" ".join(sorted(set(tree.key))))
        return "valid" if place < VALID else "test" if place < TEST else "train"

    def held_out(self, pair: tuple[str, str, str]) -> bool:
        """Whether this pair of words is kept for `novel`."""
        known = self.held.get(pair)
        if known is None:
            kind, start, end = pair
            safe = {start, end}.isdisjoint(self.protected)
            known = self.held[pair] = safe and fraction(f"{kind} {start} {end}") < HELD_OUT
        return known
