"""From the two realisations of one derivation to the links between their words.

Tokens of the two languages with the same mark are aligned; the link is sure if both tokens are. A word that a language
drops (an Italian pronoun, an Arabic article) passes its mark to a host: the word that agrees with it, or the head of
its phrase.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from regard.data.phrasebook.grammar import GrammarRule, TemplateElement
from regard.data.phrasebook.realisation import (
    PRONOUNS,
    Carriers,
    RealisedSentence,
    assemble,
    carriers_of,
    relations_between,
)


@dataclass(frozen=True, slots=True)
class Link:
    """A link between a source word and a target word, by index; if it is not `sure`, it is possible."""

    source: int
    target: int
    sure: bool


@dataclass(frozen=True, slots=True)
class Relation:
    """A grammatical relation inside one sentence, such as `subject-verb`, between two word indices."""

    kind: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class AlignmentPattern:
    """The alignment and the relations of both sides, which all sentence pairs of the same shapes share."""

    alignment: tuple[Link, ...]
    relations: tuple[Relation, ...]
    target_relations: tuple[Relation, ...]


class Aligner:
    """Aligns English with one language. There are few patterns, so each is computed once."""

    def __init__(self, code: str) -> None:
        """Start with an empty cache."""
        self.codes = ("en", code)
        self.patterns: dict[tuple[object, ...], AlignmentPattern] = {}
        self.hosts: dict[tuple[GrammarRule, str], dict[str, str]] = {}

    def pattern(self, rule: GrammarRule, source: RealisedSentence, target: RealisedSentence) -> AlignmentPattern:
        """Return the pattern of two realisations of a rule."""
        key = (rule, source.shapes, target.shapes, source.positions, target.positions)
        pattern = self.patterns.get(key)
        if pattern is None:
            pattern = self.patterns[key] = self._compute(rule, source, target)
        return pattern

    def _compute(self, rule: GrammarRule, source: RealisedSentence, target: RealisedSentence) -> AlignmentPattern:
        carriers: list[Carriers] = []
        relations: list[tuple[Relation, ...]] = []
        for code, sentence in zip(self.codes, (source, target), strict=True):
            marks, inner = assemble(rule, code, sentence.shapes)
            carried = carriers_of(marks, sentence.positions)
            inside = [(kind, sentence.positions[start], sentence.positions[end]) for kind, start, end in inner]
            carriers.append(carried)
            relations.append(tuple(Relation(*r) for r in inside + relations_between(rule.relations, carried)))
        links = self._align(rule, carriers[0], carriers[1])
        alignment = tuple(Link(i, j, links[i, j]) for i, j in sorted(links))
        return AlignmentPattern(alignment, relations[0], relations[1])

    def _align(self, rule: GrammarRule, source: Carriers, target: Carriers) -> dict[tuple[int, int], bool]:
        """Return all links between the words of two realisations, each with whether it is sure."""
        links: dict[tuple[int, int], bool] = {}
        for mark, source_words in source.items():
            target_words = target.get(mark)
            if target_words is None:
                dropped = substitute(mark, target, self._hosts_of(rule, self.codes[1]))
                target_words = [(word, False) for word, _ in dropped]
            for i, source_sure in source_words:
                for j, target_sure in target_words:
                    links[i, j] = (source_sure and target_sure) or links.get((i, j), False)
        for mark, target_words in target.items():
            if mark not in source:
                for i, _ in substitute(mark, source, self._hosts_of(rule, self.codes[0])):
                    for j, _ in target_words:
                        links.setdefault((i, j), False)
        return links

    def _hosts_of(self, rule: GrammarRule, code: str) -> dict[str, str]:
        key = (rule, code)
        if key not in self.hosts:
            verbs = {choice.name for choice in rule.choices if choice.category == "verb"}
            self.hosts[key] = find_hosts(rule.templates[code], verbs)
        return self.hosts[key]


def find_hosts(template: Sequence[TemplateElement], verbs: set[str]) -> dict[str, str]:
    """Return the host of each slot: the nearest word that agrees with it, verbs first, else what it agrees with."""
    hosts: dict[str, str] = {}
    for at, element in enumerate(template):
        if not element.slot:
            continue
        name = element.slot + (".pronoun" if element.form in PRONOUNS else "")
        agreeing = [
            (other.slot not in verbs, abs(other_at - at), other.slot)
            for other_at, other in enumerate(template)
            if element.slot in other.agree
        ]
        candidates = [slot for _, _, slot in sorted(agreeing)] + list(element.agree)
        if candidates:
            hosts.setdefault(name, candidates[0])
    return hosts


def substitute(mark: str, carriers: Carriers, hosts: dict[str, str]) -> list[tuple[int, bool]]:
    """Return the words that carry a dropped mark, following hosts: from an article to its noun, and to the verb."""
    for _ in range(3):
        slot, _, inner = mark.partition(".")
        mark = slot if inner and inner != "pronoun" else hosts.get(mark, "")
        if not mark or mark in carriers:
            break
    return carriers.get(mark, [])
