"""From a derivation to text in one language, and from two texts to the links between their words.

Every token carries marks: the slot it fills (`subject`, `subject.adj`) or the label of a literal. Tokens of the two
languages with the same mark align, surely when both are sure of it. A word that a language drops (an Italian pronoun,
an Arabic article) leaves its mark to a host: the word that agrees with it, or the head of its phrase.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

from regard.data.phrasebook.derivation import Leaf, Node, Tree
from regard.data.phrasebook.grammar import Bond, Element, Rule
from regard.data.phrasebook.language import Features, Language, Token

NOTHING = Features()
CASES = frozenset({"nom", "acc", "dat", "gen", "drop", "suffix"})
PRONOUNS = frozenset({"pronoun", "relative", "whom"})
Marks: TypeAlias = tuple[tuple[str, bool], ...]


class Piece(NamedTuple):
    """Tokens with their marks, and the grammatical links inside as (kind, token, token)."""

    tokens: tuple[str, ...]
    marks: tuple[Marks, ...]
    bonds: tuple[tuple[str, int, int], ...]


class Text(NamedTuple):
    """A finished sentence: its words, which words carry each mark and how surely, and its grammatical links."""

    words: list[str]
    carriers: dict[str, list[tuple[int, bool]]]
    bonds: list[tuple[str, int, int]]


class Realiser:
    """Speaks one language. What was said once in the same setting is remembered."""

    def __init__(self, language: Language) -> None:
        """Start with nothing said."""
        self.language = language
        self.code = language.code
        self.said: dict[tuple[object, ...], Piece] = {}
        self.hosts: dict[Rule, dict[str, str]] = {}

    def text(self, tree: Tree) -> Text:
        """Realise a sentence."""
        tokens, marks, bonds = self.fill(tree, "")
        words, index = self.language.join(tokens)
        if self.language.capital:
            words[0] = words[0][0].upper() + words[0][1:]
        carriers: dict[str, list[tuple[int, bool]]] = {}
        for word, carried in zip(index, marks, strict=True):
            for mark, sure in carried:
                if mark in carriers:
                    carriers[mark].append((word, sure))
                else:
                    carriers[mark] = [(word, sure)]
        inner = [(kind, index[start], index[end]) for kind, start, end in bonds]
        return Text(words, carriers, inner + bind(tree.rule.bonds, carriers))

    def piece(self, tree: Tree, case: str) -> Piece:
        """Realise a phrase inside a sentence."""
        tokens, marks, bonds = self.fill(tree, case)
        carriers: dict[str, list[tuple[int, bool]]] = {}
        for place, carried in enumerate(marks):
            for mark, sure in carried:
                carriers.setdefault(mark, []).append((place, sure))
        return Piece(tuple(tokens), tuple(marks), tuple(bonds + bind(tree.rule.bonds, carriers)))

    def fill(self, tree: Tree, case: str) -> tuple[list[str], list[Marks], list[tuple[str, int, int]]]:
        """Fill in the template of a rule; the case asked of the phrase reaches the words in it."""
        tokens: list[str] = []
        marks: list[Marks] = []
        bonds: list[tuple[str, int, int]] = []
        children, said, code = tree.children, self.said, self.code
        for element in tree.rule.templates[code]:
            text, slot, _, agree, own, sign = element
            if text:
                tokens.append(text)
                marks.append(own)
                continue
            node, features = children[slot], NOTHING
            for name in agree:
                other = children[name].spoken.get(code) or self.features(children[name])
                features = other if features is NOTHING else features.merge(other)
            key = (node, sign, case, features)
            part = said.get(key)
            if part is None:
                part = said[key] = self.say(element, node, case, features)
            if part.bonds:
                here = len(tokens)
                bonds += [(kind, here + start, here + end) for kind, start, end in part.bonds]
            tokens += part.tokens
            marks += part.marks
        return tokens, marks, bonds

    def say(self, element: Element, node: Node, case: str, agree: Features) -> Piece:
        """Realise a slot for the first time."""
        name = element.slot
        if element.form in PRONOUNS:
            tokens = self.language.pronoun(self.features(node), element.form)
            return labelled(tokens, name + ".pronoun", element.marks)
        if isinstance(node, Leaf):
            form = element.form
            tokens = self.language.inflect(node.words[self.code], form, form if form in CASES else case, agree)
            return labelled(tokens, name, element.marks)
        inner = self.inner(node, element.form or case)
        first = node.rule.choices[0].name
        renamed = tuple(
            tuple((rename(mark, first, name), sure) for mark, sure in marks) + element.marks for marks in inner.marks
        )
        return inner._replace(marks=renamed)

    def inner(self, node: Tree, case: str) -> Piece:
        """A phrase in a case, realised once for all slots it may fill."""
        key = (node, case)
        known = self.said.get(key)
        if known is None:
            known = self.said[key] = self.piece(node, case)
        return known

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

    def host(self, rule: Rule, mark: str) -> str:
        """The mark that stands in for one this language has dropped."""
        if rule not in self.hosts:
            verbs = {choice.name for choice in rule.choices if choice.category == "verb"}
            self.hosts[rule] = hosts(rule.templates[self.code], verbs)
        slot, _, inner = mark.partition(".")
        return slot if inner and inner != "pronoun" else self.hosts[rule].get(mark, "")


def rename(mark: str, head: str, name: str) -> str:
    """Marks inside a phrase, seen from outside: its head speaks for the whole phrase."""
    return name + mark[len(head) :] if mark == head or mark.startswith(head + ".") else f"{name}.{mark}"


def labelled(tokens: Sequence[Token], name: str, extra: Marks) -> Piece:
    """Mark the tokens of a word with its slot, or with the parts of it they speak for."""
    marks = tuple(
        tuple((f"{name}.{part}" if part else name, token.sure) for part in token.parts) + extra for token in tokens
    )
    return Piece(tuple(token.text for token in tokens), marks, ())


def bind(bonds: Sequence[Bond], carriers: Mapping[str, list[tuple[int, bool]]]) -> list[tuple[str, int, int]]:
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


def hosts(template: Sequence[Element], verbs: set[str]) -> dict[str, str]:
    """For each slot of a template, the nearest word that agrees with it, verbs first; else whom it agrees with."""
    found: dict[str, str] = {}
    for place, element in enumerate(template):
        if not element.slot:
            continue
        name = element.slot + (".pronoun" if element.form in PRONOUNS else "")
        agreeing = [
            (other.slot not in verbs, abs(there - place), other.slot)
            for there, other in enumerate(template)
            if element.slot in other.agree
        ]
        candidates = [slot for _, _, slot in sorted(agreeing)] + list(element.agree)
        if candidates:
            found.setdefault(name, candidates[0])
    return found


def align(
    source: Text, target: Text, rule: Rule, speakers: tuple[Realiser, Realiser]
) -> Mapping[tuple[int, int], bool]:
    """All links between two texts of one derivation, each with whether it is sure."""
    links: dict[tuple[int, int], bool] = {}
    here, there = source.carriers, target.carriers
    for mark, words in here.items():
        others = there.get(mark)
        if others is None:
            meet(links, words, substitute(mark, there, rule, speakers[1]), flip=False)
        else:
            for i, sure in words:
                for j, agreed in others:
                    links[i, j] = (sure and agreed) or links.get((i, j), False)
    for mark, words in there.items():
        if mark not in here:
            meet(links, words, substitute(mark, here, rule, speakers[0]), flip=True)
    return links


def substitute(
    mark: str, carriers: Mapping[str, list[tuple[int, bool]]], rule: Rule, speaker: Realiser
) -> list[tuple[int, bool]]:
    """The words that carry what was dropped, as far as one can follow."""
    for _ in range(3):
        mark = speaker.host(rule, mark)
        if not mark or mark in carriers:
            break
    return carriers.get(mark, [])


def meet(
    links: dict[tuple[int, int], bool], words: list[tuple[int, bool]], others: list[tuple[int, bool]], flip: bool
) -> None:
    """Add links that are only possible."""
    for i, _ in words:
        for j, _ in others:
            links.setdefault((j, i) if flip else (i, j), False)
