"""The options of decoding, each declared once: name, type, default, bounds and help text.

Everything that takes an option derives it from the classes here:

- Python keywords, as in `translator("a line", beam=4)`: the fields of `TranslationOptions` and `GenerationOptions`;
- command-line flags: `regard.cli.flags` turns an `Option` into a flag;
- the `[decode]` section of a recipe: the options with `recipe=True`, as fields of `regard.recipe.Decode`;
- fields of an HTTP request: the options with `http=True`, as `regard.recipe.decode.pydantic_field` makes them.

    for option in TranslationOptions.declared():
        print(option.name, option.type, option.default, option.minimum, option.maximum, option.help)

To add an option, add one field with `option(default, help, ...)` to the class it belongs to. This package imports
neither torch nor pydantic, so that `regard --help` stays instant.
"""

from regard.options.captions import CaptionOptions
from regard.options.decoding import (
    BeamOptions,
    ChatOptions,
    CoverageOptions,
    GenerationOptions,
    SamplingOptions,
    TranslationOptions,
)
from regard.options.option import Option, OptionError, OptionSet, Spelling, option
from regard.options.terminology import Terminology

__all__ = [
    "BeamOptions",
    "CaptionOptions",
    "ChatOptions",
    "CoverageOptions",
    "GenerationOptions",
    "Option",
    "OptionError",
    "OptionSet",
    "SamplingOptions",
    "Spelling",
    "Terminology",
    "TranslationOptions",
    "option",
]
