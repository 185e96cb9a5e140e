import pytest
import torch
from torch import Tensor, nn

from regard.nn.tap import Tap, recording, replacing, taps


class Doubler(nn.Module):
    """Doubles twice, with a tap behind each time."""

    def __init__(self) -> None:
        super().__init__()
        self.once, self.twice = Tap(), Tap()

    def forward(self, x: Tensor) -> Tensor:
        twice: Tensor = self.twice(self.once(x * 2) * 2)
        return twice


def model() -> nn.Sequential:
    return nn.Sequential(Doubler(), Doubler())


ONE = torch.ones(1)


def test_recording_sees_what_passes_each_tap_by_name() -> None:
    both = model()
    with recording(both, "*.once") as seen:
        both(ONE)
    assert {name: [float(x) for x in passed] for name, passed in seen.items()} == {"0.once": [2.0], "1.once": [8.0]}


def test_each_pass_is_recorded_in_its_turn() -> None:
    both = model()
    with recording(both, "0.once") as seen:
        both(ONE)
        both(3 * ONE)
    assert [float(x) for x in seen["0.once"]] == [2.0, 6.0]


def test_nothing_is_recorded_once_the_context_is_over() -> None:
    both = model()
    with recording(both, "*") as seen:
        pass
    both(ONE)
    assert all(passed == [] for passed in seen.values())
    assert not any(tap.watched for tap in taps(both).values())


def test_replacing_changes_what_goes_on() -> None:
    both = model()
    with replacing(both, "0.twice", lambda _name, x: torch.zeros_like(x)):
        assert float(both(ONE)) == 0
    assert float(both(ONE)) == 16


def test_a_replacement_is_told_which_tap_it_stands_at() -> None:
    both, told = model(), []

    def listen(name: str, x: Tensor) -> Tensor:
        told.append(name)
        return x

    with replacing(both, "1.*", listen):
        both(ONE)
    assert told == ["1.once", "1.twice"]


def test_contexts_nest_and_the_inner_one_sees_what_the_outer_one_made() -> None:
    both = model()
    with replacing(both, "0.once", lambda _name, x: x + 1), recording(both, "0.*") as seen:
        both(ONE)
    assert [float(seen[name][0]) for name in ("0.once", "0.twice")] == [3.0, 6.0]


def test_the_same_tap_can_be_recorded_twice_at_once_and_each_ends_by_itself() -> None:
    both = model()
    with recording(both, "0.once") as outer:
        with recording(both, "0.once") as inner:
            both(ONE)
        both(ONE)
    assert (len(outer["0.once"]), len(inner["0.once"])) == (2, 1)


def test_an_exception_inside_leaves_no_watcher_behind() -> None:
    both = model()
    with pytest.raises(ZeroDivisionError), recording(both, "*"):
        raise ZeroDivisionError
    assert not any(tap.watched for tap in taps(both).values())


def test_a_pattern_that_matches_nothing_is_an_error_that_names_what_is_near() -> None:
    with pytest.raises(ValueError, match=r"no tap of this model matches '0.onse'; near it are .*0\.once"):
        recording(model(), "0.onse").__enter__()


def test_a_model_without_taps_says_so() -> None:
    with pytest.raises(ValueError, match="none at all"):
        recording(nn.Linear(1, 1), "*").__enter__()


def test_a_replacement_of_another_shape_is_refused() -> None:
    both = model()
    with replacing(both, "0.once", lambda _name, x: x[None]), pytest.raises(ValueError, match=r"'0.once'.*\(1,\)"):
        both(ONE)


def test_a_compiled_model_refuses_to_be_watched() -> None:
    compiled = torch.compile(model(), backend="eager")
    assert isinstance(compiled, nn.Module)
    with pytest.raises(ValueError, match="it is compiled"):
        recording(compiled, "*").__enter__()


def test_a_model_with_a_part_compiled_in_place_refuses_to_be_watched() -> None:
    both = model()
    both[1].compile(backend="eager")
    with pytest.raises(ValueError, match="part '1' is compiled"):
        replacing(both, "0.*", lambda _name, x: x).__enter__()


def test_what_is_recorded_carries_gradients() -> None:
    both, x = model(), torch.ones(1, requires_grad=True)
    with recording(both, "0.once") as seen:
        both(x)
    (gradient,) = torch.autograd.grad(seen["0.once"][0].sum(), x)
    assert float(gradient) == 2


def test_an_unwatched_tap_hands_on_the_very_same_tensor() -> None:
    assert Tap()(ONE) is ONE
