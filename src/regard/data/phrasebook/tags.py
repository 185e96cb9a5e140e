"""The part of speech of each word of a sentence, which follows from its derivation.

A token has the tag of the slot that it fills or, if a template contains it, its own; `tags.txt` lists both. A word that
consists of several tokens (`cannot`, `l'animal`, `لأنه`) has the tag of the most important one, in the order of
`PRIORITY`. Punctuation marks are words of their own.
"""

from functools import cache
from importlib.resources import files
from typing import NamedTuple

from regard.data.generation import read_lines
from regard.data.phrasebook.derivation import Derivation, Leaf, Node
from regard.data.phrasebook.grammar import TemplateElement
from regard.data.phrasebook.language import Features, Form, Word
from regard.data.phrasebook.realisation import CASES, NOTHING, PRONOUNS, Realiser

TAGS = "tags.txt"
PRIORITY = (
    "NOUN", "PROPN", "VERB", "AUX", "ADJ", "NUM", "ADV", "ADP", "SCONJ", "CCONJ", "PRON", "PART", "DET", "PUNCT",
)  # fmt: skip


class TaggedPhrase(NamedTuple):
    """The words of a sentence and their parts of speech."""

    words: tuple[str, ...]
    tags: tuple[str, ...]


class PartsOfSpeech:
    """Tags sentences of one language, and caches the tags of phrases."""

    def __init__(self, realiser: Realiser) -> None:
        """Read the tags of the language."""
        self.realiser = realiser
        self.language = realiser.language
        self.table = _read_tags(realiser.code)
        self.phrases: dict[tuple[object, ...], tuple[str, ...]] = {}

    def sentence(self, derivation: Derivation) -> TaggedPhrase:
        """Realise a sentence with a tag for each word."""
        realised = self.realiser.sentence(derivation)
        by_word: list[list[str]] = [[] for _ in realised.words]
        for tag, position in zip(self._fill(derivation, ""), realised.positions, strict=True):
            by_word[position].append(tag)
        words: list[str] = []
        tags: list[str] = []
        for word, carried in zip(realised.words, by_word, strict=True):
            word_tags = [tag for tag in carried if tag != "PUNCT"]
            end = len(word) - (len(carried) - len(word_tags))  # a mark has one character
            if word_tags:
                words.append(word[:end])
                tags.append(min(word_tags, key=PRIORITY.index))
            words += word[end:]
            tags += ["PUNCT"] * (len(word) - end)
        return TaggedPhrase(tuple(words), tuple(tags))

    def _fill(self, derivation: Derivation, case: str) -> list[str]:
        """Return the tags of the tokens of a derivation, in the order in which `Realiser` fills its template."""
        tags: list[str] = []
        for element in derivation.rule.templates[self.language.code]:
            if element.text:
                tags.append(self._literal(element.text))
                continue
            node, features = derivation.children[element.slot], NOTHING
            for name in element.agree:
                features = features.merge(self.realiser.features(derivation.children[name]))
            key = (node, element.sign, case, features)
            if key not in self.phrases:
                self.phrases[key] = tuple(self._slot(element, node, case, features))
            tags += self.phrases[key]
        return tags

    def _slot(self, element: TemplateElement, node: Node, case: str, agree: Features) -> list[str]:
        """Return the tags of the tokens that fill a slot."""
        form = element.form
        if form in PRONOUNS:
            return [self.table["pronoun"]] * len(self.language.pronoun(self.realiser.features(node), form))
        if isinstance(node, Derivation):
            return self._fill(node, form or case)
        assert isinstance(node, Leaf)
        word = node.words[self.language.code]
        forms = self.language.inflect(word, form, form if form in CASES else case, agree)
        return [self._word(word, form, token) for token in forms]

    def _word(self, word: Word, form: str, token: Form) -> str:
        """Return the tag of one token of a word; the most specific line of the table decides."""
        category = word.category
        candidates = [f"{category}={token.text}", f"{category}.{form}"]
        if category == "verb":
            if token.text in (word.entry.get("particle"), word.entry.get("prefix")):
                candidates.append("verb/particle")
            elif not token.sure:
                candidates.append("verb/auxiliary")
        # Classes in the order of the table, the last first: *want* is `modal` and `will`.
        candidates += [line for line in reversed(self.table) if line.partition("+")[2] in word.classes]
        return next(
            self.table[line] for line in [*candidates, category] if line in self.table and line.startswith(category)
        )

    def _literal(self, text: str) -> str:
        """Return the tag of a word of a template."""
        tag = self.table.get(f"={text}")
        if tag is None:
            raise ValueError(f"{TAGS}: no tag for the {self.language.code} word {text!r}: add a line ={text}")
        return tag


@cache
def _read_tags(code: str) -> dict[str, str]:
    """Return the tags of a language, by what has them."""
    table: dict[str, str] = {}
    for where, line in read_lines(files("regard.data.phrasebook"), TAGS):
        what, *codes, tag = line.split()
        if tag not in PRIORITY or not codes:
            raise ValueError(f"{where}: a line is what has a tag, languages and the tag; found {line.strip()!r}")
        if "*" in codes or code in codes:
            table.pop(what, None)  # so that a later line is also later in the order of the table
            table[what] = tag
    return table
