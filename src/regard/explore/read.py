"""Answer the question `read`: tokens, the output as it is found, its scores, and all attention weights.

Each message is sent as soon as it is known.
"""

from collections.abc import Generator, Iterator
from itertools import takewhile
from typing import Any

import numpy as np
import torch

from regard.decode.ranking import length_divisors
from regard.explore.adapters import Ids
from regard.explore.attention import PARTS
from regard.explore.frames import Message, quantize_weights
from regard.explore.model import Changes, InspectedModel
from regard.explore.passes import AttentionWeights, DecoderPass, IsStale, StaleQuestionError, WeightTable
from regard.explore.questions import FirstLayer, ReadQuestion
from regard.explore.tokens import TokenizedText, piece_text, tokenize_output
from regard.predict.alignment import align_words
from regard.text import END


def answer_read(model: InspectedModel, question: ReadQuestion, is_stale: IsStale) -> Iterator[Message]:
    """Yield tokens, encoder attention, the output, its scores, decoder attention, and a summary of every head."""
    source = model.read_input(question)
    changes = model.check_changes(question.changes, source)
    prefix = model.output_prefix(question.prefix)
    labels = _given_output(model, question, source)
    yield tokens_message(source), {}
    encoded = model.encode(source.ids, changes, is_stale)
    encoder_weights = {key: table for key, table in encoded.weights.items() if key[0] in question.want}
    yield from _attention_messages(encoder_weights, question.first, is_stale)
    baseline = None
    if question.baseline is not None:
        baseline_labels = model.output_labels(question.baseline)
        baseline = model.decode(source.ids, baseline_labels, changes, is_stale)
        if labels is None and question.beam == 1 and _is_greedy(model, source.ids, prefix, baseline_labels, baseline):
            labels = baseline_labels
    score = None
    if labels is None:
        labels, score = yield from _search(model, question.beam, source.ids, prefix, changes, is_stale)
    decoded = model.decode(source.ids, labels, changes, is_stale)
    beginning = model.adapter.beginning(source.ids, prefix)
    result = _result_message(model, source, labels, beginning, decoded, score)
    result["candidates"] = _candidates(model, decoded, question.candidates)
    yield {**result, "baseline": baseline and {"logprobs": list(baseline.logprobs)}}, {}
    decoder_weights = {key: table for key, table in decoded.weights.items() if key[0] in question.want}
    yield from _attention_messages(decoder_weights, question.first, is_stale)
    yield {"kind": "heads", "heads": summarize_heads(encoder_weights | decoder_weights), "last": True}, {}


def tokens_message(text: TokenizedText) -> dict[str, Any]:
    """Return the message with the tokens of an input text."""
    return {"kind": "tokens", "tokens": text.to_json(), "words": list(text.words)}


def summarize_heads(weights: AttentionWeights) -> list[dict[str, Any]]:
    """Return the confidence, entropy and distance of every head.

    Confidence is the mean of a row's largest weight (Voita et al. 2019, §4), entropy the mean entropy of a row in nats,
    distance the mean number of tokens between a query and its keys. The end symbol is left out as a query.
    """
    names = ("confidence", "entropy", "distance")
    return [
        {"part": part, "layer": layer, "head": head, **dict(zip(names, measures, strict=True))}
        for (part, layer), table_HQK in weights.items()
        for head, measures in enumerate(_measure_heads(table_HQK).tolist())
    ]


def _measure_heads(table_HQK: WeightTable) -> "np.ndarray[tuple[int, int], np.dtype[np.float64]]":
    """Return three measures for each head."""
    rows_HQK = (table_HQK[:, :-1] if table_HQK.shape[1] > 1 else table_HQK).astype(np.float64)
    safe_HQK = np.where(rows_HQK > 0, rows_HQK, 1.0)
    query_Q, key_K = np.arange(rows_HQK.shape[1]), np.arange(rows_HQK.shape[2])
    distance_QK = np.abs(query_Q[:, None] - key_K[None])
    confidence_H = rows_HQK.max(-1).mean(-1)
    entropy_H = -(rows_HQK * np.log(safe_HQK)).sum(-1).mean(-1)
    distance_H = (rows_HQK * distance_QK).sum(-1).mean(-1)
    return np.stack([confidence_H, entropy_H, distance_H], -1)


