"""Replies to the turns of a dialogue by a trained encoder-decoder."""

import os
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, overload

import numpy as np
import torch
from numpy.typing import NDArray

from regard.bundle import Bundle
from regard.data.fields import Fields, TextField, TurnsField, split_parts
from regard.data.fields.lists import join_list
from regard.data.fields.nested import keep_last_parts
from regard.data.rows import Rows
from regard.decode import Hypothesis, LengthLimits, SentenceOptions
from regard.engines import SteppableModel, parallel
from regard.models.seq2seq import Seq2Seq
from regard.nn.ragged import NestedRagged, Ragged
from regard.options import ChatOptions, OptionError
from regard.predict.engine import make_engine, max_tokens, run_search
from regard.predict.search import batches_by_length, search_options
from regard.predict.streaming import Emit, OutputMonitor, stream_pieces, text_before_stop
from regard.predict.teacher_forcing import SCORED_ROWS, evaluating
from regard.predict.text_generator import TextPerplexity
from regard.predict.translator import batch_budget
from regard.recipe import HIERARCHICAL_FAMILIES, Decode, Model
from regard.text import END, START

History = Sequence[str]
"""The turns of a dialogue so far; the last one is to be replied to."""


@dataclass(frozen=True)
class Reply:
    """A reply: the best one, and in `nbest` all of them."""

    history: tuple[str, ...]
    """The turns that it replies to, as they were given."""
    text: str
    score: float
    """The score by which replies are ranked; with reranking, that of mutual information."""
    logprob: float
    """Log-probability given the history, in nats."""
    tokens: tuple[str, ...]
    """The subwords of the reply."""
    token_logprobs: tuple[float, ...]
    """Log-probability of each token, and of the end symbol if the model has generated it."""
    nbest: tuple["Reply", ...] = field(default=(), repr=False)

    def __str__(self) -> str:
        """Return the text."""
        return self.text

    def to_json(self) -> dict[str, Any]:
        """Return everything but the history as a JSON object."""
        table: dict[str, Any] = {
            "text": self.text,
            "score": self.score,
            "logprob": self.logprob,
            "tokens": list(self.tokens),
            "token_logprobs": list(self.token_logprobs),
        }
        if len(self.nbest) > 1:
            table["nbest"] = [reply.to_json() for reply in self.nbest]
        return table


def is_hierarchical(settings: Model) -> bool:
    """Return whether the models of a family read turns, and not one sequence with all tokens of a history."""
    return settings.kind in HIERARCHICAL_FAMILIES


def history_inputs(rows: Rows, hierarchical: bool, longest: int) -> tuple[Ragged, Ragged | None]:
    """Return encoded histories as a model reads them: their tokens and, for a hierarchical one, the sizes of turns.

    Args:
        rows: Encoded values of a field of turns.
        hierarchical: Whether the model reads turns. Otherwise `END` separates them.
        longest: Maximum number of tokens of a history; the beginning of a longer one is cut off.
    """
    kept = keep_last_parts(rows, longest)
    if not hierarchical:
        return kept.to_ragged(), None
    tokens, sizes = split_parts(kept)
    return tokens.to_ragged(), sizes.to_ragged()


