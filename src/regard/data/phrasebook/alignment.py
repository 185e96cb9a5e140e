"""From two texts of one derivation to the links between their words.

Tokens of the two languages with the same mark align, surely when both are sure of it. A word that a language drops (an
Italian pronoun, an Arabic article) leaves its mark to a host: the word that agrees with it, or the head of its phrase.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from regard.data.phrasebook.grammar import Element, Rule
from regard.data.phrasebook.realisation import PRONOUNS, Carriers, Text, assemble, bind, carriers_of


@dataclass(frozen=True, slots=True)
class Link:
    """A link between a source word and a target word, by index; `sure`, or else only possible."""

    source: int
    target: int
    sure: bool


@dataclass(frozen=True, slots=True)
class Relation:
    """A grammatical link inside one sentence, such as `subject-verb`, from one word index to another."""

    kind: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Pattern:
    """What two texts have in common with all others of their shape: the alignment and the relations of both sides."""

    alignment: tuple[Link, ...]
    relations: tuple[Relation, ...]
    target_relations: tuple[Relation, ...]


class Aligner:
    """Aligns English with one language. Few patterns exist, so each is worked out once."""

    def __init__(self, code: str) -> None:
        """Start with no pattern known."""
        self.codes = ("en", code)
        self.patterns: dict[tuple[object, ...], Pattern] = {}
        self.hosts: dict[tuple[Rule, str], dict[str, str]] = {}

    def pattern(self, rule: Rule, source: Text, target: Text) -> Pattern:
        """The pattern of two texts that a rule made."""
        key = (rule, source.shapes, target.shapes, source.places, target.places)
        known = self.patterns.get(key)
        if known is None:
            known = self.patterns[key] = self.work_out(rule, source, target)
        return known

    def work_out(self, rule: Rule, source: Text, target: Text) -> Pattern:
        """Find all links."""
        carriers: list[Carriers] = []
        relations: list[tuple[Relation, ...]] = []
        for code, text in zip(self.codes, (source, target), strict=True):
            marks, bonds = assemble(rule, code, text.shapes)
            carried = carriers_of(marks, text.places)
            inner = [(kind, text.places[start], text.places[end]) for kind, start, end in bonds]
            carriers.append(carried)
            relations.append(tuple(Relation(*bond) for bond in inner + bind(rule.bonds, carried)))
        links = self.align(rule, carriers[0], carriers[1])
        return Pattern(tuple(Link(i, j, links[i, j]) for i, j in sorted(links)), relations[0], relations[1])

    def align(self, rule: Rule, here: Carriers, there: Carriers) -> dict[tuple[int, int], bool]:
        """All links between two texts of one derivation, each with whether it is sure."""
        links: dict[tuple[int, int], bool] = {}
        for mark, words in here.items():
            others = there.get(mark)
            if others is None:
                dropped = substitute(mark, there, self.hosts_of(rule, self.codes[1]))
                others = [(word, False) for word, _ in dropped]
            for i, sure in words:
                for j, agreed in others:
                    links[i, j] = (sure and agreed) or links.get((i, j), False)
        for mark, words in there.items():
            if mark not in here:
                for i, _ in substitute(mark, here, self.hosts_of(rule, self.codes[0])):
                    for j, _ in words:
                        links.setdefault((i, j), False)
        return links

    def hosts_of(self, rule: Rule, code: str) -> dict[str, str]:
        """The hosts in one template of a rule."""
        key = (rule, code)
        if key not in self.hosts:
            verbs = {choice.name for choice in rule.choices if choice.category == "verb"}
            self.hosts[key] = hosts(rule.templates[code], verbs)
        return self.hosts[key]


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


def substitute(mark: str, carriers: Carriers, hosts: dict[str, str]) -> list[tuple[int, bool]]:
    """The words that carry what was dropped, as far as one can follow: from an article to its noun, to the verb."""
    for _ in range(3):
        slot, _, inner = mark.partition(".")
        mark = slot if inner and inner != "pronoun" else hosts.get(mark, "")
        if not mark or mark in carriers:
            break
    return carriers.get(mark, [])
