"""Seeing and changing what flows through a model, without a flag in any layer.

A tensor worth seeing passes through a named `Tap`, an identity. `recording` collects what passes, `replacing` changes
it; both are told which taps by a glob over the dotted names of the model's modules, such as `decoder.*.cross.weights`.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from difflib import get_close_matches
from fnmatch import fnmatchcase

from torch import Tensor, nn
from torch._dynamo.eval_frame import OptimizedModule

Watcher = Callable[[Tensor], Tensor]


class Recorder:
    """Keeps what passes, and hands it on."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self.passed: list[Tensor] = []

    def __call__(self, x: Tensor) -> Tensor:
        """Keep one more."""
        self.passed.append(x)
        return x


class Tap(nn.Module):
    """An identity with a name, through which a tensor worth seeing passes."""

    def __init__(self) -> None:
        """Begin unwatched."""
        super().__init__()
        self._watchers: list[Watcher] = []

    @property
    def watched(self) -> bool:
        """Whether anybody records or replaces what passes here."""
        return bool(self._watchers)

    @property
    def recorders(self) -> list["Recorder"]:
        """Those who only keep what passes here."""
        return [each for each in self._watchers if isinstance(each, Recorder)]

    def forward(self, x: Tensor) -> Tensor:
        """Hand the tensor on, through whoever watches, in the order they came."""
        for watcher in self._watchers:
            x = watcher(x)
        return x

    @contextmanager
    def watching(self, watcher: Watcher) -> Iterator[None]:
        """Let `watcher` see what passes and say what goes on, until the context ends."""
        # A fresh list each time: a pass under way keeps the watchers it began with.
        self._watchers = [*self._watchers, watcher]
        try:
            yield
        finally:
            self._watchers = [each for each in self._watchers if each is not watcher]


@contextmanager
def recording(model: nn.Module, pattern: str) -> Iterator[dict[str, list[Tensor]]]:
    """Collect what passes the taps whose names match, by name, one tensor for each time it passed.

    The tensors are the ones the model computed with, gradients and all.
    """
    with ExitStack() as stack:
        passed: dict[str, list[Tensor]] = {}
        for name, tap in matching(model, pattern).items():
            recorder = Recorder()
            stack.enter_context(tap.watching(recorder))
            passed[name] = recorder.passed
        yield passed


@contextmanager
def joining(taps: Iterable[Tap], join: Callable[[list[Tensor]], Tensor]) -> Iterator[None]:
    """Let what these taps record step by step until the context ends be the one tensor that `join` makes of it.

    A recurrence passes its taps once a position; who records sees a table of positions, as of any other family.
    """
    recorders = [each for tap in taps for each in tap.recorders]
    before = [len(each.passed) for each in recorders]
    yield
    for each, since in zip(recorders, before, strict=True):
        if steps := each.passed[since:]:
            each.passed[since:] = [join(steps)]


@contextmanager
def replacing(model: nn.Module, pattern: str, change: Callable[[str, Tensor], Tensor]) -> Iterator[None]:
    """Let `change(name, tensor)` say what goes on from each tap whose name matches; the shape must stay."""

    def at(name: str) -> Watcher:
        def replace(x: Tensor) -> Tensor:
            changed = change(name, x)
            if changed.shape != x.shape:
                raise ValueError(
                    f"the tap '{name}' carries a tensor of shape {tuple(x.shape)}, but its replacement has "
                    f"{tuple(changed.shape)}; return one of the same shape"
                )
            return changed

        return replace

    with ExitStack() as stack:
        for name, tap in matching(model, pattern).items():
            stack.enter_context(tap.watching(at(name)))
        yield


def taps(model: nn.Module) -> dict[str, Tap]:
    """Every tap of a model by its dotted name."""
    return {name: module for name, module in model.named_modules() if isinstance(module, Tap)}


def matching(model: nn.Module, pattern: str) -> dict[str, Tap]:
    """The taps whose names match a glob; to match none, or to ask a compiled model, is an error."""
    _refuse_compiled(model)
    every = taps(model)
    found = {name: tap for name, tap in every.items() if fnmatchcase(name, pattern)}
    if not found:
        near = get_close_matches(pattern, every, n=3, cutoff=0.4) or list(every)[:3]
        known = f"near it are {near}" if every else "it has none at all"
        raise ValueError(f"no tap of this model matches '{pattern}'; {known}")
    return found


def _refuse_compiled(model: nn.Module) -> None:
    """Refuse a model with compiled parts: what they were compiled to has no taps left, and would record nothing."""
    for name, module in model.named_modules():
        # Both are how torch marks a compiled module: wrapped by `torch.compile(module)`, or by `module.compile()`.
        if isinstance(module, OptimizedModule) or module._compiled_call_impl is not None:
            place = f"its part '{name}'" if name else "it"
            raise ValueError(
                f"this model cannot be watched because {place} is compiled; watch it as it was before torch.compile"
            )
