"""From a derivation to a sentence in one language.

Every token carries marks: the slot it fills (`subject`, `subject.adj`) or the label of a literal. The marks of a
sentence depend on its rule and on the shapes of what fills its slots (article and noun, or only a pronoun). There are
few shapes, so a sentence stores its shapes, and `alignment.py` looks at marks only for a new combination of them.
"""

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from regard.data.phrasebook.derivation import Derivation, Leaf, Node
from regard.data.phrasebook.grammar import GrammarRule, SlotRelation, TemplateElement
from regard.data.phrasebook.language import Features, Form, Language

NOTHING = Features()
CASES = frozenset({"nom", "acc", "dat", "gen", "drop", "suffix"})
PRONOUNS = frozenset({"pronoun", "relative", "whom"})
Marks: TypeAlias = tuple[tuple[str, bool], ...]
"""The marks of one token, each with whether it is sure."""
Carriers: TypeAlias = dict[str, list[tuple[int, bool]]]
"""For each mark the words that carry it, each with whether it is sure."""


class TokenShape:
    """The marks of some tokens, and the relations among them as (kind, token, token). Equal shapes are one object."""

    __slots__ = ("marks", "relations")

    def __init__(self, marks: tuple[Marks, ...], relations: tuple[tuple[str, int, int], ...]) -> None:
        """Store the parts; call `Realiser._shape` instead, which returns equal shapes as one object."""
        self.marks = marks
        self.relations = relations


class RealisedPhrase(NamedTuple):
    """Tokens and their shape."""

    tokens: tuple[str, ...]
    shape: TokenShape


class RealisedSentence(NamedTuple):
    """A sentence: its words, for each token the index of its word, and the shapes of its slots."""

    words: list[str]
    positions: tuple[int, ...]
    shapes: tuple[TokenShape, ...]


class Realiser:
    """Realises derivations in one language, and caches phrases."""

    def __init__(self, language: Language) -> None:
        """Start with an empty cache."""
        self.language = language
        self.code = language.code
        self.phrases: dict[tuple[object, ...], RealisedPhrase] = {}
        self.shapes: dict[tuple[object, ...], TokenShape] = {}

    def sentence(self, derivation: Derivation) -> RealisedSentence:
        """Realise a sentence."""
        tokens, shapes = self._fill(derivation, "")
        words, positions = self.language.join(tokens)
        if self.language.capitalised:
            words[0] = words[0][0].upper() + words[0][1:]
        return RealisedSentence(words, tuple(positions), tuple(shapes))

    def _fill(self, derivation: Derivation, case: str) -> tuple[list[str], list[TokenShape]]:
        """Fill the template of a rule; the case of the phrase applies to the words in it."""
        tokens: list[str] = []
        shapes: list[TokenShape] = []
        children, phrases, code = derivation.children, self.phrases, self.code
        for element in derivation.rule.templates[code]:
            text, slot, _, agree, _, sign = element
            if text:
                tokens.append(text)
                continue
            node, features = children[slot], NOTHING
            for name in agree:
                other = children[name].features.get(code) or self.features(children[name])
                features = other if features is NOTHING else features.merge(other)
            key = (node, sign, case, features)
            phrase = phrases.get(key)
            if phrase is None:
                phrase = phrases[key] = self._slot(element, node, case, features)
            tokens += phrase.tokens
            shapes.append(phrase.shape)
        return tokens, shapes

    def _slot(self, element: TemplateElement, node: Node, case: str, agree: Features) -> RealisedPhrase:
        """Realise what fills a slot."""
        name = element.slot
        if element.form in PRONOUNS:
            tokens = self.language.pronoun(self.features(node), element.form)
            return self._labelled(tokens, name + ".pronoun", element.marks)
        if isinstance(node, Leaf):
            form = element.form
            tokens = self.language.inflect(node.words[self.code], form, form if form in CASES else case, agree)
            return self._labelled(tokens, name, element.marks)
        inner = self._phrase(node, element.form or case)
        return RealisedPhrase(inner.tokens, self._renamed(inner.shape, node.rule.choices[0].name, element))

    def _phrase(self, node: Derivation, case: str) -> RealisedPhrase:
        """Realise a phrase in a case, once for all slots that it fills."""
        key = (node, case)
        phrase = self.phrases.get(key)
        if phrase is None:
            tokens, shapes = self._fill(node, case)
            marks, relations = assemble(node.rule, self.code, shapes)
            relations += relations_between(node.rule.relations, carriers_of(marks, range(len(marks))))
            phrase = RealisedPhrase(tuple(tokens), self._shape(tuple(marks), tuple(relations)))
            self.phrases[key] = phrase
        return phrase

    def _labelled(self, tokens: Sequence[Form], name: str, extra: Marks) -> RealisedPhrase:
        """Mark the tokens of a word with its slot, or with the parts of the slot that they express."""
        marks = tuple(
            tuple((f"{name}.{part}" if part else name, token.sure) for part in token.parts) + extra for token in tokens
        )
        return RealisedPhrase(tuple(token.text for token in tokens), self._shape(marks, ()))

    def _renamed(self, shape: TokenShape, head: str, element: TemplateElement) -> TokenShape:
        """Return the shape of a phrase with the marks it has in the slot that it fills."""
        key = (shape, head, element.slot, element.marks)
        renamed = self.shapes.get(key)
        if renamed is None:
            marks = tuple(
                tuple((rename(mark, head, element.slot), sure) for mark, sure in carried) + element.marks
                for carried in shape.marks
            )
            renamed = self.shapes[key] = self._shape(marks, shape.relations)
        return renamed

    def _shape(self, marks: tuple[Marks, ...], relations: tuple[tuple[str, int, int], ...]) -> TokenShape:
        """Return the only object with these marks and relations."""
        return self.shapes.setdefault((marks, relations), TokenShape(marks, relations))

    def features(self, node: Node) -> Features:
        """Return what other words agree with."""
        features = node.features.get(self.code)
        if features is None:
            if isinstance(node, Leaf):
                features = self.language.features(node.words[self.code])
            else:
                features = Features()
                for child in node.children.values():
                    features = features.merge(self.features(child))
            node.features[self.code] = features
        return features


