"""The optimisers of a model's weights: Adam as in the paper, AdamW, or Muon for matrices and AdamW for the rest."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn
from torch.optim import Adam, AdamW, Optimizer

from regard.nn.attention.multihead import CrossAttention, SelfAttention
from regard.nn.embedding import Embedding, Output
from regard.recipe import Train
from regard.train.muon import Muon

BETAS, EPSILON = (0.9, 0.98), 1e-9  # §5.3


def build_optimisers(model: nn.Module, settings: Train) -> tuple[Optimizer, ...]:
    """One or two optimisers which together hold every weight once; decay falls on matrices alone."""
    parameters = list(model.parameters())
    if settings.optimiser != "muon":
        return (_adam(parameters, settings),)
    vectors = _vocabularies(model)
    matrices = [each for each in parameters if each.ndim == 2 and id(each) not in vectors]
    chosen = {id(each) for each in matrices}
    rest = [each for each in parameters if id(each) not in chosen]
    return (Muon(matrices, settings.rate, settings.decay, _merged(model)), _adam(rest, settings))


def _adam(parameters: Sequence[Tensor], settings: Train) -> Optimizer:
    """Adam or AdamW, in one kernel for all weights where torch has one."""
    groups = [
        {"params": [each for each in parameters if each.ndim >= 2], "weight_decay": settings.decay},
        {"params": [each for each in parameters if each.ndim < 2], "weight_decay": 0.0},
    ]
    kind = Adam if settings.optimiser == "adam" else AdamW
    return kind([group for group in groups if group["params"]], settings.rate, BETAS, EPSILON, fused=True)


def _vocabularies(model: nn.Module) -> set[int]:
    """The weights whose rows are words, not directions; Muon is not made for them."""
    return {id(each.weight) for each in model.modules() if isinstance(each, Embedding | Output)}


def _merged(model: nn.Module) -> dict[int, list[int]]:
    """Weights of several projections in one, and the rows of each of them."""
    merged = {}
    for each in model.modules():
        if isinstance(each, SelfAttention | CrossAttention):
            keys, values = each.heads * each.key_size, each.heads * each.value_size
            weight, rows = (
                (each.qkv.weight, [keys, keys, values])
                if isinstance(each, SelfAttention)
                else (each.kv.weight, [keys, values])
            )
            merged[id(weight)] = rows
    return merged


def set_rate(optimisers: Iterable[Optimizer], rate: float) -> None:
    """Learn at this rate from now on."""
    for optimiser in optimisers:
        for group in optimiser.param_groups:
            group["lr"] = rate


def state_tensors(model: nn.Module, optimisers: Sequence[Optimizer]) -> dict[str, Tensor]:
    """What the optimisers remember, each tensor under its weight's name; begun at zero where nothing is known yet.

    Begun here rather than at the first update, so that a checkpoint has a place to be read into.
    """
    named = {id(parameter): name for name, parameter in model.named_parameters()}
    tensors: dict[str, Tensor] = {}
    for optimiser in optimisers:
        for group in optimiser.param_groups:
            for parameter in group["params"]:
                state = optimiser.state[parameter]
                if not state:
                    state.update(_nothing_known(optimiser, parameter))
                tensors |= {f"{named[id(parameter)]}.{key}": value for key, value in state.items()}
    return tensors


def _nothing_known(optimiser: Optimizer, parameter: Tensor) -> dict[str, Tensor]:
    """What an optimiser itself begins with."""
    if isinstance(optimiser, Muon):
        return {"momentum_buffer": torch.zeros_like(parameter)}
    return {
        "step": torch.zeros((), dtype=torch.float32, device=parameter.device),
        "exp_avg": torch.zeros_like(parameter),
        "exp_avg_sq": torch.zeros_like(parameter),
    }
