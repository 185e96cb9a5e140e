"""Hold one model that the explorer shows, and cache its latest results, so that another view of a sentence is free."""

from collections import OrderedDict
from collections.abc import Callable, Generator, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from regard.decode import Hypothesis
from regard.explore.adapters import Ids, Predictor, make_adapter
from regard.explore.attention import AttentionPart, attention_layers, find_layer
from regard.explore.changes import HeadMeans, check_changes
from regard.explore.info import ModelInfo, describe
from regard.explore.passes import (
    AttentionWeights,
    DecoderPass,
    EncoderPass,
    IsStale,
    mean_head_outputs,
    run_decoder,
    run_encoder,
)
from regard.explore.questions import AblateHeads, BlockTokens, Change, InputField, InputQuestion, QueryQuestion
from regard.explore.search import SearchRequest, final_result, run_search
from regard.explore.tokens import TokenizedText, tokenize_output
from regard.text import END

CANDIDATES = 50
"""Most probable tokens that are kept for each position."""
CACHED_RESULTS = 24
CACHED_BYTES = 1 << 28

Changes = tuple[Change, ...]
Result = TypeVar("Result")


class ResultCache:
    """Least recently used results, bounded in number and in bytes; the newest is kept however large it is."""

    def __init__(self, results: int = CACHED_RESULTS, size: int = CACHED_BYTES) -> None:
        """Keep at most this many results of at most this many bytes together."""
        self.results, self.size = results, size
        self._entries: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()

    def __len__(self) -> int:
        """Return the number of cached results."""
        return len(self._entries)

    def get(self, key: Hashable, make: Callable[[], Result], size: Callable[[Result], int] = lambda _: 0) -> Result:
        """Return the result of a key, and compute it if it is not cached; `size` gives its bytes."""
        if key in self._entries:
            self._entries.move_to_end(key)
            cached: Result = self._entries[key][0]
            return cached
        result = make()
        self.put(key, result, size(result))
        return result

    def put(self, key: Hashable, result: object, size: int = 0) -> None:
        """Cache a result, and drop the oldest ones if there are too many."""
        self._entries[key] = (result, size)
        while len(self._entries) > 1 and (len(self._entries) > self.results or self._total_size() > self.size):
            self._entries.popitem(last=False)

    def peek(self, key: Hashable) -> object | None:
        """Return the result of a key, or None if it is not cached."""
        if key not in self._entries:
            return None
        self._entries.move_to_end(key)
        cached: object = self._entries[key][0]
        return cached

    def _total_size(self) -> int:
        return sum(size for _, size in self._entries.values())


@dataclass(frozen=True, eq=False)
class Inspection:
    """All attention weights of a model for one input and one output.

    Row i of decoder self-attention and cross-attention belongs to the position that predicts output token i; the end
    symbol of a complete output is the last. The keys of decoder self-attention are the start symbol and all output
    tokens but the last.
    """

    source: TokenizedText
    target: TokenizedText
    decoded: DecoderPass
    weights: AttentionWeights


