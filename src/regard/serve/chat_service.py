"""A served chatbot: each history is a segment of one search, whose hypotheses are replies."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from regard.data.rows import Ids, Rows
from regard.decode import Hypothesis, SearchOptions, SentenceOptions
from regard.engines import SteppableModel
from regard.nn.ragged import NestedRagged, Ragged
from regard.predict import Chatbot, Reply, ReplyAttention, reply_attention
from regard.predict.search import SearchResult
from regard.predict.streaming import final_text
from regard.serve.metrics import Metrics
from regard.serve.queue import ChatJob, JobQueue, QueuedJob
from regard.serve.service import EncodedInput, LineInProgress, PartialOutput, SearchService, Segment


@dataclass(frozen=True, eq=False)
class EncodedHistory:
    """A history as token ids, with the options of the search for its reply."""

    rows: Rows
    """The encoded history, as the only row."""
    options: SentenceOptions

    @property
    def ids(self) -> Ids:
        """The token ids."""
        return self.rows.ids


@dataclass(frozen=True, eq=False)
class ServedReply:
    """A reply, and what a response says about it besides."""

    reply: Reply
    history_tokens: int
    """Tokens of the history that were read."""
    asks_attention: bool = False
    attention: ReplyAttention | None = None
    """What the reply attends to, if that was asked for and the reply has any text."""

    @property
    def tokens(self) -> tuple[str, ...]:
        """The tokens of the best reply."""
        return self.reply.tokens

    def to_json(self) -> dict[str, Any]:
        """Return reply and attention as a JSON object."""
        if not self.asks_attention:
            return self.reply.to_json()
        return {**self.reply.to_json(), "attention": None if self.attention is None else self.attention.to_json()}


class ChatService(SearchService):
    """A chatbot with its queue, its metrics, and the state that its workers share."""

    route = "chat"
    fault = "no reply to this history could be generated"

    def __init__(self, name: str, chatbot: Chatbot, queue: JobQueue, metrics: Metrics) -> None:
        """Serve a chatbot under a name."""
        super().__init__(name, queue, metrics, chatbot.device)
        self.chatbot = chatbot

    def engine_for(self, options: SearchOptions) -> SteppableModel:
        """Return the engine of the chatbot."""
        return self.chatbot.engine

    def prepare(self, job: QueuedJob) -> LineInProgress:
        """Tokenise a history."""
        assert isinstance(job, ChatJob), "handlers put nothing else into this queue"
        rows = self.chatbot.encode([job.history], job.options.turns)
        encoded = EncodedHistory(rows, self.chatbot.sentence_options(job.options))
        return LineInProgress(job, [encoded], self.chatbot.search_options(job.search))

    def inputs(self, segments: Sequence[EncodedInput]) -> Ragged | NestedRagged:
        """Return histories as the encoder reads them."""
        rows = [segment.rows for segment in segments if isinstance(segment, EncodedHistory)]
        return self.chatbot.inputs(Rows.concatenate(rows))

    def complete(self, segment: Segment, hypotheses: list[Hypothesis]) -> SearchResult:
        """Return the hypotheses as they are."""
        return hypotheses

    def assemble(self, line: LineInProgress) -> ServedReply:
        """Return the reply, with what it attends to if that is asked for."""
        job, hypotheses = line.job, line.results[0]
        assert isinstance(job, ChatJob)
        assert not isinstance(hypotheses, Exception), "hypotheses are kept as they are"
        reply, attention = self.chatbot.assemble(job.history, hypotheses, job.options), None
        if job.attention and reply.text.strip():
            with self.model_lock:
                attention = reply_attention(self.chatbot, job.history, reply.text, job.options.turns)
        return ServedReply(reply, len(line.segments[0].ids), job.attention, attention)

    def partial(self, line: LineInProgress, tokens: Sequence[int]) -> PartialOutput:
        """Return the tokens that were not sent to the client yet, and the text of all these final ones."""
        job, tokenizer = line.job, self.chatbot.reply_field.tokenizer
        assert isinstance(job, ChatJob)
        pieces = tuple(tokenizer.piece(token) for token in tokens[line.streamed :])
        return PartialOutput(pieces, final_text(tokenizer.decode(tokens), job.options.stop))
