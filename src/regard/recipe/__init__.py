"""Recipes: all settings of a run, read from a TOML file and `key=value` overrides into a frozen `Recipe`."""

from regard.recipe.catalogue import Setting, catalogue, find_settings, json_schema
from regard.recipe.data import (
    ConllCorpus,
    ConlluCorpus,
    Corpus,
    Data,
    DocumentsCorpus,
    Filter,
    JsonlCorpus,
    PhrasebookCorpus,
    TextCorpus,
    TsvCorpus,
)
from regard.recipe.decode import Decode
from regard.recipe.load import dump, load, parse, render, shipped_recipe, shipped_recipes
from regard.recipe.model import Bahdanau, ConvS2S, Han, Luong, Model, Rnn, Sutskever, Transformer
from regard.recipe.settings import Recipe, Text, Train
from regard.recipe.starter import starter
from regard.recipe.tasks import MASK, TASK_FIELDS, Classification, FieldKind, LanguageModelling, Tagging

__all__ = [
    "MASK",
    "TASK_FIELDS",
    "Bahdanau",
    "Classification",
    "ConllCorpus",
    "ConlluCorpus",
    "ConvS2S",
    "Corpus",
    "Data",
    "Decode",
    "DocumentsCorpus",
    "FieldKind",
    "Filter",
    "Han",
    "JsonlCorpus",
    "LanguageModelling",
    "Luong",
    "Model",
    "PhrasebookCorpus",
    "Recipe",
    "Rnn",
    "Setting",
    "Sutskever",
    "Tagging",
    "Text",
    "TextCorpus",
    "Train",
    "Transformer",
    "TsvCorpus",
    "catalogue",
    "dump",
    "find_settings",
    "json_schema",
    "load",
    "parse",
    "render",
    "shipped_recipe",
    "shipped_recipes",
    "starter",
]
