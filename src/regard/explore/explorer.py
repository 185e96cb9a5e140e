"""Answer questions about models with frames."""

import logging
from collections.abc import Callable, Generator, Iterator, Mapping

import numpy as np

from regard.explore.adapters import Predictor
from regard.explore.beam import answer_beam
from regard.explore.chat import InspectedChatbot
from regard.explore.classification import InspectedClassifier
from regard.explore.frames import Message, write_frame
from regard.explore.info import ModelInfo
from regard.explore.maths import answer_maths
from regard.explore.model import InspectedModel
from regard.explore.passes import IsStale, StaleQuestionError
from regard.explore.positions import answer_positions
from regard.explore.questions import (
    AnyQuestion,
    BeamQuestion,
    ClassifyQuestion,
    EffectsQuestion,
    FigureQuestion,
    MathsQuestion,
    ModelsQuestion,
    PositionsQuestion,
    RawQuestion,
    ReadQuestion,
    ReplyEffectsQuestion,
    ReplyQuestion,
    RowQuestion,
    TokensQuestion,
    parse_question,
    question_id,
)
from regard.explore.read import answer_read, tokens_message
from regard.predict import Chatbot, TextClassifier

log = logging.getLogger(__name__)

ExploredPredictor = Predictor | TextClassifier | Chatbot
"""A predictor that the explorer can open."""
InspectedPredictor = InspectedModel | InspectedClassifier | InspectedChatbot
"""A predictor under inspection."""

MEDIA_TYPES = {"svg": "image/svg+xml", "png": "image/png", "pdf": "application/pdf"}
_FIGURE_OPTIONS = (
    *("target", "target_ids", "beam", "part", "layer", "heads", "aggregate", "words", "specials", "scale"),
    *("threshold", "count", "title", "turns"),
)


class Explorer:
    """Answers questions about some models.

    Give one question at a time: changes act on the model itself until the answer is complete. Close an answer that is
    no longer wanted, or end it through `is_stale`.

    Example:
        >>> explorer = Explorer({"de": regard.load("runs/phrasebook")})
        >>> for frame in explorer.answer({"kind": "read", "source": "I can go alone"}):
        ...     message, arrays = read_frame(frame)
    """

    def __init__(
        self, predictors: Mapping[str, ExploredPredictor], infos: Mapping[str, ModelInfo] | None = None
    ) -> None:
        """Explore predictors by name; the first one answers questions that name no model.

        Raises:
            ValueError: The explorer does not show the task of a predictor.
        """
        known = infos or {}
        self.models = {
            name: _inspected(name, predictor, known.get(name, ModelInfo())) for name, predictor in predictors.items()
        }

    def answer(self, raw: RawQuestion, is_stale: Callable[[], bool] = lambda: False) -> Generator[bytes]:
        """Yield the frames that answer a question, each as soon as it is known; an error is one frame, too."""
        number = question_id(raw)

        def frame(message: Message) -> bytes:
            return write_frame({"id": number, "last": False, **message[0]}, message[1])

        try:
            for message in self._messages(parse_question(raw), is_stale):
                yield frame(message)
        except StaleQuestionError:
            return
        except ValueError as error:
            yield frame(({"kind": "error", "message": str(error), "last": True}, {}))
        except Exception as error:
            log.exception("a question of the explorer failed")
            text = f"internal error ({type(error).__name__}); this is a bug in regard, and the log has the details"
            yield frame(({"kind": "error", "message": text, "last": True}, {}))

    def _messages(self, question: AnyQuestion, is_stale: IsStale) -> Iterator[Message]:
        if isinstance(question, ModelsQuestion):
            models = [model.describe() for model in self.models.values()]
            return iter([({"kind": "models", "models": models, "last": True}, {})])
        model = self.model(question.model)
        if isinstance(question, FigureQuestion):
            return _answer_figure(model, question)
        if isinstance(model, InspectedClassifier | InspectedChatbot):
            return model.answer(question, is_stale)
        match question:
            case ClassifyQuestion() | EffectsQuestion():
                raise ValueError(f"{model.name} is no classifier, so it does not answer '{question.kind}'; ask 'read'")
            case ReplyQuestion() | ReplyEffectsQuestion():
                raise ValueError(f"{model.name} is no chatbot, so it does not answer '{question.kind}'; ask 'read'")
            case TokensQuestion():
                # An empty text is allowed here: the page asks for tokens at every keystroke.
                text = model.adapter.tokenize(question.input_text(model.adapter.input_field))
                return iter([({**tokens_message(text), "last": True}, {})])
            case ReadQuestion():
                return answer_read(model, question, is_stale)
            case RowQuestion():
                return _answer_row(model, question, is_stale)
            case MathsQuestion():
                return answer_maths(model, question, is_stale)
            case BeamQuestion():
                return answer_beam(model, question, is_stale)
            case PositionsQuestion():
                return answer_positions(model, question)

    def model(self, name: str | None) -> InspectedPredictor:
        """Return the model of a name, or the first one."""
        if not self.models:
            raise ValueError("no model is loaded yet; wait until training has finished")
        if name is None:
            return next(iter(self.models.values()))
        if name not in self.models:
            raise ValueError(f"there is no model of that name; there are: {', '.join(self.models)}")
        return self.models[name]


def _inspected(name: str, predictor: ExploredPredictor, info: ModelInfo) -> InspectedPredictor:
    if isinstance(predictor, TextClassifier):
        return InspectedClassifier(name, predictor, info)
    if isinstance(predictor, Chatbot):
        return InspectedChatbot(name, predictor, info)
    return InspectedModel(name, predictor, info)


def _answer_row(model: InspectedModel, question: RowQuestion, is_stale: IsStale) -> Iterator[Message]:
    """Yield the exact attention weights of one query."""
    source, labels, changes = model.read_query(question)
    table = model.weights(source.ids, labels, changes, question.part, is_stale)[question.part, question.layer]
    yield {"kind": "row", "last": True}, {"weights": table[question.head, question.query]}


def _answer_figure(model: InspectedPredictor, question: FigureQuestion) -> Iterator[Message]:
    """Yield a figure as a file, and the Python code that draws it again."""
    # Loading matplotlib takes a while, and most sessions never ask for a figure.
    from regard.explore import figures
    from regard.plot import render

    options = {name: value for name in _FIGURE_OPTIONS if (value := getattr(question, name)) is not None}
    text: str | list[str] = ""
    if isinstance(model, InspectedChatbot):
        figures.check_kind(question.figure, ["dialogue"])
        text = question.history or []
        drawn = figures.dialogue_figure(model.predictor, text, **options)
    elif isinstance(model, InspectedClassifier):
        figures.check_kind(question.figure, ["document"])
        text = question.input_text(model.input_field)
        result = model.predictor(text, attention=True)
        drawn = figures.document_figure(result, title=question.title or "", scale=question.scale or "linear")
    else:
        text = "" if question.figure == "positions" else model.read_input(question).text
        drawn = figures.figure(model.predictor, text, question.figure, **options)
    message = {
        "kind": "figure",
        "name": f"{model.name}-{question.figure}.{question.form}",
        "type": MEDIA_TYPES[question.form],
        "python": figures.python_code(model.info.run or f"runs/{model.name}", text, question.figure, **options),
        "last": True,
    }
    yield message, {"file": np.frombuffer(render(drawn, question.form), np.uint8)}
