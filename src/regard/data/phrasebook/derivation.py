"""Sampling of derivations: rules are chosen by weight, and slots are filled by words of suitable classes.

A `Derivation` says what a sentence means; every language then realises it. Only `Random.random` is used, because it is
the one method whose sequence of numbers Python guarantees not to change.
"""

from bisect import bisect
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from math import lcm
from typing import ClassVar, NamedTuple, TypeAlias

from regard.data.phrasebook.grammar import Grammar, GrammarRule, Lexeme, SlotChoice
from regard.data.phrasebook.language import Features, Word


class ClassConstraint:
    """The classes that a word must have or must not have. Equal constraints are one object.

    A constraint is a conjunction of terms: the word must have one of the classes of a term or, if the term is negated,
    none of them.
    """

    __slots__ = ("terms",)
    instances: ClassVar[dict[tuple[tuple[bool, frozenset[str]], ...], "ClassConstraint"]] = {}

    def __init__(self, terms: tuple[tuple[bool, frozenset[str]], ...]) -> None:
        """Store the terms; call `of` instead, which returns equal constraints as one object."""
        self.terms = terms

    @classmethod
    def of(cls, *terms: tuple[bool, frozenset[str]]) -> "ClassConstraint":
        """Return the only constraint with these terms."""
        return cls.instances.setdefault(terms, cls(terms))

    def allows(self, classes: frozenset[str]) -> bool:
        """Whether a word with these classes satisfies the constraint."""
        return all(wanted == bool(classes & term) for wanted, term in self.terms)


ANY = ClassConstraint.of()


class Leaf:
    """A lexeme in a chosen variant."""

    __slots__ = ("features", "head", "key", "pairs", "words")

    def __init__(self, lexeme: Lexeme, variant: str) -> None:
        """Prepare the word for every language."""
        self.head = lexeme
        self.key = (lexeme.family,) if lexeme.content else ()
        self.words = {
            code: Word(lexeme.category, lexeme.key, entry, variant, lexeme.classes)
            for code, entry in lexeme.forms.items()
        }
        self.pairs: tuple[tuple[str, str, str], ...] = ()
        self.features: dict[str, Features] = {}


class Derivation:
    """A rule with its slots filled. The first slot is the head, with which other words agree.

    Attributes:
        key: The families of the content words, which decide the split.
        pairs: The pairs of content words in a grammatical relation, as (kind, family, family).
        features: A cache of the features in each language.
    """

    __slots__ = ("children", "features", "head", "key", "pairs", "rule")

    def __init__(self, rule: GrammarRule, children: "dict[str, Leaf | Derivation]") -> None:
        """Collect key and pairs from the children."""
        self.rule = rule
        self.children = children
        self.head: Lexeme = next(iter(children.values())).head
        key: list[str] = []
        pairs = related_words(rule, children)
        for child in children.values():
            key += child.key
            pairs += child.pairs
        self.key: tuple[str, ...] = tuple(key)
        self.pairs: tuple[tuple[str, str, str], ...] = tuple(pairs)
        self.features: dict[str, Features] = {}


Node: TypeAlias = Leaf | Derivation


def related_words(rule: GrammarRule, children: Mapping[str, Node]) -> list[tuple[str, str, str]]:
    """Return the pairs of content words that the relations of a rule join, as (kind, family, family)."""
    pairs = []
    for kind, start, end in rule.relations:
        first, second = children[start].head, children[end].head
        if start != end and first.content and second.content:
            pairs.append((kind, first.family, second.family))
    return pairs


class PlannedSlot:
    """A slot of a rule under a constraint, with the fillers that are known so far.

    The fillers depend on the slots that this one refers to. `fixed` are those of a slot that refers to none; `cached`
    are those for each combination of heads that has occurred.
    """

    __slots__ = ("cached", "choice", "fixed", "name", "refers")

    def __init__(self, choice: SlotChoice, fixed: "SlotFillers | None") -> None:
        """Store the choice, and start with an empty cache."""
        self.choice = choice
        self.name = choice.name
        self.refers = choice.refers
        self.fixed = fixed
        self.cached: dict[tuple[Lexeme, ...], SlotFillers] = {}


class SlotFillers(NamedTuple):
    """The words that may fill a slot, repeated in proportion to their probability; or the constraint of a phrase."""

    leaves: Sequence[Leaf]
    constraint: ClassConstraint