def assemble(
    rule: GrammarRule, code: str, shapes: Sequence[TokenShape]
) -> tuple[list[Marks], list[tuple[str, int, int]]]:
    """Return the marks of all tokens of a template whose slots have these shapes, and the relations inside slots."""
    marks: list[Marks] = []
    relations: list[tuple[str, int, int]] = []
    remaining = iter(shapes)
    for element in rule.templates[code]:
        if element.text:
            marks.append(element.marks)
            continue
        shape, first = next(remaining), len(marks)
        relations += [(kind, first + start, first + end) for kind, start, end in shape.relations]
        marks += shape.marks
    return marks, relations


def carriers_of(marks: Sequence[Marks], positions: Sequence[int]) -> Carriers:
    """Return for each mark the words that carry it, each with whether it is sure."""
    carriers: Carriers = {}
    for word, carried in zip(positions, marks, strict=True):
        for mark, sure in carried:
            carriers.setdefault(mark, []).append((word, sure))
    return carriers


def relations_between(relations: Sequence[SlotRelation], carriers: Carriers) -> list[tuple[str, int, int]]:
    """Return the two words of each relation between slots; a relation of a dropped word is left out."""
    found = []
    for kind, start, end in relations:
        start_words = carriers.get(start + ".pronoun" if kind == "pronoun-antecedent" else start)
        end_words = carriers.get(end)
        if start_words and end_words:
            found.append((kind, _main_word(start_words), _main_word(end_words)))
    return found


def _main_word(words: list[tuple[int, bool]]) -> int:
    """Return the first word that surely carries a mark: a participle, not its auxiliary; a verb, not its prefix."""
    for word, sure in words:
        if sure:
            return word
    return words[0][0]


def rename(mark: str, head: str, name: str) -> str:
    """Return the mark that a token of a phrase has outside of it: the mark of the head stands for the phrase."""
    return name + mark[len(head) :] if mark == head or mark.startswith(head + ".") else f"{name}.{mark}"