class Chatbot:
    """A trained encoder-decoder that replies to the turns of a dialogue.

    >>> chatbot = regard.load("runs/smalltalk")
    >>> chatbot(["My name is Anna.", "Nice to meet you, Anna.", "What is my name?"]).text
    """

    def __init__(
        self,
        model: Seq2Seq,
        fields: Fields,
        decoding: Decode | None = None,
        *,
        longest: int = 256,
        turns: int = 6,
        hierarchical: bool = False,
        engine: SteppableModel | None = None,
    ) -> None:
        """Reply with a model as it is now, or with an engine made from it.

        Args:
            model: The encoder-decoder.
            fields: The fields `history` and `reply` that it was trained with.
            decoding: The recipe's `[decode]` section, for the defaults of the options.
            longest: Tokens of a history that the model was trained on; the beginnings of longer ones are not read.
            turns: Turns of a history that the model was trained on.
            hierarchical: Whether the model reads turns, and not one sequence.
            engine: A fast engine for the model.
        """
        history, reply = fields["history"], fields["reply"]
        assert isinstance(history, TurnsField)
        assert isinstance(reply, TextField)
        self.model, self.history_field, self.reply_field = model, history, reply
        self.fields, self.turns, self.hierarchical = fields, turns, hierarchical
        self.longest = min(longest, max_tokens(model.encoder.max_positions))
        self.max_reply = max_tokens(model.decoder.max_positions, reserved=1)
        self.engine: SteppableModel = engine or model
        self.reverse: Chatbot | None = None
        """A chatbot that predicts the last turn of a history from a reply, which replies are reranked with."""
        # Engines are made for several threads. The model itself is not: it may be trained, or its taps recorded.
        self.workers = max(2, os.cpu_count() or 1) if engine is not None and self.device.type == "cpu" else 1
        settings = decoding or Decode()
        self.options = ChatOptions(
            beam=settings.beam,
            length_penalty=settings.length_penalty,
            normalise=settings.normalise,
            no_repeat=settings.no_repeat,
        )

    @classmethod
    def from_bundle(cls, bundle: Bundle, precision: str = "auto") -> "Chatbot":
        """Reply with a trained run, on the device it was loaded to."""
        model, recipe = bundle.model, bundle.recipe
        assert isinstance(model, Seq2Seq)
        return cls(
            model,
            bundle.fields,
            recipe.decode,
            longest=recipe.data.longest,
            turns=recipe.data.turns,
            hierarchical=is_hierarchical(recipe.model),
            engine=make_engine(model, model.output.weight.device, precision),
        )

    def reranked_by(self, reverse: "Chatbot") -> "Chatbot":
        """Return a chatbot that reranks its replies by mutual information (Li et al. 2016, §4.2, MMI-bidi).

        Args:
            reverse: A chatbot that was trained with `data.reverse = true`.
        """
        reranked = copy(self)
        reranked.reverse = reverse
        return reranked

    @property
    def device(self) -> torch.device:
        """The device of the model."""
        return self.model.output.weight.device

    @overload
    def __call__(self, history: str | History, **options: Any) -> Reply: ...
    @overload
    def __call__(self, history: Sequence[History], **options: Any) -> list[Reply]: ...
    def __call__(self, history: str | History | Sequence[History], **options: Any) -> Reply | list[Reply]:
        """Reply to a history, or to each history of a list, with options such as `beam=4`.

        Args:
            history: The turns so far, the last one to be replied to; a single string is the only turn. A list of such
                histories gives a list of replies.
            **options: See `ChatOptions`.

        Raises:
            ValueError: A history has no text.
        """
        if isinstance(history, str):
            return self.reply([[history]], **options)[0]
        if history and not isinstance(history[0], str):
            return self.reply([turns for turns in history if not isinstance(turns, str)], **options)
        return self.reply([[turn for turn in history if isinstance(turn, str)]], **options)[0]

    def reply(self, histories: Sequence[History], **options: Any) -> list[Reply]:
        """Reply to each of several histories, with options such as `beam=4`."""
        chosen = self.options.override(**options)
        rows = self.encode(histories, chosen.turns)
        searched = chosen if self.reverse is None else chosen.with_candidates()
        search = partial(self._search, rows=rows, options=searched)
        count = searched.nbest if searched.sample else searched.beam
        batches = list(batches_by_length(self._lengths(rows), count, batch_budget(self.device)))
        results: list[Reply | None] = [None] * len(histories)
        with evaluating(self.model):
            for indices, found in zip(batches, parallel(search, batches, self.workers), strict=True):
                for index, hypotheses in zip(indices, found, strict=True):
                    results[index] = self._assemble(histories[index], hypotheses, chosen)
        replies = [reply for reply in results if reply is not None]
        return replies if self.reverse is None else [self._rerank(reply, self.reverse, chosen) for reply in replies]

    def stream(self, history: str | History, **options: Any) -> Iterator[str]:
        """Reply to a history and yield pieces of the reply as they are generated; they add up to the whole reply.

        Raises:
            ValueError: If several hypotheses are asked for, of which none is final before the end.
        """
        chosen = self.options.override(**options)
        if self.reverse is not None:
            raise ValueError("a reply that is chosen among several cannot be streamed; leave out the reranking")
        if chosen.nbest > 1 or (not chosen.sample and chosen.beam > 1):
            raise OptionError("only a single hypothesis can be streamed; use sampling or {beam:1}, and {nbest:1}")
        turns = [history] if isinstance(history, str) else list(history)
        rows = self.encode([turns], chosen.turns)

        def generate(emit: Emit, stopped: Any) -> None:
            monitor = OutputMonitor(self.reply_field.tokenizer, chosen.stop, emit, stopped)
            with evaluating(self.model):
                (hypotheses,) = self._search([0], rows, chosen, monitor)
            monitor.emit_up_to(self._assemble(turns, hypotheses, chosen).text)

        yield from stream_pieces(generate, name="regard-chat")

    def perplexity(self, histories: Sequence[History], replies: Sequence[str]) -> TextPerplexity:
        """Return the perplexity of replies given their histories, per token, word and byte of the replies."""
        total = TextPerplexity()
        for text, logprobs in zip(replies, self.token_logprobs(histories, replies), strict=True):
            nats = -float(logprobs.sum())
            total += TextPerplexity(nats, len(logprobs), len(text.split()), len(text.encode()), len(text))
        return total

    def token_logprobs(self, histories: Sequence[History], replies: Sequence[str]) -> list[NDArray[np.float64]]:
        """Return the log-probability of each token of given replies, and of the end symbol."""
        if not histories:
            return []
        rows, targets = self.encode(histories), self.reply_field.encode(replies)
        results: dict[int, NDArray[np.float64]] = {}
        lengths = np.maximum(self._lengths(rows), targets.lengths + 1).tolist()
        for indices in batches_by_length(lengths, 1, batch_budget(self.device)):
            picked = targets.take(np.array(indices))
            target = picked.prepend(START).to_ragged().to(self.device)
            labels_N = torch.from_numpy(picked.append(END).ids.astype(np.int64)).to(self.device)
            with evaluating(self.model):
                states_ND = self.model.states(self.inputs(rows.take(np.array(indices))), target)
                scored = [
                    self.model.output(x_ND).log_softmax(-1).gather(-1, label_N[:, None])[:, 0]
                    for x_ND, label_N in zip(
                        torch.split(states_ND, SCORED_ROWS), torch.split(labels_N, SCORED_ROWS), strict=True
                    )
                ]
            by_reply = target.with_values(torch.cat(scored)).to("cpu").to_list()
            results |= zip(indices, (logprobs.double().numpy() for logprobs in by_reply), strict=True)
        return [results[index] for index in range(len(histories))]

    def encode(self, histories: Sequence[History], turns: int | None = None) -> Rows:
        """Return the token ids of the last turns of each history, which the model reads.

        Args:
            histories: The histories. Empty turns are left out; white space in a turn becomes a space.
            turns: Maximum number of turns. Default: as in training.

        Raises:
            ValueError: A history has no text.
        """
        values = []
        for number, history in enumerate(histories, start=1):
            texts = [text for turn in history if (text := " ".join(turn.split()))]
            if not texts:
                which = f"history {number}" if len(histories) > 1 else "the history"
                raise ValueError(f"{which} has no text to reply to; give at least one turn that is not empty")
            values.append(join_list(texts[-(turns or self.turns) :]))
        return keep_last_parts(self.history_field.encode(values), self.longest)

    def inputs(self, rows: Rows) -> Ragged | NestedRagged:
        """Return encoded histories as the model reads them."""
        tokens, sizes = history_inputs(rows, self.hierarchical, self.longest)
        return (tokens if sizes is None else NestedRagged(tokens, sizes)).to(self.device)

    def _lengths(self, rows: Rows) -> list[int]:
        lengths: list[int] = np.maximum(rows.lengths, 1).tolist()
        return lengths

    def _search(
        self, indices: Sequence[int], rows: Rows, options: ChatOptions, monitor: OutputMonitor | None = None
    ) -> list[list[Hypothesis]]:
        """Search for replies to some of the encoded histories in one batch."""
        if options.min_tokens > self.max_reply:
            raise OptionError(
                "{min_tokens} is {0}, but this model has positions for {1} tokens; use a smaller minimum",
                options.min_tokens,
                self.max_reply,
            )
        limits = LengthLimits(options.min_tokens, min(options.max_tokens, self.max_reply))
        search = search_options(options, limits, samples=options.nbest if options.sample else 0)
        inputs = self.inputs(rows.take(np.array(indices)))
        stops = OutputMonitor(self.reply_field.tokenizer, options.stop, None, None) if monitor is None else monitor
        sentence = SentenceOptions(seed=options.seed, is_complete=stops.is_complete if stops.is_needed else None)
        return run_search(self.engine, inputs, [sentence] * len(indices), search)

    def _assemble(self, history: History, hypotheses: Sequence[Hypothesis], options: ChatOptions) -> Reply:
        """Return the reply that the hypotheses of a search are, best first."""
        tokenizer, replies = self.reply_field.tokenizer, []
        for hypothesis in hypotheses:
            text = text_before_stop(tokenizer.decode(hypothesis.tokens), options.stop)
            pieces, logprobs = tuple(map(tokenizer.piece, hypothesis.tokens)), hypothesis.token_logprobs
            replies.append(Reply(tuple(history), text, hypothesis.score, sum(logprobs), pieces, logprobs))
        return replace(replies[0], nbest=tuple(replies))

    def _rerank(self, reply: Reply, reverse: "Chatbot", options: ChatOptions) -> Reply:
        """Return the replies of an n-best list in the order of (1 - λ) log p(reply | S) + λ log p(S | reply)."""
        last = next(text for turn in reversed(reply.history) if (text := " ".join(turn.split())))
        candidates = list({candidate.text: candidate for candidate in reply.nbest if candidate.text.strip()}.values())
        backwards = reverse.token_logprobs([[candidate.text] for candidate in candidates], [last] * len(candidates))
        weight = options.rerank_weight
        scored = [
            replace(candidate, score=(1 - weight) * candidate.logprob + weight * float(logprobs.sum()))
            for candidate, logprobs in zip(candidates, backwards, strict=True)
        ]
        ranked = sorted(scored, key=lambda candidate: -candidate.score)[: options.nbest] or [reply]
        return replace(ranked[0], nbest=tuple(ranked))
