"""The declaration of an option: a field of a frozen dataclass with bounds, a help text, and where it is offered."""

import math
import re
from collections.abc import Callable
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from difflib import get_close_matches
from functools import cache, cached_property
from numbers import Integral, Real
from types import NoneType
from typing import Any, Literal, Self, TypeVar, get_args, get_origin

T = TypeVar("T")
Subset = TypeVar("Subset", bound="OptionSet")
_KEY = "option"


Spelling = Callable[[str, str], str]
"""Returns how the reader of a message writes an option: takes its name, and a value or an empty string."""


class OptionError(ValueError):
    """An error about options, which names them as its reader writes them: as keywords, flags, settings or fields.

    In the message, `{beam}` is the name of an option, `{beam:4}` the option with a value, and `{0}` the first value.

    >>> error = OptionError("{nbest} is {0}; use {beam:4}", 4)
    >>> str(error), error.spelled(lambda name, value: f"--{name} {value}".rstrip())
    ('nbest is 4; use beam=4', '--nbest is 4; use --beam 4')
    """

    def __init__(self, message: str, *values: object) -> None:
        """Take the message and the values in it."""
        self.message, self.values = message, values
        super().__init__(self.spelled(_as_keyword))

    @property
    def option(self) -> str | None:
        """The first option that the message names."""
        match = _NAME.search(self.message)
        return match[1] if match else None

    def spelled(self, spelling: Spelling) -> str:
        """Return the message with the names of options as `spelling` writes them."""
        names = {match[1]: _Name(match[1], spelling) for match in _NAME.finditer(self.message)}
        return self.message.format(*self.values, **names)


_NAME = re.compile(r"{([a-z]\w*)[}:]")


@dataclass(frozen=True)
class _Name:
    """The name of an option in a message."""

    name: str
    spelling: Spelling

    def __format__(self, value: str) -> str:
        return self.spelling(self.name, value)


def _as_keyword(name: str, value: str) -> str:
    return f"{name}={value}" if value else name


@dataclass(frozen=True)
class Option:
    """The declaration of one option."""

    help: str
    """A sentence without a full stop, for help pages, editors and the HTTP schema."""
    paper: str = ""
    """Where the method is described, such as `Wu et al. 2016, eq. 14`."""
    minimum: float | None = None
    """Smallest allowed number."""
    above: float | None = None
    """Lower bound that is not allowed itself."""
    maximum: float | None = None
    """Largest allowed number."""
    panel: str = ""
    """Heading that groups the option in help pages."""
    flag: str | None = None
    """Command-line flag, such as `--top-k`; None if the command line has no flag for it."""
    recipe: bool = False
    """Whether a recipe may set it, in its `[decode]` section."""
    http: bool = False
    """Whether an HTTP request may set it."""
    name: str = ""
    type: Any = None
    default: Any = None

    @property
    def description(self) -> str:
        """The help text as a sentence, with the paper."""
        return f"{self.help} ({self.paper})." if self.paper else f"{self.help}."

    @cached_property
    def optional(self) -> bool:
        """Whether the value may be None."""
        return NoneType in get_args(self.type)

    @cached_property
    def kind(self) -> Any:
        """The type of a value that is not None."""
        (kind,) = [part for part in get_args(self.type) if part is not NoneType] if self.optional else [self.type]
        return kind

    @cached_property
    def choices(self) -> tuple[Any, ...]:
        """The allowed values, if the type lists them."""
        return get_args(self.kind) if get_origin(self.kind) is Literal else ()

    @property
    def allowed(self) -> str:
        """The allowed values in words, such as `an integer of at least 1`."""
        if self.choices:
            return " or ".join(self.choices)
        words = {int: "an integer", float: "a number", bool: "true or false", str: "a string"}.get(self.kind, "")
        bounds = (("of at least", self.minimum), ("above", self.above), ("of at most", self.maximum))
        limits = " and ".join(f"{name} {bound:g}" for name, bound in bounds if bound is not None)
        return f"{words} {limits}".strip()

    def check(self, value: object) -> None:
        """Raise a `ValueError` if the value has the wrong type or is out of bounds."""
        if value is None and self.optional:
            return
        match self.kind:
            case _ if self.choices:
                valid = value in self.choices
            case kind if kind is bool:
                valid = isinstance(value, bool)
            case kind if kind is int:
                valid = isinstance(value, Integral) and not isinstance(value, bool)
            case kind if kind is float:
                valid = isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
            case kind if kind is str:
                valid = isinstance(value, str)
            case _:
                return
        if not valid or (isinstance(value, Real) and not self._within(float(value))):
            raise OptionError(f"{{{self.name}}} must be {{0}}, but is {{1!r}}", self.allowed, value)

    def _within(self, number: float) -> bool:
        return (
            (self.minimum is None or number >= self.minimum)
            and (self.above is None or number > self.above)
            and (self.maximum is None or number <= self.maximum)
        )


