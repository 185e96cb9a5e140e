"""Engines: trained models made fast to decode, without what only training and recording need.

    from regard import engines

    engine = engines.engine(model, device="cpu", precision="int8")
    state = engine.start(inputs, beams=5)  # encodes sources, or prefills the prompts of a language model
    logprobs_RV, state = engine.step(tokens_R, state)
    logprob_RK, token_RK, state = engine.top_k(tokens_R, state, k=5)  # a step of which the best tokens are enough
    state = engine.select(state, rows_R)
    state = engine.join([state, engine.start(more, beams=5)])

An engine computes what the model's own `start`, `step` and `select` compute, to its precision. It has no taps: to
record inside a model, ask the model. It holds its own copy of the weights: after more training, make a new engine.

| engine        | serves                                                                              |
|---------------|-------------------------------------------------------------------------------------|
| IndexedEngine | Transformers on a CPU: packed linear layers (float32, bfloat16, int8), indexed KV cache |
| StaticEngine  | Transformers on CUDA: fixed shapes, captured in CUDA graphs                         |
| ModelEngine   | every other family, and mechanisms that the other two lack: the model's own steps   |

A Transformer may be an encoder-decoder (`Seq2Seq`) or decoder-only (`LanguageModel`). Of a hierarchical Transformer,
the IndexedEngine runs the decoder, and the encoder as it is; on CUDA, the ModelEngine serves it.
"""

import torch

from regard.engines.engine import Engine, ModelEngine, SteppableModel
from regard.engines.indexed_attention import is_available
from regard.engines.indexed_engine import IndexedEngine
from regard.engines.linear import Precision
from regard.engines.parts import transformer_parts
from regard.engines.static_engine import StaticEngine
from regard.engines.worker_threads import parallel
from regard.models.hierarchical import HierarchicalTransformerEncoder

__all__ = ["Engine", "Precision", "SteppableModel", "engine", "parallel"]


def engine(model: torch.nn.Module, device: torch.device | str = "cpu", precision: Precision = "float32") -> Engine:
    """Return the fastest engine for a trained model on a device.

    `int8` is for Transformers on a CPU. Elsewhere the engine computes in float32 and says so in `precision`.
    """
    device = torch.device(device)
    parts = transformer_parts(model)
    if device.type == "cpu" and parts is not None and is_available():
        return IndexedEngine(parts, precision)
    if device.type == "cuda" and parts is not None and not isinstance(parts.encoder, HierarchicalTransformerEncoder):
        return StaticEngine(parts, device, precision)
    return ModelEngine(model, device, precision)
