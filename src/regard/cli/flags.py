"""Flags that several commands have, and flags derived from declared options, so that each is declared once."""

import inspect
from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

import typer
from typer.models import ArgumentInfo

from regard.options import GenerationOptions, Option, OptionSet, TranslationOptions
from regard.options.decoding import MACHINE, OUTPUT

Command = TypeVar("Command", bound=Callable[..., None])

Run = Annotated[str, typer.Argument(metavar="RUN", help="Folder of a trained run, or other weights in it.")]
File = Annotated[
    str,
    typer.Argument(metavar="FILE", help="Lines of text, plain or .gz; default: standard input.", show_default=False),
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Do not show progress.", rich_help_panel=OUTPUT)]
Device = Annotated[
    str, typer.Option(help="cpu, cuda or cuda:1; auto is a GPU if there is one.", rich_help_panel=MACHINE)
]
Dtype = Annotated[
    Literal["auto", "float32", "bfloat16"], typer.Option(help="Floating-point format.", rich_help_panel=MACHINE)
]
Quantize = Annotated[
    Literal["int8"] | None, typer.Option(help="Quantise the weights, on a CPU.", rich_help_panel=MACHINE)
]
Workers = Annotated[
    int | None, typer.Option(min=1, help="Worker threads on a CPU; default: one per core.", rich_help_panel=MACHINE)
]


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


def precision_of(dtype: str, quantize: str | None) -> str:
    """Return the precision that --dtype and --quantize ask for."""
    if quantize and dtype == "bfloat16":
        raise ValueError(f"--quantize {quantize} computes everything else in float32; leave out --dtype {dtype}")
    return quantize or dtype


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
