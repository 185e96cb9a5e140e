"""Each option is declared once, and every place that takes it derives from the declaration."""

import subprocess
import sys
from collections.abc import Callable
from typing import Any, get_type_hints

import pytest
from pydantic import ValidationError, create_model
from typer.main import get_command

from regard.cli import app
from regard.cli.flags import spell_flag
from regard.options import ChatOptions, GenerationOptions, OptionError, OptionSet, TranslationOptions
from regard.recipe import Decode
from regard.recipe.decode import pydantic_field

CLASSES = [TranslationOptions, GenerationOptions, ChatOptions]


@pytest.mark.parametrize("options", CLASSES)
def test_defaults_satisfy_their_own_declarations(options: type[OptionSet]) -> None:
    for declared in options.declared():
        declared.check(declared.default)
        assert declared.help[0].isupper()
        assert not declared.help.endswith(".")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"beam": 0}, "beam must be an integer of at least 1, but is 0"),
        ({"beam": "4"}, "beam must be an integer of at least 1, but is '4'"),
        ({"beam": True}, "beam must be an integer"),
        ({"length_penalty": float("nan")}, "length_penalty must be a number of at least -10 and of at most 10"),
        ({"top_p": 0.0}, "top_p must be a number above 0 and of at most 1"),
        ({"normalise": "mean"}, "normalise must be gnmt or average, but is 'mean'"),
        ({"sample": 1}, "sample must be true or false"),
        ({"top_k": 0}, "top_k must be an integer of at least 1"),
        ({"baem": 4}, "there is no option 'baem'; did you mean beam?"),
        ({"beam": 4, "groups": 3}, "4 is no multiple of 3"),
    ],
)
def test_a_wrong_value_is_refused_with_what_is_allowed(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("?", r"\?")):
        TranslationOptions().override(**changes)


def test_numbers_of_other_types_are_numbers() -> None:
    import numpy as np

    assert TranslationOptions(beam=np.int64(3), length_penalty=1).beam == 3  # type: ignore[arg-type]


def test_a_beam_width_turns_sampling_off_in_generation() -> None:
    assert GenerationOptions().sample
    assert not GenerationOptions().override(beam=4).sample
    with pytest.raises(ValueError, match="beam needs beam search, but temperature needs sampling"):
        GenerationOptions().override(beam=4, temperature=0.5)
    with pytest.raises(ValueError, match="beam needs beam search, but sample needs sampling"):
        GenerationOptions().override(beam=4, sample=True)


@pytest.mark.parametrize("options", CLASSES)
@pytest.mark.parametrize("change", [{"temperature": 0.5}, {"top_k": 3}, {"top_p": 0.5}, {"min_p": 0.1}, {"seed": 3}])
def test_an_option_of_sampling_is_refused_without_sampling(options: type[OptionSet], change: dict[str, Any]) -> None:
    (name,) = change
    assert getattr(options().override(sample=True, **change), name) == change[name]
    makers: list[Callable[..., OptionSet]] = [options, options().override]
    for make in makers:
        with pytest.raises(ValueError, match=f"{name} has no effect on beam search; use sample=True too"):
            make(sample=False, **change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sample": True, "beam": 3}, "beam needs beam search, but sample needs sampling"),
        ({"mbr": 3, "beam": 3}, "beam needs beam search, but mbr needs sampling"),
        ({"sample": True, "groups": 5}, "groups need beam search, but this is sampling"),
        ({"diversity": 0.1}, "diversity has no effect without groups; use groups too"),
    ],
)
def test_an_option_that_would_have_no_effect_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TranslationOptions().override(**change)


def test_an_error_names_options_as_its_reader_gives_them() -> None:
    with pytest.raises(OptionError, match="use beam=7 or more") as caught:
        TranslationOptions().override(nbest=7)
    assert "use --beam 7 or more" in caught.value.spelled(spell_flag)
    with pytest.raises(OptionError, match="use sample=True too") as caught:
        TranslationOptions().override(top_k=7)
    assert caught.value.spelled(spell_flag) == "--top-k has no effect on beam search; use --sample too, or leave it out"
    assert spell_flag("tokens", "8") == "--batch 8"
    assert spell_flag("longest", "3") == "decode.longest = 3"
    braces = OptionError("{beam} is {0!r}", "{beam}")
    assert str(braces) == "beam is '{beam}'"


