"""The language pairs of the served models: LibreTranslate clients choose a model by languages, not by its name."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from regard.recipe import Recipe
from regard.recipe.languages import corpus_languages
from regard.serve.errors import FieldError

AUTO = "auto"
"""Source language of a request that names none."""
_PAIR = re.compile(r"([a-z]{2,3})-([a-z]{2,3})")
_NAMES = dict(
    re.findall(
        r"(\w+):(\w+)",
        """
af:Afrikaans am:Amharic ar:Arabic az:Azerbaijani be:Belarusian bg:Bulgarian bn:Bengali bs:Bosnian ca:Catalan
cs:Czech cy:Welsh da:Danish de:German el:Greek en:English eo:Esperanto es:Spanish et:Estonian eu:Basque fa:Persian
fi:Finnish fr:French ga:Irish gl:Galician gu:Gujarati ha:Hausa he:Hebrew hi:Hindi hr:Croatian hu:Hungarian
hy:Armenian id:Indonesian ig:Igbo is:Icelandic it:Italian ja:Japanese ka:Georgian kk:Kazakh km:Khmer kn:Kannada
ko:Korean ky:Kyrgyz la:Latin lb:Luxembourgish lo:Lao lt:Lithuanian lv:Latvian mk:Macedonian ml:Malayalam
mn:Mongolian mr:Marathi ms:Malay mt:Maltese my:Burmese nb:Bokmål ne:Nepali nl:Dutch nn:Nynorsk no:Norwegian
pa:Punjabi pl:Polish ps:Pashto pt:Portuguese ro:Romanian ru:Russian sd:Sindhi si:Sinhala sk:Slovak sl:Slovenian
so:Somali sq:Albanian sr:Serbian sv:Swedish sw:Swahili ta:Tamil te:Telugu tg:Tajik th:Thai tk:Turkmen tl:Tagalog
tr:Turkish tt:Tatar uk:Ukrainian ur:Urdu uz:Uzbek vi:Vietnamese xh:Xhosa yi:Yiddish yo:Yoruba zh:Chinese zu:Zulu
        """,
    )
)
"""English names of languages (ISO 639-1)."""


@dataclass(frozen=True)
class LanguagePair:
    """Language codes of source and target, and the symbol that a model expects before a line of this pair."""

    source: str
    target: str
    tag: str = ""


ModelLanguages = Mapping[str, Sequence[LanguagePair]]
"""The language pairs of models by name."""


def recipe_languages(recipe: Recipe) -> tuple[LanguagePair, ...]:
    """Return the language pairs that a model was trained on, as far as its recipe tells them."""
    pairs: dict[tuple[str, str], LanguagePair] = {}
    for corpus in recipe.data.train:
        source, target = corpus_languages(corpus)
        if source and target:
            pairs.setdefault((source, target), LanguagePair(source, target, corpus.tag))
    return tuple(pairs.values())


def parse_languages(options: Iterable[str], models: Sequence[str]) -> dict[str, tuple[LanguagePair, ...]]:
    """Return the language pairs of models from options such as `en-de` or `NAME=en-de`.

    Raises:
        ValueError: An option does not have this form, or names no model.
    """
    languages: dict[str, tuple[LanguagePair, ...]] = {}
    for option in options:
        name, _, code = option.rpartition("=")
        pair = _PAIR.fullmatch(code)
        if pair is None:
            raise ValueError(f"--languages '{option}' is no pair of language codes; write it as en-de, or NAME=en-de")
        if not name and len(models) > 1:
            raise ValueError(f"--languages '{option}' names no model; write one of: {_choices(models, code)}")
        if name and name not in models:
            raise ValueError(f"--languages '{option}' names no model of this server; write {_choices(models, code)}")
        model = name or models[0]
        languages[model] = (*languages.get(model, ()), LanguagePair(pair[1], pair[2]))
    return languages


def find_model(languages: ModelLanguages, source: str, target: str) -> tuple[str, LanguagePair]:
    """Return the first model that translates between two languages, by name, and its pair.

    With the source `auto` the pair is the only one that has this target. Nothing is detected.

    Raises:
        FieldError: No model has this pair, or several source languages are possible.
    """
    source, target = source.lower(), target.lower()
    pairs = [(name, pair) for name in languages for pair in languages[name] if pair.target == target]
    if not pairs:
        raise FieldError(f"no model of this server translates to this language; it has: {_known(languages)}", "target")
    if source == AUTO:
        sources = sorted({pair.source for _, pair in pairs})
        if len(sources) > 1:
            raise FieldError(f"this server does not detect languages; name the source: {', '.join(sources)}", "source")
        return pairs[0]
    matching = [(name, pair) for name, pair in pairs if pair.source == source]
    if not matching:
        raise FieldError(
            f"no model of this server translates between these languages; it has: {_known(languages)}", "source"
        )
    return matching[0]


def list_languages(languages: ModelLanguages) -> list[dict[str, object]]:
    """Return all languages in the form of LibreTranslate: code, name, and the languages to translate to."""
    pairs = [pair for model in languages.values() for pair in model]
    codes = dict.fromkeys([*(pair.source for pair in pairs), *(pair.target for pair in pairs)])
    return [
        {
            "code": code,
            "name": _NAMES.get(code, code),
            "targets": list(dict.fromkeys(pair.target for pair in pairs if pair.source == code)),
        }
        for code in codes
    ]


def _known(languages: ModelLanguages) -> str:
    pairs = dict.fromkeys(f"{pair.source}-{pair.target}" for model in languages.values() for pair in model)
    return ", ".join(pairs) or "none; start it with --languages"


def _choices(models: Sequence[str], code: str) -> str:
    return ", ".join(f"{model}={code}" for model in models)
