"""What a sentence says, before any language says it: rules chosen by weight, slots filled by class.

In: a `Grammar` and a source of random numbers. Out: a `Tree`, the derivation that every language then realises. Only
`Random.random` is used, the one method whose sequence Python promises never to change.
"""

from bisect import bisect
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from math import lcm
from typing import ClassVar, NamedTuple, TypeAlias

from regard.data.phrasebook.grammar import Choice, Grammar, Lexeme, Rule
from regard.data.phrasebook.language import Features, Word


class Terms:
    """What is asked of a word: for each term, some of its classes, or none of them. Equal ones are one object."""

    __slots__ = ("all",)
    made: ClassVar[dict[tuple[tuple[bool, frozenset[str]], ...], "Terms"]] = {}

    def __init__(self, terms: tuple[tuple[bool, frozenset[str]], ...]) -> None:
        """Use `of`, which keeps them unique and so quick to look up by."""
        self.all = terms

    @classmethod
    def of(cls, *terms: tuple[bool, frozenset[str]]) -> "Terms":
        """The one object for these terms."""
        return cls.made.setdefault(terms, cls(terms))

    def fit(self, classes: frozenset[str]) -> bool:
        """Whether a word of these classes is what was asked for."""
        return all(wanted == bool(classes & asked) for wanted, asked in self.all)


ANY = Terms.of()


class Leaf:
    """A word in a chosen variant."""

    __slots__ = ("head", "key", "pairs", "spoken", "words")

    def __init__(self, lexeme: Lexeme, variant: str) -> None:
        """Prepare the word for every language."""
        self.head = lexeme
        self.key = (lexeme.family,) if lexeme.content else ()
        self.words = {
            code: Word(lexeme.category, lexeme.key, entry, variant, lexeme.classes)
            for code, entry in lexeme.forms.items()
        }
        self.pairs: tuple[tuple[str, str, str], ...] = ()
        self.spoken: dict[str, Features] = {}


class Tree:
    """A rule with its slots filled. The first slot is the head: others agree with it."""

    __slots__ = ("children", "head", "key", "pairs", "rule", "spoken")

    def __init__(self, rule: Rule, children: "dict[str, Leaf | Tree]") -> None:
        """Gather what the children say."""
        self.rule = rule
        self.children = children
        self.head: Lexeme = next(iter(children.values())).head
        key: list[str] = []
        pairs = linked(rule, children)
        for child in children.values():
            key += child.key
            pairs += child.pairs
        self.key: tuple[str, ...] = tuple(key)
        self.pairs: tuple[tuple[str, str, str], ...] = tuple(pairs)
        self.spoken: dict[str, Features] = {}


Node: TypeAlias = Leaf | Tree


def linked(rule: Rule, children: Mapping[str, Node]) -> list[tuple[str, str, str]]:
    """The pairs of content words that a rule's grammatical links join, as (kind, word, word)."""
    found = []
    for kind, start, end in rule.bonds:
        one, other = children[start].head, children[end].head
        if start != end and one.content and other.content:
            found.append((kind, one.family, other.family))
    return found


class Slot:
    """One slot of a rule under given terms, with everything that may fill it once the slots it refers to are filled."""

    __slots__ = ("choice", "fixed", "known", "name", "refers")

    def __init__(self, choice: Choice, fixed: "Filling | None") -> None:
        """What fills it is fixed, or known for those heads that have occurred."""
        self.choice = choice
        self.name = choice.name
        self.refers = choice.refers
        self.fixed = fixed
        self.known: dict[tuple[Lexeme, ...], Filling] = {}


class Filling(NamedTuple):
    """The words that may fill a slot, as often as they are likely; or else the terms for a phrase."""

    leaves: Sequence[Leaf]
    terms: Terms


class Plan(NamedTuple):
    """The rules of a category that can meet given terms: their weights added up, and their slots."""

    bounds: list[float]
    rules: list[Rule]
    slots: list[list[Slot]]


