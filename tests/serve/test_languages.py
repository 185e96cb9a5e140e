"""The languages of models come from their recipes, or from the command line."""

from pathlib import Path

import pytest

from regard.recipe import TextCorpus, TsvCorpus, load
from regard.recipe.languages import corpus_languages
from regard.serve.errors import FieldError
from regard.serve.languages import LanguagePair, find_model, list_languages, parse_languages, recipe_languages

ROOT = Path(__file__).resolve().parents[2]
MODELS = {
    "one": [LanguagePair("en", "de"), LanguagePair("en", "fr", "<2fr>")],
    "two": [LanguagePair("de", "en"), LanguagePair("en", "de", "<2de>")],
    "three": [LanguagePair("fr", "en")],
}


def test_files_tell_their_languages_by_their_suffixes() -> None:
    assert corpus_languages(TextCorpus(files={"source": "a.en.gz", "target": "a.de.gz"})) == ("en", "de")
    assert corpus_languages(TextCorpus(files={"source": "a.en", "target": "a.txt"})) == ("en", None)
    assert corpus_languages(TsvCorpus(path="en-de.tsv")) == (None, None)


def test_the_languages_of_a_recipe_are_those_of_all_its_corpora() -> None:
    train = '[{to = "fr", tag = "<2fr>"}, {to = "de", tag = "<2de>"}, {to = "fr", tag = "<2fr>"}]'
    recipe = load(ROOT / "tests" / "memorised.toml", [f"data.train={train}", "text.symbols=['<2fr>', '<2de>']"])
    assert recipe_languages(recipe) == (LanguagePair("en", "fr", "<2fr>"), LanguagePair("en", "de", "<2de>"))


def test_a_model_is_found_by_its_languages() -> None:
    assert find_model(MODELS, "en", "de") == ("one", LanguagePair("en", "de"))
    assert find_model(MODELS, "EN", "fr") == ("one", LanguagePair("en", "fr", "<2fr>"))
    assert find_model(MODELS, "fr", "en") == ("three", LanguagePair("fr", "en"))
    assert find_model(MODELS, "auto", "de") == ("one", LanguagePair("en", "de"))


@pytest.mark.parametrize(
    ("source", "target", "field", "message"),
    [
        ("en", "ja", "target", "en-de, en-fr, de-en, fr-en"),
        ("ja", "de", "source", "it has: en-de"),
        ("auto", "en", "source", "name the source: de, fr"),
    ],
)
def test_languages_without_a_model_are_an_error_of_their_field(
    source: str, target: str, field: str, message: str
) -> None:
    with pytest.raises(FieldError, match=message) as error:
        find_model(MODELS, source, target)
    assert error.value.field == field


def test_languages_are_listed_with_their_targets() -> None:
    listed = {language["code"]: language for language in list_languages(MODELS)}
    assert listed["en"] == {"code": "en", "name": "English", "targets": ["de", "fr"]}
    assert listed["de"] == {"code": "de", "name": "German", "targets": ["en"]}
    assert list(listed) == ["en", "de", "fr"]


def test_options_name_the_languages_of_models() -> None:
    assert parse_languages(["en-de"], ["only"]) == {"only": (LanguagePair("en", "de"),)}
    given = parse_languages(["a=en-de", "b=en-fr", "a=de-en"], ["a", "b"])
    assert given == {"a": (LanguagePair("en", "de"), LanguagePair("de", "en")), "b": (LanguagePair("en", "fr"),)}


@pytest.mark.parametrize(
    ("option", "message"),
    [("english", "write it as en-de"), ("en-de", "a=en-de, b=en-de"), ("c=en-de", "names no model of this server")],
)
def test_an_option_that_names_no_languages_or_no_model_is_an_error(option: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_languages([option], ["a", "b"])