def _is_greedy(model: InspectedModel, ids: Ids, prefix: Ids, labels: Ids, decoded: DecoderPass) -> bool:
    """Return whether a greedy search under the changes would find the baseline again.

    It does if every token of the baseline is still the most probable one. This takes one pass; a search takes one
    for each token.
    """
    beginning = model.adapter.beginning(ids, prefix)
    options = model.adapter.search_options(1, 1, beginning)
    most = options.limits.bounds(model.adapter.sentence_options(ids, beginning))[1]
    length, free = len(labels) - model.adapter.prompt_length(beginning), len(beginning)
    is_final = labels[-1] == END or length == most
    if options.coverage_penalty or options.no_repeat or options.limits.minimum or length > most or not is_final:
        return False
    best = [next(token for token, _ in tokens if token not in options.banned) for tokens in decoded.best]
    return labels[:free] == beginning and list(labels[free:]) == best[free:]


def _given_output(model: InspectedModel, question: ReadQuestion, source: TokenizedText) -> Ids | None:
    """Return the labels of the output if it is given: as a text, as ids, or as a prefix that ends."""
    if question.target is not None:
        return model.given_output(source.ids, question.target)
    if question.target_ids is not None:
        return model.output_labels(question.target_ids)
    if question.prefix and question.prefix[-1] == END:
        return model.output_labels(question.prefix)
    return None


def _search(
    model: InspectedModel, beam: int, ids: Ids, prefix: Ids, changes: Changes, is_stale: IsStale
) -> Generator[Message, None, tuple[Ids, float]]:
    """Search for an output, and yield it after each final token; with several beams, only at the end."""
    sent, tokenizer = 0, model.adapter.output_tokenizer
    search = model.search(ids, beam, prefix, changes, is_stale)
    while True:
        try:
            settled = next(search)
        except StopIteration as stop:
            best = stop.value
            break
        if beam == 1 and len(settled) > sent:
            sent = len(settled)
            yield {"kind": "target", "tokens": tokenize_output(settled, tokenizer).to_json()}, {}
    labels = model.hypothesis_labels(best)
    yield {"kind": "target", "tokens": tokenize_output(labels, tokenizer).to_json()}, {}
    return labels, best.score


def _result_message(
    model: InspectedModel, source: TokenizedText, labels: Ids, beginning: Ids, decoded: DecoderPass, score: float | None
) -> dict[str, Any]:
    """Return everything about an output but its candidates and its attention."""
    target = tokenize_output(labels, model.adapter.output_tokenizer)
    if score is None:
        options = model.adapter.search_options(model.adapter.beam)
        scored = decoded.logprobs[model.adapter.prompt_length(beginning) :]
        length = max(1, len(scored))
        score = sum(scored) / length_divisors(length, options)[length]
    prompt = zip(model.adapter.beginning(source.ids, ()), beginning, strict=False)
    return {
        "kind": "result",
        "source": source.to_json(),
        "target": target.to_json(),
        "text": target.text,
        "score": score,
        "logprobs": list(decoded.logprobs),
        "prompt": sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], prompt)),
        "words": {"source": list(source.words), "target": list(target.words)},
        "alignment": _alignment(model, source, target, decoded),
    }


def _candidates(model: InspectedModel, decoded: DecoderPass, count: int) -> list[list[dict[str, Any]]]:
    """Return the most probable tokens at each position."""
    pieces = model.adapter.output_tokenizer.piece
    return [
        [
            {"id": token, "piece": pieces(token), "text": piece_text(pieces(token)), "logprob": logprob}
            for token, logprob in best[:count]
        ]
        for best in decoded.best
    ]


def _alignment(model: InspectedModel, source: TokenizedText, target: TokenizedText, decoded: DecoderPass) -> str | None:
    """Return word links in the Pharaoh format, from the head that the translator uses; None without such a head."""
    head = model.adapter.alignment_head
    if head is None or not target.ids:
        return None if head is None else ""
    layer = [attention.weights for attention in model.layers["cross"]].index(head.tap)
    weights = head.weights({head.tap: torch.from_numpy(decoded.weights["cross", layer])})
    links = align_words(weights, source.word_indices, target.word_indices)
    return " ".join(f"{source_word}-{target_word}" for source_word, target_word in links)


def _attention_messages(weights: AttentionWeights, first: FirstLayer | None, is_stale: IsStale) -> Iterator[Message]:
    """Yield the weights of each part and layer, starting with the layer that is on the screen."""
    shown = None if first is None else (first.part, first.layer)
    for part, layer in sorted(weights, key=lambda key: (key != shown, PARTS.index(key[0]), key[1])):
        if is_stale():
            raise StaleQuestionError
        table = weights[part, layer]
        heads, queries, keys = table.shape
        message = {"kind": "attention", "part": part, "layer": layer, "heads": heads, "queries": queries, "keys": keys}
        yield message, {"weights": quantize_weights(table)}
