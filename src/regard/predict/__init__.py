"""Predictors: trained models with their tokenizers, which translate lines, generate text and score given text."""

from regard.options import Terminology, TranslationOptions
from regard.predict.alignment import AlignmentHead
from regard.predict.mask_filler import FilledText, MaskCandidate, MaskFiller, PseudoPerplexity
from regard.predict.segments import TranslationRequest
from regard.predict.text_generator import GeneratedText, TextGenerator, TextPerplexity
from regard.predict.translation import Translation
from regard.predict.translator import Translator

__all__ = [
    "AlignmentHead",
    "FilledText",
    "GeneratedText",
    "MaskCandidate",
    "MaskFiller",
    "PseudoPerplexity",
    "Terminology",
    "TextGenerator",
    "TextPerplexity",
    "Translation",
    "TranslationOptions",
    "TranslationRequest",
    "Translator",
]
