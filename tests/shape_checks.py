"""Check the shapes in the signatures of functions at every call, but calls of equal shapes only once.

`jaxtyping` and `beartype` take about 30 microseconds for a call, longer than many a function that they check. Whether a
call has the annotated shapes depends only on what `outline` returns for its arguments and its result. So a call with
the outline of an earlier one needs no check, and the guarantee is the same. Signatures without shapes are left to mypy.
"""

import functools
import threading
import types
from collections.abc import Callable, Iterable
from dataclasses import is_dataclass
from typing import Any, get_args

import jaxtyping
import numpy as np
from beartype import beartype
from torch import Tensor

REMEMBERED = 2000
"""How many outlines of one function are kept: tests of random shapes have no end of them."""
DESCRIPTIONS: dict[type, Callable[[Any], Any] | None] = {}
"""The function that describes a value of each type; None for types whose values are all alike."""
check_each_call = functools.partial(jaxtyping.jaxtyped, typechecker=beartype)
returned = threading.local()


def outline(value: Any) -> Any:
    """Return a hashable description, which is the same for values that no annotation distinguishes."""
    kind = type(value)
    try:
        describe = DESCRIPTIONS[kind]
    except KeyError:
        describe = DESCRIPTIONS[kind] = description(kind)
    return describe(value) if describe else kind


def outlines(positional: Iterable[Any], named: dict[str, Any]) -> tuple[Any, ...]:
    """Return the outline of the arguments of a call."""
    if not named:
        return tuple(map(outline, positional))
    return *map(outline, positional), *((name, outline(value)) for name, value in named.items())


def description(kind: type) -> Callable[[Any], Any] | None:
    """Return the function that describes values of a type."""
    if issubclass(kind, Tensor | np.ndarray):
        return lambda array: (kind, array.dtype, array.shape)
    if kind in (str, bytes, bool) or issubclass(kind, type):  # `Literal` distinguishes values, `type` classes
        return lambda value: (kind, value)
    if kind in (tuple, list):
        return lambda items: (kind, *map(outline, items))
    if kind in (set, frozenset):
        return lambda items: (kind, frozenset(map(outline, items)))
    if kind is dict:
        return lambda items: (kind, *((outline(key), outline(value)) for key, value in items.items()))
    return None


def has_shape(annotation: Any) -> bool:
    """Return whether an annotation names the shape of an array."""
    if isinstance(annotation, str):
        return "Tensor" in annotation
    if isinstance(annotation, type) and issubclass(annotation, jaxtyping.AbstractArray):
        return True
    parts = annotation if isinstance(annotation, list) else get_args(annotation)  # a list has arguments of a callable
    return any(map(has_shape, parts))


def check_new_calls(function: Any = None, *, typechecker: object = None) -> Any:
    """Decorate a function or dataclass like `jaxtyping.jaxtyped`, but check no outline twice."""
    if function is None:
        return check_new_calls
    if isinstance(function, type):
        if is_dataclass(function) and not hasattr(function.__init__, "__wrapped__"):
            function.__init__ = check_new_calls(function.__init__)  # type: ignore[method-assign]
        return function
    if not any(map(has_shape, function.__annotations__.values())):
        return function
    passed: dict[Any, set[Any]] = {}
    # Made when they are first needed: most functions of a module are not called in one process.
    checked = functools.cache(lambda: check_each_call(function))
    check_result = functools.cache(lambda: check_each_call(last_result_of(function)))

    @functools.wraps(function)
    def call(*positional: Any, **named: Any) -> Any:
        __tracebackhide__ = True
        called = outlines(positional, named)
        if (results := passed.get(called)) is None:
            result = checked()(*positional, **named)
            if len(passed) >= REMEMBERED:
                passed.clear()
            passed[called] = {outline(result)}
            return result
        result = function(*positional, **named)
        if (produced := outline(result)) not in results:
            returned.result = result
            try:
                check_result()(*positional, **named)
            finally:
                del returned.result
            results.add(produced)
        return result

    return call


def last_result_of(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function with the signature and the names of another one that returns its last result."""
    results = returned

    def last(*positional: Any, **named: Any) -> Any:
        return results.result

    return functools.wraps(function)(types.FunctionType(last.__code__, function.__globals__, closure=last.__closure__))


def install_shape_checks(modules: list[str]) -> None:
    """Check the functions and dataclasses of modules that are imported after this."""
    jaxtyping.jaxtyped = check_new_calls  # type: ignore[assignment]  # the import hook decorates with what has this name
    jaxtyping.install_import_hook(modules, "beartype.beartype")
