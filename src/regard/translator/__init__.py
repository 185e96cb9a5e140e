"""Sentences in, sentences out: translations with scores and word alignments, and the probability of given ones."""

from regard.translator.alignment import Look
from regard.translator.options import Options, Request
from regard.translator.terms import Terms
from regard.translator.translation import Translation
from regard.translator.translator import Translator, load

__all__ = ["Look", "Options", "Request", "Terms", "Translation", "Translator", "load"]
