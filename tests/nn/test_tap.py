import pytest
import torch
from torch import Tensor, nn

from regard.nn.tap import Tap, named_taps, recording, replacing


class Doubler(nn.Module):
    """Double the input twice, with a tap after each time."""

    def __init__(self) -> None:
        super().__init__()
        self.once, self.twice = Tap(), Tap()

    def forward(self, x: Tensor) -> Tensor:
        twice: Tensor = self.twice(self.once(x * 2) * 2)
        return twice


def model() -> nn.Sequential:
    return nn.Sequential(Doubler(), Doubler())


ONE = torch.ones(1)


def test_recording_collects_tensors_by_the_name_of_their_tap() -> None:
    network = model()
    with recording(network, "*.once") as seen:
        network(ONE)
    assert {name: [float(x) for x in tensors] for name, tensors in seen.items()} == {"0.once": [2.0], "1.once": [8.0]}


def test_each_forward_pass_is_recorded_in_order() -> None:
    network = model()
    with recording(network, "0.once") as seen:
        network(ONE)
        network(3 * ONE)
    assert [float(x) for x in seen["0.once"]] == [2.0, 6.0]


def test_nothing_is_recorded_after_the_context() -> None:
    network = model()
    with recording(network, "*") as seen:
        pass
    network(ONE)
    assert all(tensors == [] for tensors in seen.values())
    assert not any(tap.watched for tap in named_taps(network).values())


def test_replacing_changes_the_tensor_that_goes_on() -> None:
    network = model()
    with replacing(network, "0.twice", lambda _name, x: torch.zeros_like(x)):
        assert float(network(ONE)) == 0
    assert float(network(ONE)) == 16


def test_a_replacement_receives_the_name_of_its_tap() -> None:
    network, names = model(), []

    def listen(name: str, x: Tensor) -> Tensor:
        names.append(name)
        return x

    with replacing(network, "1.*", listen):
        network(ONE)
    assert names == ["1.once", "1.twice"]


def test_contexts_nest_and_the_inner_one_sees_the_outer_replacement() -> None:
    network = model()
    with replacing(network, "0.once", lambda _name, x: x + 1), recording(network, "0.*") as seen:
        network(ONE)
    assert [float(seen[name][0]) for name in ("0.once", "0.twice")] == [3.0, 6.0]


def test_a_tap_can_be_recorded_twice_at_once() -> None:
    network = model()
    with recording(network, "0.once") as outer:
        with recording(network, "0.once") as inner:
            network(ONE)
        network(ONE)
    assert (len(outer["0.once"]), len(inner["0.once"])) == (2, 1)


def test_an_exception_inside_the_context_removes_the_hooks() -> None:
    network = model()
    with pytest.raises(ZeroDivisionError), recording(network, "*"):
        raise ZeroDivisionError
    assert not any(tap.watched for tap in named_taps(network).values())


def test_a_pattern_without_a_match_is_an_error_with_similar_names() -> None:
    with pytest.raises(ValueError, match=r"no tap of this model matches '0.onse'; similar names are .*0\.once"):
        recording(model(), "0.onse").__enter__()


def test_a_model_without_taps_is_an_error() -> None:
    with pytest.raises(ValueError, match="no taps at all"):
        recording(nn.Linear(1, 1), "*").__enter__()


def test_a_replacement_of_another_shape_is_refused() -> None:
    network = model()
    with replacing(network, "0.once", lambda _name, x: x[None]), pytest.raises(ValueError, match=r"'0.once'.*\(1,\)"):
        network(ONE)


def test_a_compiled_model_cannot_be_recorded() -> None:
    compiled = torch.compile(model(), backend="eager")
    assert isinstance(compiled, nn.Module)
    with pytest.raises(ValueError, match="it is compiled"):
        recording(compiled, "*").__enter__()


def test_a_model_with_a_compiled_module_cannot_be_changed() -> None:
    network = model()
    network[1].compile(backend="eager")
    with pytest.raises(ValueError, match="its module '1' is compiled"):
        replacing(network, "0.*", lambda _name, x: x).__enter__()


def test_recorded_tensors_carry_gradients() -> None:
    network, x = model(), torch.ones(1, requires_grad=True)
    with recording(network, "0.once") as seen:
        network(x)
    (gradient,) = torch.autograd.grad(seen["0.once"][0].sum(), x)
    assert float(gradient) == 2


def test_a_tap_without_hooks_returns_its_input() -> None:
    assert Tap()(ONE) is ONE
