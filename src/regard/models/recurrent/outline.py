"""What the recurrent families may be told, in plain values, and the models put together from them."""

from dataclasses import dataclass

from torch import nn

from regard.models.recurrent.bahdanau import AttentiveCell, BahdanauDecoder, ReadOut
from regard.models.recurrent.encoder import RecurrentEncoder
from regard.models.recurrent.luong import AttentionalTop, LuongDecoder
from regard.models.recurrent.sutskever import SutskeverDecoder
from regard.models.seq2seq import Seq2Seq
from regard.models.tying import tie
from regard.nn.attention.alignment import Alignment, Focus
from regard.nn.attention.scores import Additive, make_score
from regard.nn.embedding import Embedding, Output
from regard.nn.recurrent import Recurrence


@dataclass(frozen=True)
class Sutskever:
    """Sequence to sequence through one vector (Sutskever et al. 2014) on paper; the defaults are the paper's (§3.4)."""

    width: int = 1000
    """Width of the states."""
    embedding: int | None = None
    """Width of the tokens' vectors; that of the states unless told."""
    layers: int = 4
    """Layers of encoder and decoder."""
    cell: str = "lstm"
    """lstm or gru."""
    backwards: bool = True
    """Read the source from its end (§3.3)."""
    tied: str = "none"
    """Which of source, target and output share one matrix."""
    dropout: float = 0.0
    """Dropout on embeddings, between layers, and before the output (Zaremba et al. 2014)."""

    def seq2seq(self, source_vocabulary: int, target_vocabulary: int) -> Seq2Seq:
        """An encoder-decoder for these vocabularies."""
        vectors = self.embedding or self.width
        source, target = (
            Embedding(each, vectors, dropout=self.dropout) for each in (source_vocabulary, target_vocabulary)
        )
        shared = tie(self.tied, source, target)
        read, written = (
            Recurrence(self.cell, vectors, self.width, self.layers, dropout=self.dropout) for _ in range(2)
        )
        return Seq2Seq(
            RecurrentEncoder(source, read, self.backwards),
            SutskeverDecoder(target, written, self.dropout),
            Output(self.width, target_vocabulary, shared),
        )


@dataclass(frozen=True)
class Bahdanau:
    """Jointly learning to align and translate (Bahdanau et al. 2015) on paper; the defaults are the paper's (§A.2)."""

    width: int = 1000
    """Width of the states, n."""
    embedding: int | None = 620
    """Width of the tokens' vectors, m; that of the states unless told."""
    cell: str = "gru"
    """lstm or gru."""
    readout: str = "maxout"
    """maxout or linear."""
    readout_width: int | None = 500
    """Width of what is scored against the vocabulary, l; that of the tokens' vectors unless told."""
    tied: str = "none"
    """Which of source, target and output share one matrix."""
    dropout: float = 0.0
    """Dropout on embeddings and before the output."""

    def seq2seq(self, source_vocabulary: int, target_vocabulary: int) -> Seq2Seq:
        """An encoder-decoder for these vocabularies."""
        if self.readout not in ("maxout", "linear"):
            raise ValueError(f"there is no read-out '{self.readout}'; it may be maxout or linear")
        vectors = self.embedding or self.width
        read = self.readout_width or vectors
        source, target = (
            Embedding(each, vectors, dropout=self.dropout) for each in (source_vocabulary, target_vocabulary)
        )
        shared = tie(self.tied, source, target)
        decoder = BahdanauDecoder(
            target,
            AttentiveCell(
                Alignment(Additive(self.width, 2 * self.width, self.width)),
                Recurrence(self.cell, vectors + 2 * self.width, self.width),
            ),
            nn.Linear(self.width, self.width),
            ReadOut(vectors + 3 * self.width, read, self.readout == "maxout", self.dropout),
        )
        encoder = RecurrentEncoder(source, Recurrence(self.cell, vectors, self.width, both=True))
        return Seq2Seq(encoder, decoder, Output(read, target_vocabulary, shared))


@dataclass(frozen=True)
class Luong:
    """Attention-based translation (Luong et al. 2015) on paper; the defaults are the paper's (§4.1)."""

    width: int = 1000
    """Width of the states."""
    embedding: int | None = None
    """Width of the tokens' vectors; that of the states unless told."""
    layers: int = 4
    """Layers of encoder and decoder."""
    cell: str = "lstm"
    """lstm or gru."""
    score: str = "bilinear"
    """How a state of the source answers one of the target: dot, scaled, bilinear («general»), additive («concat»)."""
    feeding: bool = True
    """Set the last attentional vector beside the next token's vector (§3.3)."""
    reach: int | None = None
    """Look no further than this from the place a state points to, the paper's D (§3.2); None sees the whole source."""
    backwards: bool = True
    """Read the source from its end (§4.1)."""
    tied: str = "none"
    """Which of source, target and output share one matrix."""
    dropout: float = 0.2
    """Dropout on embeddings, between layers, and on the attentional vector."""

    def seq2seq(self, source_vocabulary: int, target_vocabulary: int) -> Seq2Seq:
        """An encoder-decoder for these vocabularies."""
        vectors = self.embedding or self.width
        source, target = (
            Embedding(each, vectors, dropout=self.dropout) for each in (source_vocabulary, target_vocabulary)
        )
        shared = tie(self.tied, source, target)
        focus = Focus(self.width, self.reach) if self.reach is not None else None
        cross = Alignment(make_score(self.score, self.width), focus)
        given = vectors + self.width if self.feeding else vectors
        read, written = (
            Recurrence(self.cell, inputs, self.width, self.layers, dropout=self.dropout) for inputs in (vectors, given)
        )
        top = AttentionalTop(cross, self.width, self.width, self.dropout)
        return Seq2Seq(
            RecurrentEncoder(source, read, self.backwards),
            LuongDecoder(target, written, top, self.feeding),
            Output(self.width, target_vocabulary, shared),
        )