def option(
    default: T,
    help_text: str,
    *,
    paper: str = "",
    minimum: float | None = None,
    above: float | None = None,
    maximum: float | None = None,
    panel: str = "",
    flag: str | bool = True,
    recipe: bool = False,
    http: bool = True,
) -> T:
    """Declare an option as a dataclass field; with `flag=False` it has no command-line flag."""
    name = flag if isinstance(flag, str) else "" if flag else None
    declared = Option(help_text, paper, minimum, above, maximum, panel, name, recipe, http)
    # The type checker must see the default's type: a dataclass field is declared as `beam: int = option(5, ...)`.
    return field(default=default, metadata={_KEY: declared})


def with_default(cls: type["OptionSet"], name: str, default: T, help: str = "") -> T:  # noqa: A002
    """Declare an option of a base class again, with another default, and with another help text if one is given."""
    (inherited,) = [parent.metadata[_KEY] for parent in fields(cls) if parent.name == name]
    declared = replace(inherited, help=help, recipe=False) if help else inherited
    return field(default=default, metadata={_KEY: declared})


@dataclass(frozen=True)
class OptionSet:
    """Base class of options: checks every value against its declaration."""

    def __post_init__(self) -> None:
        """Raise a `ValueError` for a value of the wrong type or out of bounds."""
        for declared in self.declared():
            declared.check(getattr(self, declared.name))

    @classmethod
    def declared(cls) -> tuple[Option, ...]:
        """Return the declarations of the options, in order."""
        return _declared(cls)  # type: ignore[arg-type]  # mypy takes the hash of instances for that of the class

    def override(self, **changes: Any) -> Self:
        """Return a copy with some options changed.

        Raises:
            ValueError: If there is no option of that name, or a value is not allowed.
        """
        if not changes:
            return self
        known = [declared.name for declared in fields(self)]
        for name in changes:
            if name not in known:
                similar = get_close_matches(name, known, n=1)
                hint = f"did you mean {similar[0]}?" if similar else f"the options are {', '.join(known)}"
                raise OptionError("there is no option '{0}'; {1}", name, hint)
        return replace(self, **changes)

    def subset(self, cls: type[Subset]) -> Subset:
        """Return the options that a base class declares, as an object of that class."""
        return cls(**{declared.name: getattr(self, declared.name) for declared in fields(cls)})


@cache
def _declared(cls: type[OptionSet]) -> tuple[Option, ...]:
    return tuple(_complete(declared) for declared in fields(cls) if _KEY in declared.metadata)


def _complete(declared: "Field[Any]") -> Option:
    """Add name, type, default and flag to a field's declaration."""
    assert declared.default is not MISSING or declared.default_factory is not MISSING, "an option has a default"
    default = declared.default_factory() if declared.default_factory is not MISSING else declared.default
    declaration: Option = declared.metadata[_KEY]
    flag = f"--{declared.name.replace('_', '-')}" if declaration.flag == "" else declaration.flag
    return replace(declaration, name=declared.name, type=declared.type, default=default, flag=flag)
