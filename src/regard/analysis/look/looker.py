"""Questions in, frames out."""

import logging
from collections.abc import Callable, Generator, Iterator, Mapping

from regard.analysis.look import answers
from regard.analysis.look.about import About, facts
from regard.analysis.look.answers import LAST, NOTHING, Said
from regard.analysis.look.frames import write_frame
from regard.analysis.look.maths import maths
from regard.analysis.look.pictures import figure
from regard.analysis.look.positions import positions
from regard.analysis.look.questions import (
    AnyQuestion,
    Asked,
    ExactRow,
    Figure,
    Maths,
    Models,
    Positions,
    Read,
    Tokens,
    Tree,
    number_of,
    read_question,
)
from regard.analysis.look.reading import Stale, StaleError
from regard.analysis.look.subject import Subject
from regard.analysis.look.tree import beam
from regard.translator import Translator

log = logging.getLogger(__name__)


class Looker:
    """Answers what may be asked of some models.

    One answer at a time: changes act on the model itself until its answer is over, so an answer that is not wanted any
    more is closed, or ended through `stale`.
    """

    def __init__(self, translators: Mapping[str, Translator], about: Mapping[str, About] | None = None) -> None:
        """Look at these models, each under its name; the first is asked where none is named."""
        told = about or {}
        self.subjects = {name: Subject(name, each, told.get(name, About())) for name, each in translators.items()}

    def answer(self, question: Asked, stale: Callable[[], bool] = lambda: False) -> Generator[bytes]:
        """The frames that answer a question, each as soon as it is known; what cannot be answered is said in one."""
        number = number_of(question)
        try:
            asked = read_question(question)
            for said in self._said(asked, stale):
                yield _frame(said, number)
        except StaleError:
            return
        except ValueError as error:
            yield _frame(({"kind": "error", "message": str(error), **LAST}, NOTHING), number)
        except Exception as error:
            log.exception("a question could not be answered")
            sentence = f"this could not be answered: {type(error).__name__}; the fault is regard's, not yours"
            yield _frame(({"kind": "error", "message": sentence, **LAST}, NOTHING), number)

    def _said(self, asked: AnyQuestion, stale: Stale) -> Iterator[Said]:
        """What is said to a question."""
        if isinstance(asked, Models):
            told = [facts(name, each.translator, each.about) for name, each in self.subjects.items()]
            return iter([({"kind": "models", "models": told, **LAST}, NOTHING)])
        subject = self.subject(asked.model)
        match asked:
            case Tokens():
                return answers.tokens(subject, asked)
            case Read():
                return answers.read(subject, asked, stale)
            case ExactRow():
                return answers.row(subject, asked, stale)
            case Maths():
                return maths(subject, asked, stale)
            case Tree():
                return beam(subject, asked, stale)
            case Positions():
                return positions(subject, asked)
            case Figure():
                return figure(subject, asked)

    def subject(self, name: str | None) -> Subject:
        """The model of a name."""
        if not self.subjects:
            raise ValueError("there is no model here yet; wait until it is made")
        if name is None:
            return next(iter(self.subjects.values()))
        if name not in self.subjects:
            raise ValueError(f"there is no model of that name here; there are: {', '.join(self.subjects)}")
        return self.subjects[name]


def _frame(said: Said, number: int | str | None) -> bytes:
    message, arrays = said
    return write_frame({"id": number, "last": False, **message}, arrays)
