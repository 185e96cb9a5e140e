"""Predictors: trained models with their tokenizers, which translate, generate, reply, classify, tag and score text."""

from regard.options import Terminology, TranslationOptions
from regard.predict.alignment import AlignmentHead
from regard.predict.captioner import Caption, Captioner
from regard.predict.chat_attention import AttendedTurn, ReplyAttention, reply_attention
from regard.predict.chatbot import Chatbot
from regard.predict.classifier import AttendedSpan, ClassifiedText, TextClassifier
from regard.predict.conversation import Conversation, Exchange
from regard.predict.forecast_attention import PastAttention
from regard.predict.forecaster import Forecast, Forecaster
from regard.predict.image_classifier import ClassifiedImage, ImageClassifier, PatchAttention
from regard.predict.knowledge_base import KnowledgeBase, QuestionReply
from regard.predict.mask_filler import FilledText, MaskCandidate, MaskFiller, PseudoPerplexity
from regard.predict.reply import Reply
from regard.predict.reply_ranker import DualEncoderRetriever, ReplyRanker
from regard.predict.retriever import BM25Retriever, FusedRetriever, RetrievedReply, Retriever, rank_candidates
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
    "BM25Retriever",
    "Caption",
    "Captioner",
    "Chatbot",
    "ClassifiedImage",
    "ClassifiedText",
    "Conversation",
    "DualEncoderRetriever",
    "Exchange",
    "FilledText",
    "Forecast",
    "Forecaster",
    "FusedRetriever",
    "GeneratedText",
    "ImageClassifier",
    "KnowledgeBase",
    "MaskCandidate",
    "MaskFiller",
    "PastAttention",
    "PatchAttention",
    "PseudoPerplexity",
    "QuestionReply",
    "Reply",
    "ReplyAttention",
    "ReplyRanker",
    "RetrievedReply",
    "Retriever",
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
    "rank_candidates",
    "reply_attention",
    "word_surprisals",
]
