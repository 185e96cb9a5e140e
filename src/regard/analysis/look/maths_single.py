"""Every step of the one attention that families before the Transformer have, by their own scores.

Bahdanau et al. 2015, §3.1; Luong et al. 2015, §3.1 and §3.2; Gehring et al. 2017, §3.3.
"""

from fnmatch import fnmatchcase

import torch
from torch import Tensor, nn

from regard.analysis.look.parts import Place
from regard.analysis.look.stages import Pass, Stage, formula_of, numbers, projections, softmax_stages
from regard.models.convolutional.stack import ConvolutionalDecoder
from regard.models.recurrent.bahdanau import BahdanauDecoder
from regard.models.recurrent.luong import LuongDecoder
from regard.nn.attention.alignment import Alignment

_AFTER = {
    BahdanauDecoder: ("decoder.cell.recurrence.states", "state", "s_i = f(s_{i−1}, [y_{i−1}; context])"),
    LuongDecoder: ("decoder.top.vector", "vector", "h̃ = tanh(W_c [context; h])"),
}
"""By family, the tap on what is made of the context, its name and its formula."""

_QUERY = {
    BahdanauDecoder: ("s_{i−1}", "where the decoder stood before this step"),
    LuongDecoder: ("h_t", "where the decoder stands"),
    ConvolutionalDecoder: ("W h + g", "the layer's state and the token's own vector"),
}


def single_taps(place: Place, decoder: object) -> list[str]:
    """The taps whose numbers are wanted, as patterns."""
    after = next((tap for family, (tap, _, _) in _AFTER.items() if isinstance(decoder, family)), "")
    return [f"{place.name}.*", "decoder.embedding.token", after or f"{place.name.removesuffix('.cross')}.stream"]


def single_stages(place: Place, query: int, passed: Pass) -> list[Stage]:
    """From the query's token to what is made of the context."""
    module, decoder = place.module, passed.model.get_submodule("decoder")
    assert isinstance(module, Alignment)
    assert passed.memory is not None, "a decoder looks at a memory"
    keys = passed.memory.states_ND
    values = keys if passed.memory.values_ND is None else passed.memory.values_ND
    vector = passed.at(f"{place.name}.query")[query]
    formula, note = next(said for family, said in _QUERY.items() if isinstance(decoder, family))
    token = passed.at("decoder.embedding.token")[query]
    found = [
        Stage("embedding", "E[token]", numbers(token), "the token told last"),
        Stage("query", formula, numbers(vector), note),
        Stage("keys", "h_j", numbers(keys), "what the encoder left of each token"),
    ]
    if values is not keys:
        found.append(Stage("values", "z_j + e_j", numbers(values), "what is mixed knows the token itself too"))
    return [
        *found,
        *projections(module.score, vector, keys),
        *_weighed(place, module, query, passed),
        Stage("context", "Σ weight · h_j", numbers(passed.at(f"{place.name}.context")[query])),
        *_after(place, decoder, query, passed),
    ]


def _weighed(place: Place, module: Alignment, query: int, passed: Pass) -> list[Stage]:
    """From energies to weights, by way of the place looked at where attention is local."""
    at = (0, 0, query)
    energies, mask = passed.at(f"{place.name}.scores")[at], passed.at(f"{place.name}.mask")[at]
    weights = numbers(passed.at(f"{place.name}.weights")[at])
    found = [Stage("energies", formula_of(module.score, energies.shape[-1]), numbers(energies))]
    found += softmax_stages(energies, mask)
    if module.focus is None:
        return [*found, Stage("weights", "softmax(masked)", weights, "they sum to one")]
    where = passed.at(f"{place.name}.focus.place")[at]
    away = torch.arange(energies.shape[-1], device=where.device) - where
    bell = torch.exp(-2 * (away / module.focus.reach) ** 2)
    return [
        *found,
        Stage("place", "p = S · sigmoid(vᵀ tanh(W h))", numbers(where), "where it looks"),
        Stage("aligned", "softmax(masked)", numbers(passed.at(f"{place.name}.aligned")[at])),
        Stage("bell", "exp(−(j − p)² / 2σ²), σ = D / 2", numbers(bell), f"D = {module.focus.reach}"),
        Stage("weights", "aligned · bell", weights),
    ]


def _after(place: Place, decoder: nn.Module, query: int, passed: Pass) -> list[Stage]:
    """What the family makes of the context."""
    for family, (tap, name, formula) in _AFTER.items():
        if isinstance(decoder, family):
            return [Stage(name, formula, numbers(_row(passed, tap, query)))]
    tap = f"{place.name.removesuffix('.cross')}.stream"
    return [Stage("output", "(h + W (context · √m)) · √½", numbers(_row(passed, tap, query)), "leaves the layer")]


def _row(passed: Pass, tap: str, query: int) -> Tensor:
    (found,) = [value for name, value in passed.seen.items() if fnmatchcase(name, tap)]
    return found[query]
