"""The services of a server: each model with a queue and workers of its kind."""

from collections.abc import Callable, Sequence

from regard.predict import Chatbot, MaskFiller, TextClassifier, Translator, WordTagger
from regard.serve.chat_service import ChatService
from regard.serve.metrics import Metrics
from regard.serve.predictor_service import Prediction, PredictorService
from regard.serve.queue import JobQueue
from regard.serve.service import worker_count
from regard.serve.settings import ServerLimits
from regard.serve.translator_service import TranslatorService

Service = TranslatorService | ChatService | PredictorService
Predictor = Translator | Chatbot | TextClassifier | WordTagger | MaskFiller
"""A predictor that the server has a route for."""


def make_service(name: str, predictor: Predictor, limits: ServerLimits, metrics: Metrics) -> Service:
    """Return a predictor with a queue and workers of its kind.

    Raises:
        ValueError: No route serves what it predicts.
    """
    if isinstance(predictor, Translator | Chatbot):
        queue = JobQueue(limits.waiting, worker_count(predictor))
        if isinstance(predictor, Chatbot):
            return ChatService(name, predictor, queue, metrics)
        return TranslatorService(name, predictor, queue, metrics)
    route: str
    predict: Callable[..., Sequence[Prediction]]
    match predictor:
        case TextClassifier():
            route, predict, tokenizer = "classify", predictor.classify, predictor.text_field.tokenizer
        case WordTagger():
            route, predict, tokenizer = "tag", predictor, predictor.words.tokenizer
        case MaskFiller():
            route, predict, tokenizer = "fill", predictor, predictor.tokenizer
        case _:
            raise ValueError(
                f"{name} is a {type(predictor).__name__}, which the server has no route for; serve a run with task = "
                "'translation', 'chat', 'classification' or 'tagging', or a masked language model"
            )
    queue = JobQueue(limits.waiting, workers=1)
    return PredictorService(name, route, predict, tokenizer, predictor.model, predictor.precision, queue, metrics)
