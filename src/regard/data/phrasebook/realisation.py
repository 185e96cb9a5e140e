"""From a derivation to text in one language.

Every token carries marks: the slot it fills (`subject`, `subject.adj`) or the label of a literal. What the marks of a
sentence are depends on its rule and on the shapes of what fills its slots (article and noun, or a lone pronoun). There
are few shapes; so a text keeps its shapes, and `alignment.py` looks at marks only when a combination of them is new.
"""

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from regard.data.phrasebook.derivation import Leaf, Node, Tree
from regard.data.phrasebook.grammar import Bond, Element, Rule
from regard.data.phrasebook.language import Features, Language, Token

NOTHING = Features()
CASES = frozenset({"nom", "acc", "dat", "gen", "drop", "suffix"})
PRONOUNS = frozenset({"pronoun", "relative", "whom"})
Marks: TypeAlias = tuple[tuple[str, bool], ...]
Carriers: TypeAlias = dict[str, list[tuple[int, bool]]]


class Shape:
    """The marks of some tokens, and the grammatical links among them as (kind, token, token); equal ones are one."""

    __slots__ = ("bonds", "marks")

    def __init__(self, marks: tuple[Marks, ...], bonds: tuple[tuple[str, int, int], ...]) -> None:
        """Made by a realiser, which keeps them unique."""
        self.marks = marks
        self.bonds = bonds


class Piece(NamedTuple):
    """Tokens and their shape."""

    tokens: tuple[str, ...]
    shape: Shape


class Text(NamedTuple):
    """A finished sentence: its words, the word that each token became part of, and the shapes of its slots."""

    words: list[str]
    places: tuple[int, ...]
    shapes: tuple[Shape, ...]


class Realiser:
    """Speaks one language. What was said once in the same setting is remembered."""

    def __init__(self, language: Language) -> None:
        """Start with nothing said."""
        self.language = language
        self.code = language.code
        self.said: dict[tuple[object, ...], Piece] = {}
        self.shapes: dict[tuple[object, ...], Shape] = {}

    def text(self, tree: Tree) -> Text:
        """Realise a sentence."""
        tokens, shapes = self.fill(tree, "")
        words, index = self.language.join(tokens)
        if self.language.capital:
            words[0] = words[0][0].upper() + words[0][1:]
        return Text(words, tuple(index), tuple(shapes))

    def fill(self, tree: Tree, case: str) -> tuple[list[str], list[Shape]]:
        """Fill in the template of a rule; the case asked of the phrase reaches the words in it."""
        tokens: list[str] = []
        shapes: list[Shape] = []
        children, said, code = tree.children, self.said, self.code
        for element in tree.rule.templates[code]:
            text, slot, _, agree, _, sign = element
            if text:
                tokens.append(text)
                continue
            node, features = children[slot], NOTHING
            for name in agree:
                other = children[name].spoken.get(code) or self.features(children[name])
                features = other if features is NOTHING else features.merge(other)
            key = (node, sign, case, features)
            piece = said.get(key)
            if piece is None:
                piece = said[key] = self.say(element, node, case, features)
            tokens += piece.tokens
            shapes.append(piece.shape)
        return tokens, shapes

    def say(self, element: Element, node: Node, case: str, agree: Features) -> Piece:
        """Realise a slot for the first time."""
        name = element.slot
        if element.form in PRONOUNS:
            tokens = self.language.pronoun(self.features(node), element.form)
            return self.labelled(tokens, name + ".pronoun", element.marks)
        if isinstance(node, Leaf):
            form = element.form
            tokens = self.language.inflect(node.words[self.code], form, form if form in CASES else case, agree)
            return self.labelled(tokens, name, element.marks)
        inner = self.phrase(node, element.form or case)
        return Piece(inner.tokens, self.renamed(inner.shape, node.rule.choices[0].name, element))

    def phrase(self, node: Tree, case: str) -> Piece:
        """A phrase in a case, realised once for all slots it may fill."""
        key = (node, case)
        known = self.said.get(key)
        if known is None:
            tokens, shapes = self.fill(node, case)
            marks, bonds = assemble(node.rule, self.code, shapes)
            bonds += bind(node.rule.bonds, carriers_of(marks, range(len(marks))))
            known = self.said[key] = Piece(tuple(tokens), self.shape(tuple(marks), tuple(bonds)))
        return known

    def labelled(self, tokens: Sequence[Token], name: str, extra: Marks) -> Piece:
        """Mark the tokens of a word with its slot, or with the parts of it they speak for."""
        marks = tuple(
            tuple((f"{name}.{part}" if part else name, token.sure) for part in token.parts) + extra for token in tokens
        )
        return Piece(tuple(token.text for token in tokens), self.shape(marks, ()))

    def renamed(self, shape: Shape, head: str, element: Element) -> Shape:
        """The shape of a phrase as seen from the slot it fills."""
        key = (shape, head, element.slot, element.marks)
        known = self.shapes.get(key)
        if known is None:
            marks = tuple(
                tuple((rename(mark, head, element.slot), sure) for mark, sure in carried) + element.marks
                for carried in shape.marks
            )
            known = self.shapes[key] = self.shape(marks, shape.bonds)
        return known

    def shape(self, marks: tuple[Marks, ...], bonds: tuple[tuple[str, int, int], ...]) -> Shape:
        """The one object for these marks and links."""
        return self.shapes.setdefault((marks, bonds), Shape(marks, bonds))

    def features(self, node: Node) -> Features:
        """What other words agree with."""
        known = node.spoken.get(self.code)
        if known is None:
            if isinstance(node, Leaf):
                known = self.language.features(node.words[self.code])
            else:
                known = Features()
                for child in node.children.values():
                    known = known.merge(self.features(child))
            node.spoken[self.code] = known
        return known


def assemble(rule: Rule, code: str, shapes: Sequence[Shape]) -> tuple[list[Marks], list[tuple[str, int, int]]]:
    """The marks of all tokens of a template whose slots have these shapes, and the links inside the slots."""
    marks: list[Marks] = []
    bonds: list[tuple[str, int, int]] = []
    waiting = iter(shapes)
    for element in rule.templates[code]:
        if element.text:
            marks.append(element.marks)
            continue
        shape, here = next(waiting), len(marks)
        bonds += [(kind, here + start, here + end) for kind, start, end in shape.bonds]
        marks += shape.marks
    return marks, bonds


def carriers_of(marks: Sequence[Marks], words: Sequence[int]) -> Carriers:
    """For each mark the words that carry it, and how surely."""
    carriers: Carriers = {}
    for word, carried in zip(words, marks, strict=True):
        for mark, sure in carried:
            carriers.setdefault(mark, []).append((word, sure))
    return carriers


def bind(bonds: Sequence[Bond], carriers: Carriers) -> list[tuple[str, int, int]]:
    """Find the two words of each grammatical link; a word that was dropped has none."""
    found = []
    for kind, start, end in bonds:
        begin = carriers.get(start + ".pronoun" if kind == "pronoun-antecedent" else start)
        finish = carriers.get(end)
        if begin and finish:
            found.append((kind, foremost(begin), foremost(finish)))
    return found


def foremost(words: list[tuple[int, bool]]) -> int:
    """The first word that surely carries a mark: a participle, not its auxiliary; a verb, not its prefix."""
    for word, sure in words:
        if sure:
            return word
    return words[0][0]


def rename(mark: str, head: str, name: str) -> str:
    """Marks inside a phrase, seen from outside: its head speaks for the whole phrase."""
    return name + mark[len(head) :] if mark == head or mark.startswith(head + ".") else f"{name}.{mark}"
