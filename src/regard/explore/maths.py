"""Answer the question `maths`: every intermediate value of one query of one attention, with shapes and formulas.

The values are the model's own, recorded at its taps. Only norms and projections without a tap are computed again, by
the model's own modules.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import NamedTuple

import torch
from torch import nn

from regard.explore.adapters import Ids
from regard.explore.attention import DECODER_PARTS, AttentionLayer, AttentionPart
from regard.explore.changes import applied
from regard.explore.frames import Message
from regard.explore.maths_steps import RecordedPass, Stage, alignment_stages, alignment_taps, head_stages, head_taps
from regard.explore.model import Changes, InspectedModel, cache_key
from regard.explore.passes import IsStale
from regard.explore.questions import MathsQuestion
from regard.explore.tokens import DisplayToken, TokenizedText, start_token, tokenize_output
from regard.nn.attention.multihead import MultiHeadAttention
from regard.nn.attention.single_head import SingleHeadAttention
from regard.nn.tap import recording
from regard.predict.teacher_forcing import evaluating


class AttentionQuery(NamedTuple):
    """An attention layer, and the sentence that passes through it."""

    ids: Ids
    labels: Ids
    changes: Changes
    part: AttentionPart
    layer: int


def answer_maths(model: InspectedModel, question: MathsQuestion, is_stale: IsStale) -> Iterator[Message]:
    """Yield the computation of one query as a list of stages, with one array for each."""
    source, labels, changes = model.read_query(question)
    layer = model.layers[question.part][question.layer]
    query = AttentionQuery(source.ids, labels, changes, question.part, question.layer)
    key = ("maths", *query._replace(changes=()), cache_key(changes))
    passed = model.cache.get(key, lambda: _record(model, layer, query, is_stale), RecordedPass.size)
    with torch.no_grad():
        stages = _stages(layer, question.head, question.query, passed)
    queries = _query_tokens(model, question.part, source, labels)
    keys = queries if question.part == "decoder" else list(source.tokens)
    message = {
        "kind": "maths",
        "stages": [stage.to_json() for stage in stages],
        "query": question.query,
        "keys": [token.to_json() for token in keys],
        "token": queries[question.query].to_json(),
        "last": True,
    }
    yield message, {stage.name: stage.value for stage in stages}


def _taps(layer: AttentionLayer, model: nn.Module) -> list[str]:
    """Return the patterns of the taps whose values are shown."""
    match layer.module:
        case MultiHeadAttention():
            return head_taps(layer)
        case SingleHeadAttention():
            return alignment_taps(layer, model)
    raise ValueError(
        f"the explorer cannot show the computation of {type(layer.module).__name__} at '{layer.name}'; "
        "it knows multi-head attention and the attention of Bahdanau and Luong. Its weights are shown in other views"
    )


def _stages(layer: AttentionLayer, head: int, query: int, passed: RecordedPass) -> list[Stage]:
    """Return the stages of one query."""
    if isinstance(layer.module, MultiHeadAttention):
        return head_stages(layer, head, query, passed)
    return alignment_stages(layer, query, passed)


def _record(model: InspectedModel, layer: AttentionLayer, query: AttentionQuery, is_stale: IsStale) -> RecordedPass:
    """Run the pass that contains an attention layer, and record the values around it."""
    ids, labels, changes, part, _ = query
    adapter = model.adapter
    patterns = _taps(layer, adapter.model)
    parts: tuple[AttentionPart, ...] = ("encoder",) if part == "encoder" else DECODER_PARTS
    memory = None if part == "encoder" else model.encode(ids, changes, is_stale).memory
    means = model.head_means(ids, changes, is_stale)
    with evaluating(adapter.model), applied(model.layers, changes, parts, means), ExitStack() as stack:
        recorded = [stack.enter_context(recording(adapter.model, pattern)) for pattern in patterns]
        if part == "encoder":
            adapter.encode(ids)
        else:
            adapter.decoder_states(labels, memory)
    values = {name: tensors[0] for taps in recorded for name, tensors in taps.items() if tensors}
    return RecordedPass(adapter.model, values, memory)


def _query_tokens(model: InspectedModel, part: AttentionPart, source: TokenizedText, labels: Ids) -> list[DisplayToken]:
    """Return the token that each query has read: of the source, or the start symbol and the target tokens before."""
    if part == "encoder":
        return list(source.tokens)
    tokenizer = model.adapter.output_tokenizer
    return [start_token(tokenizer), *tokenize_output(labels[:-1], tokenizer).tokens]
