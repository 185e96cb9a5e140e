"""The optimisers of a model's weights, and the moving average of the weights (EMA)."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn
from torch.optim import Adam, AdamW, Optimizer

from regard.nn.attention.multihead import CrossAttention, SelfAttention
from regard.nn.embedding import Embedding, OutputProjection
from regard.nn.linear import ClassProjection
from regard.nn.ngrams import NgramEmbedding
from regard.train.muon import Muon
from regard.train.schedule import ResolvedTrain

BETAS, EPSILON = (0.9, 0.98), 1e-9  # Vaswani et al. 2017, §5.3
STATE_TENSORS: dict[type[Optimizer], tuple[str, ...]] = {
    Adam: ("step", "exp_avg", "exp_avg_sq"),
    AdamW: ("step", "exp_avg", "exp_avg_sq"),
    Muon: ("momentum_buffer",),
}
"""The state of an optimiser for each weight, which a checkpoint holds: `step` is a number, all others are like it."""
_EMA_WARMUP = 10  # larger values let the moving average follow the weights closely for longer


def build_optimisers(model: nn.Module, settings: ResolvedTrain) -> tuple[Optimizer, ...]:
    """Build the optimisers of a recipe. Weight decay applies to weights with two dimensions or more."""
    parameters = list(model.parameters())
    match settings.optimiser:
        case "adam":
            return (_adam(Adam, parameters, settings),)
        case "adamw":
            return (_adam(AdamW, parameters, settings),)
        case "muon":
            return _muon_and_adamw(model, parameters, settings)


def _muon_and_adamw(
    model: nn.Module, parameters: Sequence[Tensor], settings: ResolvedTrain
) -> tuple[Optimizer, Optimizer]:
    """Return Muon for matrices and AdamW for all other weights.

    Embeddings and output layers are not matrices for Muon: their rows are vectors of tokens or classes, each with its
    own gradient.
    """
    rows_are_vectors = Embedding | OutputProjection | ClassProjection | NgramEmbedding
    vocabularies = {id(layer.weight) for layer in model.modules() if isinstance(layer, rows_are_vectors)}
    matrices = [weight for weight in parameters if weight.ndim == 2 and id(weight) not in vocabularies]
    chosen = {id(weight) for weight in matrices}
    others = [weight for weight in parameters if id(weight) not in chosen]
    return (Muon(matrices, settings.rate, settings.decay, _merged_rows(model)), _adam(AdamW, others, settings))


def _adam(kind: type[Adam], parameters: Sequence[Tensor], settings: ResolvedTrain) -> Optimizer:
    """Return Adam or its subclass AdamW, fused into one kernel for all weights."""
    groups = [
        {"params": [weight for weight in parameters if weight.ndim >= 2], "weight_decay": settings.decay},
        {"params": [weight for weight in parameters if weight.ndim < 2], "weight_decay": 0.0},
    ]
    return kind([group for group in groups if group["params"]], settings.rate, BETAS, EPSILON, fused=True)


def _merged_rows(model: nn.Module) -> dict[int, list[int]]:
    """Return, by the id of each weight that merges several projections, the rows of each projection."""
    merged = {}
    for layer in model.modules():
        if isinstance(layer, SelfAttention | CrossAttention):
            keys, values = layer.heads * layer.key_size, layer.heads * layer.value_size
            weight, rows = (
                (layer.qkv.weight, [keys, keys, values])
                if isinstance(layer, SelfAttention)
                else (layer.kv.weight, [keys, values])
            )
            merged[id(weight)] = rows
    return merged


def state_tensors(model: nn.Module, optimisers: Sequence[Optimizer]) -> dict[str, Tensor]:
    """Return the state of the optimisers, each tensor under the name of its weight.

    State that does not exist yet is initialised to zero, as the optimisers would do at their first step, so that a
    checkpoint can be loaded into it.
    """
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    tensors: dict[str, Tensor] = {}
    for optimiser in optimisers:
        for group in optimiser.param_groups:
            for parameter in group["params"]:
                state = optimiser.state[parameter]
                if not state:
                    state.update(_initial_state(optimiser, parameter))
                tensors |= {f"{names[id(parameter)]}.{key}": value for key, value in state.items()}
    return tensors


def _initial_state(optimiser: Optimizer, parameter: Tensor) -> dict[str, Tensor]:
    """Return the state with which an optimiser starts."""
    step = torch.zeros((), dtype=torch.float32, device=parameter.device)
    return {
        name: step.clone() if name == "step" else torch.zeros_like(parameter) for name in STATE_TENSORS[type(optimiser)]
    }


def set_learning_rate(optimisers: Iterable[Optimizer], rate: float) -> None:
    """Set the learning rate of all parameter groups."""
    for optimiser in optimisers:
        for group in optimiser.param_groups:
            group["lr"] = rate


class MovingAverage:
    """Exponential moving average of the weights (Polyak & Juditsky 1992)."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        """Start with the current weights."""
        self.decay = decay
        self.parameters = [weight.detach() for weight in model.parameters()]
        self.names = [name for name, _ in model.named_parameters()]
        self.weights = [weight.clone() for weight in self.parameters]

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Average in the weights after an update; with a lower decay at first, when old weights are poor."""
        decay = min(self.decay, (1 + step) / (_EMA_WARMUP + step))
        torch._foreach_lerp_(self.weights, self.parameters, 1 - decay)

    def tensors(self) -> dict[str, Tensor]:
        """Return the averaged weights by name."""
        return dict(zip(self.names, self.weights, strict=True))