def test_a_recipe_has_the_options_declared_for_it() -> None:
    declared = {option.name: option for option in TranslationOptions.declared() if option.recipe}
    assert set(Decode.model_fields) == set(declared)
    types = get_type_hints(Decode)
    for name, option in declared.items():
        field = Decode.model_fields[name]
        assert (types[name], field.default, field.description) == (option.type, option.default, option.description)
    with pytest.raises(ValidationError):
        Decode(beam=0)


def test_the_command_line_has_a_flag_for_each_declared_option() -> None:
    command = get_command(app).commands["translate"]  # type: ignore[attr-defined]
    flags = {flag: parameter.name for parameter in command.params for flag in parameter.opts}
    for option in TranslationOptions.declared():
        assert option.flag is None or flags[option.flag] == option.name
    assert flags["--batch"] == "tokens"


def test_a_request_has_fields_that_may_be_missing_and_keep_their_bounds() -> None:
    fields: dict[str, Any] = {
        option.name: pydantic_field(option)
        for option in TranslationOptions.declared()
        if option.http and option.name != "terms"
    }
    request = create_model("Request", **fields)
    assert set(request().model_dump().values()) == {None}
    assert request(beam=3, long="error").model_dump(exclude_none=True) == {"beam": 3, "long": "error"}
    for wrong in ({"beam": 0}, {"temperature": float("inf")}, {"top_p": 0.0}, {"long": "cut"}):
        with pytest.raises(ValidationError):
            request(**wrong)


def test_options_are_imported_without_torch_and_pydantic() -> None:
    code = "import sys, regard.cli, regard.options; print({'torch', 'pydantic', 'numpy'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "set()\n"


@pytest.mark.parametrize(
    ("options", "signature"),
    [
        ({}, "beam:5|length:gnmt-1"),
        ({"beam": 4, "length_penalty": 0.6, "no_repeat": 3}, "beam:4|length:gnmt-0.6|no-repeat:3"),
        ({"mbr": 8, "seed": 2, "top_k": 5}, "mbr:8|sample|temperature:1|top-k:5|top-p:1|min-p:0|seed:2"),
        ({"avoid": ("x",), "groups": 5}, "beam:5|length:gnmt-1|groups:5|avoid"),
        ({"max_length": 9, "longest": 1.5}, "beam:5|length:gnmt-1|max-length:9|longest:1.5"),
    ],
)
def test_the_signature_names_every_option_that_changes_the_text(options: dict[str, object], signature: str) -> None:
    assert TranslationOptions().override(**options).signature == signature


def test_an_option_of_sampling_turns_sampling_on_in_chat() -> None:
    assert not ChatOptions().sample
    for changes in ({"temperature": 0.7}, {"seed": 0}, {"top_k": 5}, {"sample": True}):
        assert ChatOptions().override(**changes).sample
    assert not ChatOptions().override(top_k=None, turns=2).sample
    for changes, message in (
        ({"beam": 4, "temperature": 0.5}, "beam needs beam search, but temperature needs sampling"),
        ({"sample": False, "temperature": 0.5}, "temperature has no effect on beam search"),
        ({"min_tokens": 90}, "min_tokens is 90, which is more than max_tokens, 80"),
        ({"turns": 0}, "turns must be an integer of at least 1"),
        ({"candidates": 0}, "candidates must be an integer of at least 1"),
        ({"rerank_weight": 1.5}, "rerank_weight must be a number of at least 0 and of at most 1"),
    ):
        with pytest.raises(ValueError, match=message):
            ChatOptions().override(**changes)


@pytest.mark.parametrize(
    ("changes", "beam", "nbest"),
    [
        ({}, 20, 20),
        ({"beam": 30}, 30, 20),
        ({"nbest": 25, "beam": 25}, 25, 25),
        ({"candidates": 7, "beam": 6, "groups": 3}, 9, 7),
        ({"sample": True, "candidates": 9}, 5, 9),
    ],
)
def test_a_search_for_candidates_finds_enough_of_them_in_groups_of_one_size(
    changes: dict[str, Any], beam: int, nbest: int
) -> None:
    options = ChatOptions().override(**changes)
    wider = options.with_candidates()
    assert (wider.beam, wider.nbest, wider.sample) == (beam, nbest, options.sample)