class CategoryPlan(NamedTuple):
    """The rules of a category that can satisfy a constraint: cumulative weights, rules, and slots."""

    bounds: list[float]
    rules: list[GrammarRule]
    slots: list[list[PlannedSlot]]


class DerivationSampler:
    """Draws derivations. Equal phrases are one object, so that their realisations can be cached."""

    def __init__(self, grammar: Grammar) -> None:
        """Start with empty caches."""
        self.grammar = grammar
        self.leaves: dict[tuple[Lexeme, str], Leaf] = {}
        self.numbers: dict[int, Leaf] = {}
        self.phrases: dict[tuple[object, ...], Derivation] = {}
        self.words: dict[tuple[SlotChoice, ClassConstraint], Sequence[Sequence[Leaf]]] = {}
        self.plans: dict[tuple[str, ClassConstraint], CategoryPlan] = {}

    def sentence(self, random: Callable[[], float]) -> Derivation:
        """Draw a sentence."""
        while True:
            derivation = self._derivation("sentence", ANY, random)
            if isinstance(derivation, Derivation):
                return derivation

    def _derivation(self, category: str, constraint: ClassConstraint, random: Callable[[], float]) -> Node | None:
        """Draw a phrase of a category whose head satisfies a constraint; None if a slot cannot be filled."""
        plan = self.plans.get((category, constraint)) or self._plan(category, constraint)
        if not plan.rules:
            return None
        which = bisect(plan.bounds, random() * plan.bounds[-1])
        children: dict[str, Node] = {}
        child: Node | None = None
        for slot in plan.slots[which]:
            fillers = slot.fixed
            if fillers is None:
                heads = tuple([children[name].head for name in slot.refers])
                fillers = slot.cached.get(heads)
                if fillers is None:
                    fillers = slot.cached[heads] = self._fillers(slot.choice, children, constraint)
            leaves = fillers.leaves
            if leaves:
                child = leaves[int(random() * len(leaves))]
            else:
                child = self._phrase(slot.choice, fillers.constraint, random)
            if child is None:
                return None
            children[slot.name] = child
        rule = plan.rules[which]
        if category == "sentence":
            return Derivation(rule, children)
        if rule.is_renaming:
            return child
        identity = (rule, *children.values())
        phrase = self.phrases.get(identity)
        if phrase is None:
            phrase = self.phrases[identity] = Derivation(rule, children)
        return phrase

    def _phrase(self, choice: SlotChoice, constraint: ClassConstraint, random: Callable[[], float]) -> Node | None:
        """Draw what fills a slot that takes no word of the lexicon: a number, or a phrase."""
        if choice.category == "number":
            return self._number(choice, random)
        if choice.category in self.grammar.rules:
            return self._derivation(choice.category, constraint, random)
        return None

    def _plan(self, category: str, constraint: ClassConstraint) -> CategoryPlan:
        """Prepare the rules of a category whose head can satisfy a constraint."""
        rules = [rule for rule in self.grammar.rules[category] if self._possible(rule, constraint)]
        slots = [
            [
                PlannedSlot(choice, None if choice.refers else self._fillers(choice, {}, constraint))
                for choice in rule.choices
            ]
            for rule in rules
        ]
        plan = CategoryPlan(list(accumulate(float(rule.weight) for rule in rules)), rules, slots)
        self.plans[category, constraint] = plan
        return plan

    def _fillers(self, choice: SlotChoice, children: dict[str, Node], outer: ClassConstraint) -> SlotFillers:
        """Return what may fill a slot, given what fills the slots it refers to."""
        constraint = resolve(choice, children, outer)
        if choice.category not in self.grammar.lexemes:
            return SlotFillers((), constraint)
        candidates = self.candidates(choice, constraint)
        # Every word has the same probability, regardless of how many variants it has.
        share = lcm(*(len(variants) for variants in candidates))
        leaves = [leaf for variants in candidates for leaf in variants for _ in range(share // len(variants))]
        return SlotFillers(leaves, constraint)

    def candidates(self, choice: SlotChoice, constraint: ClassConstraint) -> Sequence[Sequence[Leaf]]:
        """Return the words that may fill a slot, each with its variants; a word of weight 3 is listed three times."""
        key = (choice, constraint)
        if key not in self.words:
            candidates: list[Sequence[Leaf]] = []
            for lexeme in self.grammar.lexemes[choice.category]:
                variants = allowed_variants(lexeme, choice.variants)
                if variants and constraint.allows(lexeme.classes):
                    candidates += [[self._leaf(lexeme, variant) for variant in variants]] * lexeme.weight
            self.words[key] = candidates
        return self.words[key]

    def _leaf(self, lexeme: Lexeme, variant: str) -> Leaf:
        """Return the only leaf of a lexeme in a variant."""
        leaf = self.leaves.get((lexeme, variant))
        if leaf is None:
            leaf = self.leaves[lexeme, variant] = Leaf(lexeme, variant)
        return leaf

    def _number(self, choice: SlotChoice, random: Callable[[], float]) -> Leaf:
        """Draw a number in a range, first the number of digits and then the digits, so that small ones are likely."""
        low, high = number_range(choice)
        digits = list(range(len(str(low)), len(str(high)) + 1))
        length = digits[int(random() * len(digits))]
        first, last = max(low, 10 ** (length - 1) if length > 1 else 0), min(high, 10**length - 1)
        value = first + int(random() * (last - first + 1))
        return self.number_leaf(value)

    def number_leaf(self, value: int) -> Leaf:
        """Return the only leaf of a number."""
        if value not in self.numbers:
            forms = {code: {"text": str(value)} for code in self.grammar.languages}
            nothing: frozenset[str] = frozenset()
            # Two is not a content word: the Arabic dual may look like the plural, so both must be in the same split.
            content = value != 2
            lexeme = Lexeme("number", str(value), nothing, nothing, nothing, forms, family=str(value), content=content)
            self.numbers[value] = Leaf(lexeme, "")
        return self.numbers[value]

    def _possible(self, rule: GrammarRule, constraint: ClassConstraint) -> bool:
        """Whether any word can be the head of the rule."""
        head = rule.choices[0]
        if head.category == "number":
            return True
        constraint = resolve(head, {}, constraint)
        if head.category in self.grammar.rules:
            return any(self._possible(inner, constraint) for inner in self.grammar.rules[head.category])
        return bool(self.candidates(head, constraint))


def number_range(choice: SlotChoice) -> tuple[int, int]:
    """Return the range of a number slot, which is written `number:2-9999`."""
    low, _, high = choice.terms[0][0].partition("-")
    return int(low), int(high)


def resolve(choice: SlotChoice, children: dict[str, Node], outer: ClassConstraint) -> ClassConstraint:
    """Return the constraint of a slot, once the slots that it refers to are filled.

    Args:
        choice: The slot.
        children: What fills the earlier slots.
        outer: The constraint of the whole phrase, which `?` in a slot stands for.
    """
    terms: list[tuple[bool, frozenset[str]]] = []
    for term in choice.terms:
        if term == ("?",):
            terms += outer.terms
            continue
        wanted = not term[0].startswith("!")
        classes: set[str] = set()
        for atom in term:
            classes |= classes_of(atom.lstrip("!"), children)
        terms.append((wanted, frozenset(classes)))
    return ClassConstraint.of(*terms)


def classes_of(atom: str, children: dict[str, Node]) -> frozenset[str]:
    """Return the classes of an atom: a class, another slot's classes, its subject's or object's, or `too-{verb}`."""
    name, _, part = atom.partition(".")
    if name in children:
        head = children[name].head
        person = head.classes & {"1", "2"}
        return {"subject": head.subject, "shuns": head.subject, "object": head.object, "speaker": person}.get(
            part, head.classes
        )
    if "{" in atom:
        prefix, _, slot = atom.partition("{")
        return frozenset({prefix + children[slot.rstrip("}")].head.key})
    return frozenset({atom})


def allowed_variants(lexeme: Lexeme, variants: tuple[str, ...]) -> list[str]:
    """Return the variants a word may have: a mass noun has no plural, and `I read` must not be past and present."""
    if lexeme.category == "noun" and lexeme.classes & {"mass", "single"}:
        return ["sg"] if "sg" in variants else [variant for variant in variants if not variant]
    if lexeme.category == "verb" and lexeme.forms["en"]["past"] in {lexeme.forms["en"]["text"], "-"}:
        ambiguous = "past" if lexeme.forms["en"]["past"] == "-" else "present"
        return [variant for variant in variants if variant != ambiguous]
    return list(variants)
