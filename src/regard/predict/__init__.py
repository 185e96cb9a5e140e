"""Predictors: trained models with their tokenizers, which translate, generate, classify, tag and score text."""

from regard.options import Terminology, TranslationOptions
from regard.predict.alignment import AlignmentHead
from regard.predict.captioner import Caption, Captioner
from regard.predict.chat_attention import AttendedTurn, ReplyAttention, reply_attention
from regard.predict.chatbot import Chatbot, Reply
from regard.predict.classifier import AttendedSpan, ClassifiedText, TextClassifier
from regard.predict.mask_filler import FilledText, MaskCandidate, MaskFiller, PseudoPerplexity
from regard.predict.segments import TranslationRequest
from regard.predict.surprisal import WordSurprisal, word_surprisals
from regard.predict.tagger import TaggedSentence, WordTagger
from regard.predict.text_generator import GeneratedText, TextGenerator, TextPerplexity
from regard.predict.translation import Translation
from regard.predict.translator import Translator

__all__ = [
    "AlignmentHead",
    "AttendedSpan",
    "AttendedTurn",
    "Caption",
    "Captioner",
    "Chatbot",
    "ClassifiedText",
    "FilledText",
    "GeneratedText",
    "MaskCandidate",
    "MaskFiller",
    "PseudoPerplexity",
    "Reply",
    "ReplyAttention",
    "TaggedSentence",
    "Terminology",
    "TextClassifier",
    "TextGenerator",
    "TextPerplexity",
    "Translation",
    "TranslationOptions",
    "TranslationRequest",
    "Translator",
    "WordSurprisal",
    "WordTagger",
    "reply_attention",
    "word_surprisals",
]
