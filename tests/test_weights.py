"""Weights on disk: every damage is found, and files without a checksum can still be read."""

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import nn

from regard.weights import WeightsFile, load_weights, save_weights


def model(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.ModuleDict({"one": nn.Linear(3, 2), "two": nn.Linear(2, 5, bias=False)})


def equal(one: nn.Module, other: nn.Module) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


def error_of_loading(into: nn.Module, path: Path) -> str:
    try:
        load_weights(into, path)
    except ValueError as error:
        return str(error)
    return ""


def test_what_was_stated_about_weights_is_read_back(tmp_path: Path) -> None:
    save_weights(model(), tmp_path / "w", {"step": "60"})
    assert WeightsFile.open(tmp_path / "w").metadata["step"] == "60"
    other = model(1)
    load_weights(other, tmp_path / "w")
    assert equal(other, model())


@given(data=st.data())
def test_a_flipped_bit_anywhere_in_the_file_is_an_error_or_changes_no_weight(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("weights") / "w"
    save_weights(model(), path, {"step": "60"})
    contents = bytearray(path.read_bytes())
    contents[data.draw(st.integers(0, len(contents) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(contents)
    other = model(1)
    message = error_of_loading(other, path)
    assert "w is damaged" in message or "does not fit the model" in message or (not message and equal(other, model()))


def test_a_flipped_bit_in_a_weight_leaves_the_model_as_it_was(tmp_path: Path) -> None:
    save_weights(model(), tmp_path / "w")
    contents = bytearray((tmp_path / "w").read_bytes())
    contents[-3] ^= 1
    (tmp_path / "w").write_bytes(contents)
    other = model(1)
    with pytest.raises(ValueError, match=r"w is damaged .*do not match its checksum.*restore it from a copy"):
        load_weights(other, tmp_path / "w")
    assert equal(other, model(1))


def test_weights_without_a_checksum_are_read_but_must_be_finite(tmp_path: Path) -> None:
    tensors = {name: tensor.clone() for name, tensor in model().state_dict().items()}
    save_file(tensors, tmp_path / "w")
    other = model(1)
    load_weights(other, tmp_path / "w")
    assert equal(other, model())
    for value in (float("nan"), float("inf"), float("-inf")):
        tensors["two.weight"][3, 1] = value
        save_file(tensors, tmp_path / "w")
        with pytest.raises(ValueError, match=r"w is damaged .*two\.weight has values that are not finite"):
            load_weights(other, tmp_path / "w")


@pytest.mark.parametrize("header", [b"", b"[]", b'{"a": 1}', b'{"a": {"shape": 3}}', b"[" * 100_000])
def test_a_header_that_is_none_is_an_error(header: bytes, tmp_path: Path) -> None:
    (tmp_path / "w").write_bytes(len(header).to_bytes(8, "little") + header)
    with pytest.raises(ValueError, match="w is damaged or not a safetensors file"):
        WeightsFile.open(tmp_path / "w")
