"""Search for the derivation of an English sentence.

Only words of the sentence can take part in it. So the grammar is reduced to those, and all derivations that remain are
tried.
"""

from collections.abc import Iterator

from regard.data.phrasebook.derivation import (
    ANY,
    ClassConstraint,
    Derivation,
    DerivationSampler,
    Leaf,
    Node,
    number_range,
    resolve,
)
from regard.data.phrasebook.grammar import Grammar, GrammarRule, Lexeme, SlotChoice
from regard.data.phrasebook.numerals import english
from regard.data.phrasebook.realisation import Realiser


def find(sentence: str, grammar: Grammar) -> Derivation | None:
    """Return the derivation whose English realisation is this sentence, or None."""
    words = set(sentence.replace(",", "").replace("?", "").replace("cannot", "can not").split()) | {",", "?"}
    lexemes = {
        category: [lexeme for lexeme in group if _may_occur(lexeme, words)]
        for category, group in grammar.lexemes.items()
    }
    sampler = DerivationSampler(Grammar(grammar.languages, lexemes, grammar.rules))
    realiser = Realiser(grammar.languages["en"])
    for rule in grammar.rules["sentence"]:
        literals = {element.text for element in rule.templates["en"] if element.text}
        if literals <= words:
            for derivation in _derivations(rule, sampler, ANY, words):
                if " ".join(realiser.sentence(derivation).words) == sentence:
                    return derivation
    return None


def _may_occur(lexeme: Lexeme, words: set[str]) -> bool:
    """Whether some form of the word may be in the sentence; words that can be dropped or change much always may."""
    if "copula" in lexeme.classes or lexeme.key == "a":
        return True
    forms = {form for value in lexeme.forms["en"].values() for form in value.replace("_", " ").split()}
    forms |= {form + ending for form in set(forms) for ending in ("s", "es")} | {form[:-1] + "ies" for form in forms}
    return bool(forms & words)


def _derivations(
    rule: GrammarRule, sampler: DerivationSampler, constraint: ClassConstraint, words: set[str]
) -> Iterator[Derivation]:
    """Yield every way to fill the slots of a rule."""
    partial: list[dict[str, Node]] = [{}]
    for choice in rule.choices:
        partial = [
            {**children, choice.name: node}
            for children in partial
            for node in _nodes(choice, children, sampler, constraint, words)
        ]
    for children in partial:
        yield Derivation(rule, children)


def _nodes(
    choice: SlotChoice,
    children: dict[str, Node],
    sampler: DerivationSampler,
    outer: ClassConstraint,
    words: set[str],
) -> Iterator[Node]:
    """Yield everything that can fill a slot."""
    if choice.category == "number":
        low, high = number_range(choice)
        for value in range(low, high + 1):
            forms = ("", "year", "ordinal") if value < 100 else ("", "year")
            if any({token.text for token in english(value, form)} <= words for form in forms):
                yield sampler.number_leaf(value)
        return
    constraint = resolve(choice, children, outer)
    if choice.category in sampler.grammar.rules:
        for rule in sampler.grammar.rules[choice.category]:
            yield from _derivations(rule, sampler, constraint, words)
        return
    seen: set[Leaf] = set()
    for variants in sampler.candidates(choice, constraint):
        for leaf in variants:
            if leaf not in seen:
                seen.add(leaf)
                yield leaf
