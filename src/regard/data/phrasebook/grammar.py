"""The parser of the lexicon and the rules, with errors that name the file and the line.

It reads the `.txt` files next to this module, whose first lines explain the notation, or a folder with files of the
same format, and returns a `Grammar`. Choosing and inflecting words is done elsewhere.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import cached_property
from importlib.resources import files
from importlib.resources.abc import Traversable
from sys import intern
from typing import NamedTuple

from regard.data.generation import read_lines
from regard.data.phrasebook.arabic import Arabic
from regard.data.phrasebook.english import English
from regard.data.phrasebook.french import French
from regard.data.phrasebook.german import German
from regard.data.phrasebook.italian import Italian
from regard.data.phrasebook.language import Entry, Language

LEXICON = ("nouns.txt", "verbs.txt", "adjectives.txt", "words.txt")
RULES = "rules.txt"
KINDS = ("subject-verb", "verb-object", "adjective-noun", "pronoun-antecedent")
PARTS = ("", "subject", "object", "shuns", "speaker")
FUNCTION_WORDS = frozenset({"determiner", "pronoun", "preposition"})

SLOT = re.compile(r"\{(\w+)(?:\.([\w-]+))?(?:@([\w,]+))?\}(?:~([\w?+-]+))?")
CHOICE = re.compile(r"(\w+)=([\w-]+)(?::([^\s\[]+))?(?:\[([\w,]+)\])?")


@dataclass(frozen=True, slots=True, eq=False)
class Lexeme:
    """A word of the lexicon with its forms in every language.

    Attributes:
        classes: The classes of the word, which slots ask for.
        subject: The classes a subject of this verb may have.
        object: The classes an object of this verb may have.
        family: Shared by words that some language translates in the same way; they are always in the same split.
        content: Whether it is a content word, unlike articles, pronouns, prepositions and *to be*.
    """

    category: str
    key: str
    classes: frozenset[str]
    subject: frozenset[str]
    object: frozenset[str]
    forms: Mapping[str, Entry]
    weight: int = 1
    family: str = ""
    content: bool = True


class TemplateElement(NamedTuple):
    """An element of a template: a literal, or a slot with its form, what it agrees with, and extra marks."""

    text: str
    slot: str
    form: str
    agree: tuple[str, ...]
    marks: tuple[tuple[str, bool], ...]
    sign: str  # equal for elements that inflect a word in the same way


@dataclass(frozen=True, slots=True, eq=False)
class SlotChoice:
    """What fills a slot: a category, a conjunction of terms (each a disjunction of classes), and the variants."""

    name: str
    category: str
    terms: tuple[tuple[str, ...], ...]
    variants: tuple[str, ...]
    refers: tuple[str, ...]  # the earlier slots that the terms name


class SlotRelation(NamedTuple):
    """A grammatical relation between two slots; `pronoun-antecedent` starts at the pronoun of the slot."""

    kind: str
    start: str
    end: str


@dataclass(eq=False)
class GrammarRule:
    """A synchronous rule: what fills its slots, and a template for each language."""

    category: str
    weight: int
    name: str
    where: str
    choices: list[SlotChoice] = field(default_factory=list)
    relations: list[SlotRelation] = field(default_factory=list)
    templates: dict[str, list[TemplateElement]] = field(default_factory=dict)

    @cached_property
    def is_renaming(self) -> bool:
        """Whether every template of the rule is just its only slot."""
        return len(self.choices) == 1 and all(
            [element.sign for element in template] == [f"{{{self.choices[0].name}}}"]
            for template in self.templates.values()
        )


@dataclass(frozen=True, slots=True)
class Grammar:
    """Lexemes and rules by category, and the languages that inflect the lexemes."""

    languages: Mapping[str, Language]
    lexemes: Mapping[str, list[Lexeme]]
    rules: Mapping[str, list[GrammarRule]]


def load(folder: Traversable | None = None) -> Grammar:
    """Read a grammar from a folder; by default, the grammar of the package."""
    folder = folder or files("regard.data.phrasebook")
    known: list[Language] = [English(), German(), French(), Italian(), Arabic()]
    languages = {language.code: language for language in known}
    lexemes: dict[str, list[Lexeme]] = {}
    for name in LEXICON:
        for where, category, line in sections(folder, name):
            lexemes.setdefault(category, []).append(read_lexeme(category, line, where, languages))
    lexemes = {category: with_families(group) for category, group in lexemes.items()}
    rules: dict[str, list[GrammarRule]] = {}
    for rule in read_rules(folder, languages):
        rules.setdefault(rule.category, []).append(rule)
    for rule in (rule for group in rules.values() for rule in group):
        check(rule, languages, set(lexemes) | set(rules) | {"number"})
        check_classes(rule, {tag for group in lexemes.values() for lexeme in group for tag in lexeme.classes})
    return Grammar(languages, lexemes, rules)


def sections(folder: Traversable, name: str) -> Iterator[tuple[str, str, str]]:
    """Yield the lines of a lexicon file, each with its place and the category of its section."""
    category = ""
    for where, line in read_lines(folder, name):
        if line.startswith("["):
            category = line.strip().strip("[]")
        elif not category:
            raise ValueError(f"{where}: this line is before any section: put [noun], [verb], … above it")
        else:
            yield where, category, line


def read_lexeme(category: str, line: str, where: str, languages: Mapping[str, Language]) -> Lexeme:
    """Parse a line of the lexicon."""
    # A bar inside a German verb or a class list has no space around it, so split only at bars with spaces.
    fields = [part.strip() for part in re.split(r"\s\|\s|\s\|$", line)]
    codes = ["en", *(code for code in languages if code != "en")]
    if len(fields) != len(codes) + 1 or not all(fields):
        raise ValueError(
            f"{where}: expected {len(codes) + 1} fields separated by ' | ' (English, classes, German, French, Italian, "
            f"Arabic), found {len([part for part in fields if part])}: complete the line {line.strip()!r}"
        )
    english, tags, *targets = fields
    forms: dict[str, Entry] = {}
    for code, text in zip(codes, [english, *targets], strict=True):
        try:
            forms[code] = languages[code].read(category, text)
        except (ValueError, IndexError) as error:
            raise ValueError(f"{where}: cannot read the {code} field {text!r}: {error}") from None
    named, _, government = tags.partition(":")
    who, _, what = government.partition(">")
    classes = frozenset(named.split())
    weight = next((int(tag[1:]) for tag in classes if re.fullmatch(r"x\d+", tag)), 1)
    if category == "noun" and forms["en"]["sg"] == forms["en"]["pl"] and not classes & {"mass", "single"}:
        raise ValueError(f"{where}: {english!r} has equal singular and plural: add the class `single` or `mass`")
    key = re.sub(r"\s\+", " ", english).split(" ")[0] if category != "verb" else verb_key(english)
    subjects = any_of(who)
    classes |= {"=" + key, *(f"by-{subject}" for subject in subjects)}
    content = category not in FUNCTION_WORDS and "copula" not in classes
    return Lexeme(category, key, classes, subjects, any_of(what), forms, weight, content=content)


def with_families(lexemes: list[Lexeme]) -> list[Lexeme]:
    """Assign families: words that some language translates in the same way (*carry*, *wear*: tragen) share one."""
    family = {id(lexeme): lexeme.key for lexeme in lexemes}
    owners: dict[tuple[str, str], Lexeme] = {}
    for lexeme in lexemes:
        for code, entry in lexeme.forms.items():
            other = owners.setdefault((code, entry["text"]), lexeme)
            old, new = family[id(lexeme)], family[id(other)]
            family = {key: new if name == old else name for key, name in family.items()}
    return [replace(lexeme, family=family[id(lexeme)]) for lexeme in lexemes]


def verb_key(english: str) -> str:
    """Return the key of a verb: its base with its particle."""
    parts = english.split()
    return "-".join([parts[0], *(part[1:] for part in parts if part.startswith("+"))])


def any_of(text: str) -> frozenset[str]:
    """Parse a disjunction of classes, `person|animal`."""
    return frozenset(part.strip() for part in text.split("|") if part.strip())


def read_rules(folder: Traversable, languages: Mapping[str, Language]) -> Iterator[GrammarRule]:
    """Yield the rules of `rules.txt`."""
    rule: GrammarRule | None = None
    for where, line in read_lines(folder, RULES):
        head, _, rest = line.strip().partition(" ")
        rest = rest.strip()
        if head == "rule":
            if rule:
                yield rule
            parts = rest.split(maxsplit=2)
            if len(parts) < 2 or not parts[1].isdigit():
                raise ValueError(
                    f"{where}: a rule starts with category and weight: rule sentence 10 name; found {line.strip()!r}"
                )
            rule = GrammarRule(parts[0], int(parts[1]), parts[2] if len(parts) > 2 else parts[0], where)
        elif rule is None:
            raise ValueError(f"{where}: this line is before any rule: start one with rule sentence 10 name")
        elif head == "has":
            for text in rest.split():
                rule.choices.append(read_choice(text, [choice.name for choice in rule.choices], where))
        elif head == "bind":
            rule.relations = [read_relation(text, where) for text in rest.split(";")]
        elif head in languages:
            rule.templates[head] = [read_element(text, head, where) for text in rest.split()]
        else:
            known = ", ".join(["rule", "has", "bind", *languages])
            raise ValueError(f"{where}: the lines of a rule begin with {known}; found {head!r}")
    if rule:
        yield rule


def read_choice(text: str, earlier: list[str], where: str) -> SlotChoice:
    """Parse a slot, `verb=verb:acts&!stative[past,present]`."""
    match = CHOICE.fullmatch(text)
    if not match:
        raise ValueError(
            f"{where}: a slot is name=category:classes[variants], such as noun=noun:animal[sg,pl]; found {text!r}"
        )
    name, category, terms, variants = match.groups()
    parsed = tuple(tuple(term.split("|")) for term in terms.split("&")) if terms else ()
    named = {word for term in parsed for atom in term for word in re.findall(r"[a-z]+", atom)}
    refers = tuple(slot for slot in earlier if slot in named)
    return SlotChoice(name, category, parsed, tuple(variants.split(",")) if variants else ("",), refers)


def read_relation(text: str, where: str) -> SlotRelation:
    """Parse a relation, `subject-verb subject verb`."""
    parts = text.split()
    if len(parts) != 3 or parts[0] not in KINDS:
        raise ValueError(f"{where}: a relation is one of {', '.join(KINDS)} and two slots; found {text.strip()!r}")
    return SlotRelation(*parts)


def read_marks(text: str | None) -> tuple[tuple[str, bool], ...]:
    """Parse the labels of the English words that a word expresses, `because+too?`; `?` marks a possible link."""
    labels = text.split("+") if text else []
    return tuple((label.rstrip("?"), not label.endswith("?")) for label in labels)


def read_element(text: str, code: str, where: str) -> TemplateElement:
    """Parse an element of a template: `{verb.past@subject}`, `nicht~not`, `not`."""
    if text.startswith("{"):
        match = SLOT.fullmatch(text)
        if not match:
            raise ValueError(f"{where}: a slot in a template is {{slot.form@agreement}}~label; found {text!r}")
        slot, form, agree, label = match.groups()
        return TemplateElement(
            "", slot, form or "", tuple(agree.split(",")) if agree else (), read_marks(label), intern(text)
        )
    literal, tilde, label = text.partition("~")
    marks = read_marks(label) if tilde else ((literal, True),) if code == "en" else ()
    return TemplateElement(literal.replace("_", " "), "", "", (), marks, "")


def check(rule: GrammarRule, languages: Mapping[str, Language], categories: set[str]) -> None:
    """Raise ValueError if a rule names an unknown slot or category, or lacks a language."""
    names = [choice.name for choice in rule.choices]
    for code in languages:
        if code not in rule.templates:
            raise ValueError(
                f"{rule.where}: rule {rule.name!r} has no line for {code}: add one that begins with {code}"
            )
        for element in rule.templates[code]:
            for slot in filter(None, (element.slot, *element.agree)):
                if slot not in names:
                    known = ", ".join(names)
                    raise ValueError(
                        f"{rule.where}: the {code} line of rule {rule.name!r} uses {{{slot}}}, but has only: {known}"
                    )
    for choice in rule.choices:
        if choice.category not in categories:
            known = ", ".join(sorted(categories))
            raise ValueError(
                f"{rule.where}: slot {choice.name!r} wants a {choice.category!r}, but there are only: {known}"
            )
    for relation in rule.relations:
        if not {relation.start, relation.end} <= set(names):
            raise ValueError(
                f"{rule.where}: the relation {relation.kind} names a slot that rule {rule.name!r} lacks: {relation}"
            )


def check_classes(rule: GrammarRule, classes: set[str]) -> None:
    """Raise ValueError if a slot asks for a class that no word has and that names no earlier slot."""
    for choice in rule.choices:
        if choice.category == "number":
            continue
        for atom in (atom.removeprefix("!") for term in choice.terms for atom in term):
            slot, _, part = (atom.partition("{")[2].rstrip("}") if "{" in atom else atom).partition(".")
            refers = slot in choice.refers and part in PARTS
            if atom != "?" and atom not in classes and not refers:
                near = ", ".join(get_close_matches(atom, classes)) or "none"
                raise ValueError(
                    f"{rule.where}: slot {choice.name!r} of rule {rule.name!r} asks for {atom!r}, which is neither the "
                    f"class of a word (similar: {near}) nor an earlier slot"
                )
