"""Finds the derivation of an English sentence, if the grammar has one.

Only words of the sentence can take part, so the grammar is cut down to those and what is left is tried in turn.
"""

from collections.abc import Iterator

from regard.data.phrasebook.derivation import ANY, Chooser, Leaf, Node, Terms, Tree, bounds_of, resolve
from regard.data.phrasebook.grammar import Choice, Grammar, Lexeme, Rule
from regard.data.phrasebook.numerals import english
from regard.data.phrasebook.realisation import Realiser


def find(sentence: str, grammar: Grammar) -> Tree | None:
    """The derivation whose English is this sentence."""
    words = set(sentence.replace(",", "").replace("?", "").replace("cannot", "can not").split()) | {",", "?"}
    lexemes = {
        category: [lexeme for lexeme in group if heard(lexeme, words)] for category, group in grammar.lexemes.items()
    }
    chooser = Chooser(Grammar(grammar.languages, lexemes, grammar.rules))
    speaker = Realiser(grammar.languages["en"])
    for rule in grammar.rules["sentence"]:
        literals = {element.text for element in rule.templates["en"] if element.text}
        if literals <= words:
            for tree in trees(rule, chooser, ANY, words):
                if " ".join(speaker.text(tree).words) == sentence:
                    return tree
    return None


def heard(lexeme: Lexeme, words: set[str]) -> bool:
    """Whether some form of the word may stand in the sentence; what can be silent or changes much always may."""
    if "copula" in lexeme.classes or lexeme.key == "a":
        return True
    spoken = {form for value in lexeme.forms["en"].values() for form in value.replace("_", " ").split()}
    spoken |= {form + ending for form in set(spoken) for ending in ("s", "es")} | {form[:-1] + "ies" for form in spoken}
    return bool(spoken & words)


def trees(rule: Rule, chooser: Chooser, passed: Terms, words: set[str]) -> Iterator[Tree]:
    """Every way to fill the slots of a rule."""
    pending: list[dict[str, Node]] = [{}]
    for choice in rule.choices:
        pending = [
            {**children, choice.name: node}
            for children in pending
            for node in nodes(choice, children, chooser, passed, words)
        ]
    for children in pending:
        yield Tree(rule, children)


def nodes(
    choice: Choice, children: dict[str, Node], chooser: Chooser, passed: Terms, words: set[str]
) -> Iterator[Node]:
    """Everything that can stand in one slot."""
    if choice.category == "number":
        low, high = bounds_of(choice)
        for value in range(low, high + 1):
            forms = ("", "year", "ordinal") if value < 100 else ("", "year")
            if any({token.text for token in english(value, form)} <= words for form in forms):
                yield chooser.number_leaf(value)
        return
    terms = resolve(choice, children, passed)
    if choice.category in chooser.grammar.rules:
        for rule in chooser.grammar.rules[choice.category]:
            yield from trees(rule, chooser, terms, words)
        return
    seen: set[Leaf] = set()
    for variants in chooser.candidates(choice, terms):
        for leaf in variants:
            if leaf not in seen:
                seen.add(leaf)
                yield leaf
