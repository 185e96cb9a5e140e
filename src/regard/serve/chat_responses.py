"""The JSON schemas of responses of chatbots, in this server's own form."""

from pydantic import BaseModel, Field

from regard.serve.responses import Fault


class AttendedTurnFields(BaseModel):
    """A turn of a history with its attention weights."""

    text: str
    weight: float = Field(description="Mean weight over the words of the reply.")
    weights: list[float] = Field(description="Weight in the step of each word of the reply.")
    words: list[tuple[int, int, float]] = Field(
        description="Of each word first and last character, exclusive, and mean weight."
    )
    word_weights: list[list[float]] = Field(description="For each word of the reply the weight of each word.")


class ReplyAttentionFields(BaseModel):
    """What a reply attends to."""

    turns: list[AttendedTurnFields] = Field(description="The turns that the model reads.")
    unread: int = Field(description="Number of turns before them, which it does not read.")
    reply: str
    words: list[tuple[int, int]] = Field(description="First and last character, exclusive, of the words of the reply.")


class ReplyFields(BaseModel):
    """A reply to a history."""

    text: str
    score: float
    logprob: float
    tokens: list[str]
    token_logprobs: list[float] = Field(description="Log-probability of each token, and of the end symbol.")
    nbest: list["ReplyFields"] | None = Field(None, description="The n-best list, this reply first.")
    attention: ReplyAttentionFields | None = Field(None, description="What it attends to, if requested.")


class ChatResponse(BaseModel):
    """Response of `/chat`: for each history its reply, or a fault."""

    model: str
    replies: list[ReplyFields | Fault]


class StreamReply(BaseModel):
    """An event of a stream: the reply to a history, which is complete."""

    line: int = Field(description="Number of the history in the request, from 0.")
    reply: ReplyFields