class InspectedModel:
    """A model under inspection: its attention mechanisms, its passes and its searches, each cached."""

    def __init__(self, name: str, predictor: Predictor, info: ModelInfo) -> None:
        """Inspect a predictor's model; nothing else may record or change it at the same time."""
        self.name, self.predictor, self.info = name, predictor, info
        self.adapter = make_adapter(predictor)
        self.layers, self.cache = attention_layers(self.adapter.model), ResultCache()

    @property
    def input_field(self) -> InputField:
        """The name of the model's input text in questions."""
        return self.adapter.input_field

    def describe(self) -> dict[str, Any]:
        """Return what the page needs to know about the model before the first question."""
        return describe(self.name, self.adapter, self.layers, self.info)

    def read_input(self, question: InputQuestion) -> TokenizedText:
        """Return the tokens of a question's input text."""
        return self.tokenize(question.input_text(self.adapter.input_field))

    def tokenize(self, text: str) -> TokenizedText:
        """Tokenize an input text, or raise a `ValueError` if it is empty or too long."""
        tokenized, most = self.adapter.tokenize(text), self.adapter.max_input
        if not tokenized.ids:
            raise ValueError("the input text is empty; type some words")
        if len(tokenized.ids) > most:
            raise ValueError(f"this text has {len(tokenized.ids)} tokens, but at most {most} are shown; shorten it")
        return tokenized

    def output_labels(self, ids: Sequence[int]) -> Ids:
        """Return the labels of an output: its ids, and the end symbol if the output is complete."""
        prefix = self.output_prefix(ids)
        return (*prefix, END) if self.adapter.always_ends or len(prefix) < len(ids) or not prefix else prefix

    def hypothesis_labels(self, hypothesis: Hypothesis) -> Ids:
        """Return the labels of a hypothesis, without an end symbol if it was truncated."""
        return self.output_labels(hypothesis.tokens if hypothesis.truncated else (*hypothesis.tokens, END))

    def output_prefix(self, ids: Sequence[int]) -> Ids:
        """Return the ids of an output without its end symbol, or raise a `ValueError` if the model cannot write it."""
        vocabulary, most = len(self.adapter.output_tokenizer), self.adapter.max_output
        given = tuple(ids[:-1] if ids and ids[-1] == END else ids)
        for token in given:
            if token >= vocabulary or token == END:
                raise ValueError(
                    f"{token} is not the id of an output token; ids are 0 to {vocabulary - 1}, and {END} is the end"
                )
        if len(given) > most:
            raise ValueError(f"an output of {len(given)} tokens is longer than the {most} that can be shown")
        return given

    def given_output(self, input_ids: Ids, target: str) -> Ids:
        """Return the labels of an output text that is given instead of searched for."""
        beginning = self.adapter.beginning(input_ids, ())
        return self.output_labels((*beginning, *self.adapter.output_tokenizer.encode(target)))

    def read_query(self, question: QueryQuestion) -> tuple[TokenizedText, Ids, Changes]:
        """Return input, labels and changes of a question about one query, or raise if there is no such query."""
        source, labels = self.read_input(question), self.output_labels(question.target_ids)
        changes = self.check_changes(question.changes, source)
        find_layer(self.layers, question.part, question.layer, question.head)
        queries = len(source.tokens) if question.part == "encoder" else len(labels)
        if question.query >= queries:
            raise ValueError(
                f"there is no query {question.query} in '{question.part}' attention; queries are 0 to {queries - 1}"
            )
        return source, labels, changes

    def check_changes(self, changes: Sequence[Change], source: TokenizedText) -> Changes:
        """Return changes that this model can undergo, or raise a `ValueError`."""
        check_changes(changes, self.layers, len(source.tokens))
        return tuple(changes)

    def encode(self, ids: Ids, changes: Changes, is_stale: IsStale) -> EncoderPass:
        """Run the encoder; changes of the decoder do not affect it."""
        own = tuple(change for change in changes if not isinstance(change, BlockTokens) and change.part == "encoder")

        def run() -> EncoderPass:
            return run_encoder(self.adapter, self.layers, ids, own, self.head_means(ids, own, is_stale), is_stale)

        return self.cache.get(("encode", ids, cache_key(own)), run, lambda result: _size(result.weights))

    def decode(self, ids: Ids, labels: Ids, changes: Changes, is_stale: IsStale) -> DecoderPass:
        """Run the decoder on a given output."""

        def run() -> DecoderPass:
            memory, means = self.encode(ids, changes, is_stale).memory, self.head_means(ids, changes, is_stale)
            return run_decoder(self.adapter, self.layers, memory, labels, changes, means, is_stale, CANDIDATES)

        return self.cache.get(("decode", ids, labels, cache_key(changes)), run, lambda result: _size(result.weights))

    def weights(
        self, ids: Ids, labels: Ids, changes: Changes, part: AttentionPart, is_stale: IsStale
    ) -> AttentionWeights:
        """Return the attention weights of the pass that a part belongs to."""
        if part == "encoder":
            return self.encode(ids, changes, is_stale).weights
        return self.decode(ids, labels, changes, is_stale).weights

    def inspect(self, text: str, target: str | Sequence[int]) -> Inspection:
        """Run a given input and output, and return all attention weights."""
        source = self.adapter.tokenize(text)
        labels = self.given_output(source.ids, target) if isinstance(target, str) else self.output_labels(target)
        encoded = run_encoder(self.adapter, self.layers, source.ids)
        decoded = run_decoder(self.adapter, self.layers, encoded.memory, labels)
        output = tokenize_output(labels, self.adapter.output_tokenizer)
        return Inspection(source, output, decoded, encoded.weights | decoded.weights)

    def request(
        self, ids: Ids, beam: int, nbest: int, prefix: Ids, changes: Changes, is_stale: IsStale
    ) -> SearchRequest:
        """Prepare a search: encode the input, and compute what its changes need."""
        means = self.head_means(ids, changes, is_stale)
        return SearchRequest(ids, self.encode(ids, changes, is_stale), beam, nbest, prefix, changes, means)

    def search(
        self, ids: Ids, beam: int, prefix: Ids, changes: Changes, is_stale: IsStale
    ) -> Generator[Ids, None, Hypothesis]:
        """Search for the best output; yield the final tokens after each step, or nothing if the result is cached."""
        key = ("search", ids, beam, prefix, cache_key(changes))
        cached = self.cache.peek(key)
        if isinstance(cached, Hypothesis):
            return cached
        request = self.request(ids, beam, 1, prefix, changes, is_stale)
        best = (yield from run_search(self.adapter, self.layers, request, is_stale))[0]
        self.cache.put(key, best)
        return best

    def best_output(self, ids: Ids, beam: int, is_stale: IsStale = lambda: False) -> Ids:
        """Return the labels of the best output without any change."""
        return self.hypothesis_labels(final_result(self.search(ids, beam, (), (), is_stale)))

    def head_means(self, ids: Ids, changes: Changes, is_stale: IsStale) -> HeadMeans:
        """Return the mean outputs of the heads that are replaced by their mean, measured without changes."""
        wanted = [
            (change.part, change.layer)
            for change in changes
            if isinstance(change, AblateHeads) and change.how == "mean"
        ]
        if not wanted:
            return {}

        def run() -> HeadMeans:
            encoder_only = all(part == "encoder" for part, _ in wanted)
            labels = (END,) if encoder_only else self.best_output(ids, 1, is_stale)
            return mean_head_outputs(self.adapter, self.layers, ids, labels, wanted)

        return self.cache.get(("means", ids, tuple(wanted)), run)


def inspect(predictor: Predictor, text: str, target: str | Sequence[int]) -> Inspection:
    """Return all attention weights of a predictor's model for a given input and output.

    Args:
        predictor: What `regard.load` returns.
        text: The source sentence of a translator, or the beginning of a language model's text.
        target: The translation or the continuation, as a text or as the ids of the whole output.

    Example:
        >>> inspection = inspect(regard.load("runs/phrasebook"), "I can go alone", "Ich kann allein gehen")
        >>> inspection.weights["cross", 1].shape  # heads, target tokens, source tokens
    """
    return InspectedModel("", predictor, ModelInfo()).inspect(text, target)


def cache_key(changes: Changes) -> tuple[str, ...]:
    """Return a hashable key for changes."""
    return tuple(change.model_dump_json() for change in changes)


def _size(weights: AttentionWeights) -> int:
    return sum(table.nbytes for table in weights.values())
