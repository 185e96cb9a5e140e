"""What a run may be told: a TOML file plus `key=value` overrides in, one frozen, strict `Recipe` out."""

from regard.recipe.ancestors import Bahdanau, ConvS2S, Luong, Sutskever
from regard.recipe.catalogue import Setting, catalogue, find_settings, json_schema
from regard.recipe.data import Corpus, Data, Filter, JsonlCorpus, PhrasebookCorpus, TextCorpus, TsvCorpus
from regard.recipe.decode import Decode
from regard.recipe.load import dump, load, parse
from regard.recipe.model import Model, Transformer
from regard.recipe.render import render
from regard.recipe.settings import Recipe
from regard.recipe.text import Text
from regard.recipe.train import Train

__all__ = [
    "Bahdanau",
    "ConvS2S",
    "Corpus",
    "Data",
    "Decode",
    "Filter",
    "JsonlCorpus",
    "Luong",
    "Model",
    "PhrasebookCorpus",
    "Recipe",
    "Setting",
    "Sutskever",
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
]