class Chooser:
    """Draws derivations. Small phrases are made once and kept, so that what was realised once stays known."""

    def __init__(self, grammar: Grammar) -> None:
        """Start with nothing drawn."""
        self.grammar = grammar
        self.leaves: dict[tuple[Lexeme, str], Leaf] = {}
        self.numbers: dict[int, Leaf] = {}
        self.phrases: dict[tuple[object, ...], Tree] = {}
        self.known: dict[tuple[Choice, Terms], Sequence[Sequence[Leaf]]] = {}
        self.plans: dict[tuple[str, Terms], Plan] = {}
        self.tallied: dict[tuple[str, Terms], Counter[Lexeme]] = {}

    def sentence(self, random: Callable[[], float]) -> Tree:
        """Draw one sentence."""
        while True:
            tree = self.tree("sentence", ANY, random)
            if isinstance(tree, Tree):
                return tree

    def tree(self, category: str, passed: Terms, random: Callable[[], float]) -> Node | None:
        """Draw a phrase of a category whose head has the classes asked for; nothing where a slot cannot be filled."""
        plan = self.plans.get((category, passed)) or self.plan(category, passed)
        if not plan.rules:
            return None
        which = bisect(plan.bounds, random() * plan.bounds[-1])
        children: dict[str, Node] = {}
        child: Node | None = None
        for slot in plan.slots[which]:
            filling = slot.fixed
            if filling is None:
                heads = tuple([children[name].head for name in slot.refers])
                filling = slot.known.get(heads)
                if filling is None:
                    filling = slot.known[heads] = self.filling(slot.choice, children, passed)
            leaves = filling.leaves
            child = leaves[int(random() * len(leaves))] if leaves else self.phrase(slot.choice, filling.terms, random)
            if child is None:
                return None
            children[slot.name] = child
        rule = plan.rules[which]
        if category == "sentence":
            return Tree(rule, children)
        if rule.renames:
            return child
        identity = (rule, *children.values())
        known = self.phrases.get(identity)
        if known is None:
            known = self.phrases[identity] = Tree(rule, children)
        return known

    def phrase(self, choice: Choice, terms: Terms, random: Callable[[], float]) -> Node | None:
        """Draw what fills a slot that no list of words fills: a number, or a phrase, or nothing."""
        if choice.category == "number":
            return self.number(choice, random)
        return self.tree(choice.category, terms, random) if choice.category in self.grammar.rules else None

    def plan(self, category: str, passed: Terms) -> Plan:
        """Prepare the rules of a category whose head can have the classes asked for."""
        rules = [rule for rule in self.grammar.rules[category] if self.possible(rule, passed)]
        slots = [
            [Slot(choice, None if choice.refers else self.filling(choice, {}, passed)) for choice in rule.choices]
            for rule in rules
        ]
        plan = Plan(list(accumulate(float(rule.weight) for rule in rules)), rules, slots)
        self.plans[category, passed] = plan
        return plan

    def filling(self, choice: Choice, children: dict[str, Node], passed: Terms) -> Filling:
        """What may fill a slot, given what fills the slots it refers to."""
        terms = resolve(choice, children, passed)
        if choice.category not in self.grammar.lexemes:
            return Filling((), terms)
        candidates = self.candidates(choice, terms)
        # Every word is as likely as the next, however many variants it has.
        share = lcm(*(len(variants) for variants in candidates))
        return Filling([leaf for leaves in candidates for leaf in leaves for _ in range(share // len(leaves))], terms)

    def candidates(self, choice: Choice, terms: Terms) -> Sequence[Sequence[Leaf]]:
        """The words that fit, each with the variants it allows; a word of weight three is there three times."""
        key = (choice, terms)
        if key not in self.known:
            found: list[Sequence[Leaf]] = []
            for lexeme in self.grammar.lexemes[choice.category]:
                variants = allowed(lexeme, choice.variants)
                if variants and terms.fit(lexeme.classes):
                    found += [[self.leaf(lexeme, variant) for variant in variants]] * lexeme.weight
            self.known[key] = found
        return self.known[key]

    def leaf(self, lexeme: Lexeme, variant: str) -> Leaf:
        """The one leaf of a word in a variant."""
        known = self.leaves.get((lexeme, variant))
        if known is None:
            known = self.leaves[lexeme, variant] = Leaf(lexeme, variant)
        return known

    def number(self, choice: Choice, random: Callable[[], float]) -> Leaf:
        """A number in a range, small ones as likely as large ones: first how many digits, then which."""
        low, high = bounds_of(choice)
        digits = list(range(len(str(low)), len(str(high)) + 1))
        length = digits[int(random() * len(digits))]
        first, last = max(low, 10 ** (length - 1) if length > 1 else 0), min(high, 10**length - 1)
        value = first + int(random() * (last - first + 1))
        return self.number_leaf(value)

    def number_leaf(self, value: int) -> Leaf:
        """The one leaf of a number."""
        if value not in self.numbers:
            forms = {code: {"text": str(value)} for code in self.grammar.languages}
            nothing: frozenset[str] = frozenset()
            # Two is no content: the Arabic dual may look like the plural, so both must stay together.
            content = value != 2
            lexeme = Lexeme("number", str(value), nothing, nothing, nothing, forms, family=str(value), content=content)
            self.numbers[value] = Leaf(lexeme, "")
        return self.numbers[value]

    def possible(self, rule: Rule, passed: Terms) -> bool:
        """Whether anything can be the head."""
        head = rule.choices[0]
        if head.category == "number":
            return True
        terms = resolve(head, {}, passed)
        if head.category in self.grammar.rules:
            return any(self.possible(inner, terms) for inner in self.grammar.rules[head.category])
        return bool(self.candidates(head, terms))

    def count(self) -> int:
        """How many derivations the grammar has, exactly."""
        return sum(sum(self.tally(rule, 0, {}, ANY).values()) for rule in self.grammar.rules["sentence"])

    def tally(self, rule: Rule, place: int, children: dict[str, Node], passed: Terms) -> Counter[Lexeme]:
        """Derivations of a rule from a slot on, by the head of that slot."""
        if place == len(rule.choices):
            return Counter()
        choice = rule.choices[place]
        total: Counter[Lexeme] = Counter()
        later = {slot for after in rule.choices[place + 1 :] for slot in after.refers}
        heads = self.heads(choice, children, passed)
        rest = 0
        for lexeme, amount in heads.items():
            if choice.name in later or not rest:
                bound = {**children, choice.name: self.leaf(lexeme, "")}
                last = place + 1 == len(rule.choices)
                rest = 1 if last else sum(self.tally(rule, place + 1, bound, passed).values())
            total[lexeme] += amount * rest
        return total

    def heads(self, choice: Choice, children: dict[str, Node], passed: Terms) -> Counter[Lexeme]:
        """How many ways there are to fill a slot, by head."""
        if choice.category == "number":
            low, high = bounds_of(choice)
            return Counter({self.number_leaf(low).head: high - low + 1})
        terms = resolve(choice, children, passed)
        total: Counter[Lexeme] = Counter()
        if choice.category in self.grammar.rules:
            key = (choice.category, terms)
            if key not in self.tallied:
                for rule in self.grammar.rules[choice.category]:
                    if self.possible(rule, terms):
                        total.update(self.tally(rule, 0, {}, terms))
                self.tallied[key] = total
            return self.tallied[key]
        for variants in {id(leaves[0].head): leaves for leaves in self.candidates(choice, terms)}.values():
            total[variants[0].head] = len({id(leaf) for leaf in variants})
        return total


def bounds_of(choice: Choice) -> tuple[int, int]:
    """The range of a number slot, `number:2-9999`."""
    low, _, high = choice.terms[0][0].partition("-")
    return int(low), int(high)


def resolve(choice: Choice, children: dict[str, Node], passed: Terms) -> Terms:
    """What a slot asks for, once the slots it speaks of are filled."""
    terms: list[tuple[bool, frozenset[str]]] = []
    for term in choice.terms:
        if term == ("?",):
            terms += passed.all
            continue
        wanted = not term[0].startswith("!")
        classes: set[str] = set()
        for atom in term:
            classes |= classes_of(atom.lstrip("!"), children)
        terms.append((wanted, frozenset(classes)))
    return Terms.of(*terms)


def classes_of(atom: str, children: dict[str, Node]) -> frozenset[str]:
    """The classes one atom stands for: a class, another slot's classes, its subject's or object's, or `too-{verb}`."""
    name, _, part = atom.partition(".")
    if name in children:
        head = children[name].head
        speaker = head.classes & {"1", "2"}
        return {"subject": head.subject, "shuns": head.subject, "object": head.object, "speaker": speaker}.get(
            part, head.classes
        )
    if "{" in atom:
        opening, _, slot = atom.partition("{")
        return frozenset({opening + children[slot.rstrip("}")].head.key})
    return frozenset({atom})


def allowed(lexeme: Lexeme, variants: tuple[str, ...]) -> list[str]:
    """The variants a word may take: masses have no plural, and `I read` must not mean both past and present."""
    if lexeme.category == "noun" and lexeme.classes & {"mass", "single"}:
        return ["sg"] if "sg" in variants else [variant for variant in variants if not variant]
    if lexeme.category == "verb" and lexeme.forms["en"]["past"] in {lexeme.forms["en"]["text"], "-"}:
        hidden = "past" if lexeme.forms["en"]["past"] == "-" else "present"
        return [variant for variant in variants if variant != hidden]
    return list(variants)
