"""Engines: trained models made ready for quick searching, with nothing left in them that only training or seeing needs.

    from regard.models import fast

    engine = fast.engine(model, device="cpu", precision="int8")
    state = engine.start(source, beams=5)
    logprobs_RV, state = engine.step(tokens_R, state)
    best_RK, token_RK, state = engine.top(tokens_R, state, k=5)  # the same, where the best are enough
    state = engine.select(state, rows_R)
    state = engine.join([state, engine.start(more, beams=5)])

An engine says what the model's own `start`, `step` and `select` say, to its precision. It cannot be watched: who wants
to see inside a model asks the model. It holds weights of its own: who trains on makes a new one.

| engine  | serves                                                                                 |
|---------|----------------------------------------------------------------------------------------|
| indexed | Transformers on a CPU: packed linears (float32, bfloat16, int8), attention by index    |
| static  | Transformers on CUDA: fixed shapes, captured in CUDA graphs                            |
| own     | every other family, and mechanisms the other two have not: the model's own steps       |
"""

import torch

from regard.models.fast import gaze
from regard.models.fast.engine import Engine, OwnEngine
from regard.models.fast.indexed import IndexedEngine
from regard.models.fast.linear import Precision
from regard.models.fast.parts import stacks_of
from regard.models.fast.static import StaticEngine
from regard.models.fast.workers import parallel

__all__ = ["Engine", "Precision", "engine", "parallel"]


def engine(model: torch.nn.Module, device: torch.device | str = "cpu", precision: Precision = "float32") -> Engine:
    """The quickest engine for a trained model on a device.

    `int8` is for Transformers on a CPU; elsewhere the engine computes in float32 and says so in `precision`.
    """
    where = torch.device(device)
    stacks = stacks_of(model)
    if where.type == "cpu" and stacks is not None and gaze.available():
        return IndexedEngine(stacks, precision)
    if where.type == "cuda" and stacks is not None:
        return StaticEngine(stacks, where, precision)
    return OwnEngine(model, where, precision)
