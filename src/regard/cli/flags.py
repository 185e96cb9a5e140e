"""Command-line flags derived from declared options, so that no command repeats their names, bounds or help."""

import inspect
from collections.abc import Callable
from typing import Annotated, Any, TypeVar, get_args, get_origin

import typer
from typer.models import ArgumentInfo

from regard.options import GenerationOptions, Option, OptionSet, TranslationOptions

Command = TypeVar("Command", bound=Callable[..., None])


def with_options(options: type[OptionSet], *names: str) -> Callable[[Command], Command]:
    """Replace the `**options` of a command by a flag for each declared option, or for each of these names.

    In the command, `**options` holds the value of each flag, or None for a flag that was not given; `given` selects
    those that were.

        @with_options(TranslationOptions)
        def translate(run: Run, **options: Any) -> None:
            translator.options.override(**given(options))
    """
    flags = [option for option in options.declared() if option.flag and (not names or option.name in names)]

    def derive(command: Command) -> Command:
        signature = inspect.signature(command)
        own = [parameter for parameter in signature.parameters.values() if parameter.kind is not parameter.VAR_KEYWORD]
        arguments = [parameter for parameter in own if _is_argument(parameter)]
        # Help pages show panels in the order of the parameters, and the panels of the options come first.
        flagged = [parameter.replace(kind=parameter.KEYWORD_ONLY) for parameter in own if not _is_argument(parameter)]
        parameters = [*arguments, *map(_parameter, flags), *flagged]
        command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        return command

    return derive


def given(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options that were given on the command line."""
    return {name: value for name, value in options.items() if value is not None and value is not False}


def spell_flag(name: str, value: str) -> str:
    """Return how an option is given on the command line, for `OptionError.spelled`."""
    options = (*TranslationOptions.declared(), *GenerationOptions.declared())
    option = next((option for option in options if option.name == name), None)
    if option is not None and option.flag is None and option.recipe:
        return f"decode.{name} = {value}" if value else f"decode.{name}"
    # Options of several values have no declared flag; the commands name theirs like the options.
    flag = (option.flag if option is not None else None) or f"--{name.replace('_', '-')}"
    return f"{flag} {value}" if value and (option is None or option.kind is not bool) else flag


def _is_argument(parameter: inspect.Parameter) -> bool:
    return any(isinstance(part, ArgumentInfo) for part in get_args(parameter.annotation))


def _parameter(option: Option) -> inspect.Parameter:
    """Return the parameter that makes typer show and read the flag of an option."""
    kind = option.kind
    flag = typer.Option(
        option.flag,
        help=f"{option.help}{_default(option)}.",
        metavar={int: "N", float: "X"}.get(kind),
        rich_help_panel=option.panel or None,
    )
    shown = bool if kind is bool else (list[str] if get_origin(kind) is tuple else kind) | None
    default = False if kind is bool else None
    keyword = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(option.name, keyword, default=default, annotation=Annotated[shown, flag])


def _default(option: Option) -> str:
    """Return the default for the help page; typer's own default is None, which means not given."""
    if option.recipe:
        return "; default: from the recipe"
    return f"; default: {option.default}" if option.default not in (None, (), False, 0) else ""
