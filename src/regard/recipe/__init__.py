"""What a run may be told: a TOML file plus `key=value` overrides in, one frozen, strict `Recipe` out."""

from regard.recipe.catalogue import Setting, catalogue, find_setting, json_schema
from regard.recipe.load import dump, load, parse
from regard.recipe.render import render
from regard.recipe.settings import (
    Corpus,
    Data,
    Decode,
    JsonlCorpus,
    Model,
    PhrasebookCorpus,
    Recipe,
    Text,
    TextCorpus,
    Train,
    Transformer,
    TsvCorpus,
)

__all__ = [
    "Corpus",
    "Data",
    "Decode",
    "JsonlCorpus",
    "Model",
    "PhrasebookCorpus",
    "Recipe",
    "Setting",
    "Text",
    "TextCorpus",
    "Train",
    "Transformer",
    "TsvCorpus",
    "catalogue",
    "dump",
    "find_setting",
    "json_schema",
    "load",
    "parse",
    "render",
]
