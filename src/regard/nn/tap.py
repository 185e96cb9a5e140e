"""Taps: record or replace the tensors inside a model, without a flag in any layer.

A tensor worth seeing passes through a named `Tap`, an identity module. `recording` collects what passes, `replacing`
changes it. Both select taps by a glob pattern over the dotted module names, such as `decoder.*.cross.weights`.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from difflib import get_close_matches
from fnmatch import fnmatchcase

from torch import Tensor, nn
from torch._dynamo.eval_frame import OptimizedModule

TapHook = Callable[[Tensor], Tensor]
"""Receives the tensor that passes a tap and returns the tensor that goes on."""


class TapRecorder:
    """A hook that collects the tensors passing a tap and leaves them unchanged."""

    def __init__(self) -> None:
        """Start with an empty record."""
        self.tensors: list[Tensor] = []

    def __call__(self, x: Tensor) -> Tensor:
        """Record a tensor and return it."""
        self.tensors.append(x)
        return x


class Tap(nn.Module):
    """An identity module that marks a tensor worth seeing and runs hooks on it."""

    def __init__(self) -> None:
        """Start without hooks."""
        super().__init__()
        self._tap_hooks: list[TapHook] = []

    @property
    def watched(self) -> bool:
        """Return whether any hook records or replaces the tensor."""
        return bool(self._tap_hooks)

    @property
    def recorders(self) -> list[TapRecorder]:
        """Return the hooks that only record."""
        return [hook for hook in self._tap_hooks if isinstance(hook, TapRecorder)]

    def forward(self, x: Tensor) -> Tensor:
        """Return the tensor after all hooks, which run in the order they were added."""
        for hook in self._tap_hooks:
            x = hook(x)
        return x

    @contextmanager
    def watching(self, hook: TapHook) -> Iterator[None]:
        """Run `hook` on every tensor that passes until the context ends."""
        # A new list each time: a forward pass in progress keeps the hooks it started with.
        self._tap_hooks = [*self._tap_hooks, hook]
        try:
            yield
        finally:
            self._tap_hooks = [other for other in self._tap_hooks if other is not hook]


@contextmanager
def recording(model: nn.Module, pattern: str) -> Iterator[dict[str, list[Tensor]]]:
    """Record the tensors that pass the taps whose names match a glob pattern.

    The tensors are those the model computes with, still attached to the autograd graph.

    Example:
        >>> with recording(model, "decoder.*.cross.weights") as seen:
        ...     model(source, target)
        >>> seen["decoder.layers.0.cross.weights"][0].shape

    Yields:
        For each tap's name a list with one tensor per pass.

    Raises:
        ValueError: If no tap matches or the model is compiled.
    """
    with ExitStack() as stack:
        records: dict[str, list[Tensor]] = {}
        for name, tap in matching_taps(model, pattern).items():
            recorder = TapRecorder()
            stack.enter_context(tap.watching(recorder))
            records[name] = recorder.tensors
        yield records


@contextmanager
def joining_records(taps: Iterable[Tap], join: Callable[[list[Tensor]], Tensor]) -> Iterator[None]:
    """Replace what these taps record within the context by the one tensor that `join` makes of it.

    A recurrent model passes its taps once per position. Joined, a record holds all positions in one tensor, as it does
    for every other model family.
    """
    recorders = [recorder for tap in taps for recorder in tap.recorders]
    counts = [len(recorder.tensors) for recorder in recorders]
    yield
    for recorder, count in zip(recorders, counts, strict=True):
        if steps := recorder.tensors[count:]:
            recorder.tensors[count:] = [join(steps)]


@contextmanager
def replacing(model: nn.Module, pattern: str, change: Callable[[str, Tensor], Tensor]) -> Iterator[None]:
    """Replace the tensors that pass the taps whose names match a glob pattern.

    Example:
        >>> with replacing(model, "encoder.layers.0.self.weights", lambda name, weights: torch.zeros_like(weights)):
        ...     model(source, target)

    Args:
        model: The model to change for the duration of the context.
        pattern: A glob over the dotted names of taps.
        change: Receives a tap's name and tensor and returns a tensor of the same shape.

    Raises:
        ValueError: If no tap matches, the model is compiled, or `change` returns another shape.
    """

    def make_hook(name: str) -> TapHook:
        def replace(x: Tensor) -> Tensor:
            changed = change(name, x)
            if changed.shape != x.shape:
                raise ValueError(
                    f"the tap '{name}' carries a tensor of shape {tuple(x.shape)}, but the replacement has shape "
                    f"{tuple(changed.shape)}; return a tensor of the same shape"
                )
            return changed

        return replace

    with ExitStack() as stack:
        for name, tap in matching_taps(model, pattern).items():
            stack.enter_context(tap.watching(make_hook(name)))
        yield


def named_taps(model: nn.Module) -> dict[str, Tap]:
    """Return all taps of a model by their dotted names."""
    return {name: module for name, module in model.named_modules() if isinstance(module, Tap)}


def matching_taps(model: nn.Module, pattern: str) -> dict[str, Tap]:
    """Return the taps whose names match a glob pattern.

    Raises:
        ValueError: If no tap matches, or if the model is compiled: compiled code has no taps and would record nothing.
    """
    for name, module in model.named_modules():
        # torch marks compiled modules in two ways: the wrapper of `torch.compile(module)` and `module.compile()`.
        if isinstance(module, OptimizedModule) or module._compiled_call_impl is not None:
            description = f"its module '{name}'" if name else "it"
            raise ValueError(
                f"this model cannot be recorded or changed because {description} is compiled; "
                "use the model as it was before torch.compile"
            )
    every = named_taps(model)
    matches = {name: tap for name, tap in every.items() if fnmatchcase(name, pattern)}
    if not matches:
        close = get_close_matches(pattern, every, n=3, cutoff=0.4) or list(every)[:3]
        hint = f"similar names are {close}" if every else "it has no taps at all"
        raise ValueError(f"no tap of this model matches '{pattern}'; {hint}")
    return matches
