"""Adapt predictors of different tasks to what the explorer needs: an input text, a decoder, a search.

A translator reads a source with its encoder and writes a target. A language model has no encoder: its input text, the
prompt, is the beginning of its output.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard import decode
from regard.explore.changes import DecodingPosition
from regard.explore.questions import InputField
from regard.explore.tokens import TokenizedText, tokenize_input
from regard.models.language_model import LanguageModel
from regard.models.memory import Memory
from regard.models.seq2seq import Seq2Seq
from regard.nn.embedding import Embedding
from regard.nn.ragged import Ragged
from regard.predict import AlignmentHead, TextGenerator, Translator
from regard.predict.engine import AttentionEngine, encoder_input
from regard.predict.search import search_options
from regard.text import START, Tokenizer

MAX_INPUT = 512
"""Input tokens that are accepted even if the model was trained on shorter texts."""

MAX_CONTINUATION = 40
"""Most tokens that are generated after a prompt."""

Ids = tuple[int, ...]
Task = Literal["translation", "language_model"]


class ModifiedStepper:
    """Step a model while changes act on it, and keep track of the position, which some changes depend on.

    Its state is the model's state and the number of tokens that were read.
    """

    def __init__(self, stepper: Any, decoding: DecodingPosition) -> None:
        """Wrap a model, or a stepper that records its attention."""
        self.stepper, self.decoding = stepper, decoding

    def step(self, tokens_R: Int[Tensor, " R"], state: tuple[Any, int]) -> tuple[Float[Tensor, "R V"], Any]:
        """Return the log-probabilities of the next token in each row, and the next state."""
        self.decoding.position = state[1]
        logprobs_RV, after = self.stepper.step(tokens_R, state[0])
        return logprobs_RV, (after, state[1] + 1)

    def select(self, state: tuple[Any, int], rows_R: Int[Tensor, " R"]) -> tuple[Any, int]:
        """Return the state of the given rows."""
        return self.stepper.select(state[0], rows_R), state[1]

    def attention(self, state: tuple[Any, int]) -> Float[Tensor, "R S"]:
        """Return the attention weights of each row, for a coverage penalty."""
        weights: Tensor = self.stepper.attention(state[0])
        return weights


class TaskAdapter(Protocol):
    """What the explorer needs from a predictor, whatever its task."""

    task: ClassVar[Task]
    input_field: ClassVar[InputField]
    always_ends: ClassVar[bool]
    """Whether every output ends with the end symbol; otherwise an output may be incomplete."""

    @property
    def model(self) -> nn.Module:
        """The model itself."""

    @property
    def embedding(self) -> Embedding:
        """The embedding of the input tokens."""

    @property
    def width(self) -> int:
        """The size of the decoder's states."""

    @property
    def input_tokenizer(self) -> Tokenizer:
        """The tokenizer of the input text."""

    @property
    def output_tokenizer(self) -> Tokenizer:
        """The tokenizer of what the decoder writes."""

    @property
    def max_input(self) -> int:
        """Most tokens of an input text."""

    @property
    def max_output(self) -> int:
        """Most tokens the decoder can write."""

    @property
    def beam(self) -> int:
        """The beam width that the predictor uses by default."""

    @property
    def alignment_head(self) -> AlignmentHead | None:
        """The attention that word alignments are read from, if any."""

    def tokenize(self, text: str) -> TokenizedText:
        """Tokenize an input text."""

    def encode(self, ids: Ids) -> Memory | None:
        """Run the encoder, if there is one, on ids without the end symbol."""

    def decoder_states(self, labels: Ids, memory: Memory | None) -> Float[Tensor, "N D"]:
        """Run the decoder with teacher forcing, and return the state that predicts each label."""

    def logits(self, states_ND: Float[Tensor, "N D"]) -> Float[Tensor, "N V"]:
        """Return the scores of every token of the vocabulary."""

    def beginning(self, input_ids: Ids, prefix: Ids) -> Ids:
        """Return the ids that the output must begin with."""

    def prompt_length(self, beginning: Ids) -> int:
        """Return how many tokens of the beginning are read before the search starts."""

    def search_options(self, beam: int, nbest: int = 1, beginning: Ids = ()) -> decode.SearchOptions:
        """Return the options of a search with another beam width."""

    def sentence_options(self, input_ids: Ids, beginning: Ids) -> decode.SentenceOptions:
        """Return the options of a search that depend on the sentence."""

    def start(
        self,
        input_ids: Ids,
        beginning: Ids,
        memory: Memory | None,
        options: decode.SearchOptions,
        changed: DecodingPosition | None,
    ) -> tuple[Any, Any]:
        """Return the stepper of a search and its first state; `changed` is given if changes act on the model."""


@dataclass(frozen=True, eq=False)
class TranslatorAdapter:
    """Explore a translator of any family."""

    translator: Translator
    task: ClassVar[Task] = "translation"
    input_field: ClassVar[InputField] = "source"
    always_ends: ClassVar[bool] = True

    @property
    def model(self) -> Seq2Seq:
        """The encoder-decoder."""
        return self.translator.model

    @property
    def embedding(self) -> Embedding:
        """The embedding of the source tokens."""
        embedding = self.model.get_submodule("encoder.embedding")
        assert isinstance(embedding, Embedding), "a translator reads text"
        return embedding

    @property
    def width(self) -> int:
        """The size of the decoder's states."""
        return self.model.output.weight.shape[1]

    @property
    def input_tokenizer(self) -> Tokenizer:
        """The source tokenizer."""
        return self.translator.tokenizers["source"]

    @property
    def output_tokenizer(self) -> Tokenizer:
        """The target tokenizer."""
        return self.translator.tokenizers["target"]

    @property
    def max_input(self) -> int:
        """Most source tokens."""
        return min(self.translator.max_source, max(self.translator.longest, MAX_INPUT))

    @property
    def max_output(self) -> int:
        """Most target tokens."""
        return min(self.translator.max_target, 2 * self.max_input)

    @property
    def beam(self) -> int:
        """The beam width of the recipe."""
        return self.translator.options.beam

    @property
    def alignment_head(self) -> AlignmentHead | None:
        """The cross-attention that the translator reads word alignments from."""
        return self.translator.alignment_head

    def tokenize(self, text: str) -> TokenizedText:
        """Tokenize a source sentence; the end symbol is its last token."""
        return tokenize_input(text, self.input_tokenizer)

    def encode(self, ids: Ids) -> Memory:
        """Run the encoder."""
        return self.model.encode(encoder_input([ids], self.translator.device))

    def decoder_states(self, labels: Ids, memory: Memory | None) -> Float[Tensor, "N D"]:
        """Run the decoder on a target, next to the encoder's states."""
        assert memory is not None, "a translator has an encoder"
        return self.model.decoder(self._ragged((START, *labels[:-1])), memory)

    def logits(self, states_ND: Float[Tensor, "N D"]) -> Float[Tensor, "N V"]:
        """Return the scores of every target token."""
        scores_NV: Tensor = self.model.output(states_ND)
        return scores_NV

    def beginning(self, input_ids: Ids, prefix: Ids) -> Ids:
        """Return the prefix: a translation may begin with anything."""
        return prefix

    def prompt_length(self, beginning: Ids) -> int:
        """Return 0: the search itself writes the prefix of a translation."""
        return 0

    def search_options(self, beam: int, nbest: int = 1, beginning: Ids = ()) -> decode.SearchOptions:
        """Return the translator's own options with another beam width."""
        options = self.translator.options.override(beam=beam, nbest=nbest, groups=1, sample=False, mbr=0)
        return self.translator.search_options(options)

    def sentence_options(self, input_ids: Ids, beginning: Ids) -> decode.SentenceOptions:
        """Return the source length, on which length limits depend, and the prefix."""
        return decode.SentenceOptions(source_length=len(input_ids), prefix=beginning)

    def start(
        self,
        input_ids: Ids,
        beginning: Ids,
        memory: Memory | None,
        options: decode.SearchOptions,
        changed: DecodingPosition | None,
    ) -> tuple[Any, Any]:
        """Start the translator's engine, or the model itself if changes or a coverage penalty need its taps."""
        model, engine = self.model, self.translator.engine
        if changed is None and not options.coverage_penalty:
            # A model in training must not be left with inference tensors.
            with torch.inference_mode(not isinstance(engine, nn.Module)):
                return engine, engine.start(encoder_input([input_ids], self.translator.device), options.rows)
        assert memory is not None, "a translator has an encoder"
        # The encoder's states are known already, so the source is not encoded again.
        state, decoding = model.decoder.start(options.rows, memory), changed or DecodingPosition()
        if not options.coverage_penalty:
            return ModifiedStepper(model, decoding), (state, 0)
        if self.alignment_head is None:
            raise ValueError("a coverage penalty needs attention to the source, which this model does not have")
        return ModifiedStepper(AttentionEngine(model, self.alignment_head), decoding), ((state, None), 0)

    def _ragged(self, ids: Ids) -> Ragged:
        return Ragged.from_list([list(ids)]).to(self.translator.device)


@dataclass(frozen=True, eq=False)
class LanguageModelAdapter:
    """Explore a decoder-only language model; its input text is the prompt, which its output begins with."""

    generator: TextGenerator
    task: ClassVar[Task] = "language_model"
    input_field: ClassVar[InputField] = "text"
    always_ends: ClassVar[bool] = False

    @property
    def model(self) -> LanguageModel:
        """The language model."""
        return self.generator.model

    @property
    def embedding(self) -> Embedding:
        """The embedding of the tokens."""
        return self.model.decoder.embedding

    @property
    def width(self) -> int:
        """The size of the decoder's states."""
        return self.model.output.weight.shape[1]

    @property
    def input_tokenizer(self) -> Tokenizer:
        """The tokenizer of the text."""
        return self.generator.tokenizer

    @property
    def output_tokenizer(self) -> Tokenizer:
        """The tokenizer of the text."""
        return self.generator.tokenizer

    @property
    def max_input(self) -> int:
        """Most tokens of the prompt; at least one more can follow."""
        return min(MAX_INPUT, self.max_output - 1)

    @property
    def max_output(self) -> int:
        """Most tokens of prompt and continuation: with the start symbol, the context that the model was trained on."""
        return min(2 * MAX_INPUT, self.generator.window - 1)

    @property
    def beam(self) -> int:
        """The beam width of the generator's options."""
        return self.generator.options.beam

    @property
    def alignment_head(self) -> AlignmentHead | None:
        """None: there is no source to align to."""
        return None

    def tokenize(self, text: str) -> TokenizedText:
        """Tokenize a prompt; it has no end symbol."""
        return tokenize_input(text, self.input_tokenizer, ended=False)

    def encode(self, ids: Ids) -> None:
        """Return None: there is no encoder."""

    def decoder_states(self, labels: Ids, memory: Memory | None) -> Float[Tensor, "N D"]:
        """Run the decoder on the start symbol and a text."""
        return self.model.states(self._ragged((START, *labels[:-1])))

    def logits(self, states_ND: Float[Tensor, "N D"]) -> Float[Tensor, "N V"]:
        """Return the scores of every token."""
        scores_NV: Tensor = self.model.output(states_ND)
        return scores_NV

    def beginning(self, input_ids: Ids, prefix: Ids) -> Ids:
        """Return the prefix if one is forced, which may change the prompt, or else the prompt."""
        return prefix or input_ids

    def prompt_length(self, beginning: Ids) -> int:
        """Return all of it: the prompt is read in one pass before the search."""
        return len(beginning)

    def search_options(self, beam: int, nbest: int = 1, beginning: Ids = ()) -> decode.SearchOptions:
        """Return the options of a beam search for the continuation of a beginning."""
        options = self.generator.options.override(beam=beam, nbest=nbest, groups=1)
        limits = decode.LengthLimits(0, max(0, min(MAX_CONTINUATION, self.max_output - len(beginning))))
        return search_options(options, limits, samples=0, free_cut=True)

    def sentence_options(self, input_ids: Ids, beginning: Ids) -> decode.SentenceOptions:
        """Return the first input of the search: the last token of the beginning, which was not read before."""
        return decode.SentenceOptions(begin=(START, *beginning)[-1])

    def start(
        self,
        input_ids: Ids,
        beginning: Ids,
        memory: Memory | None,
        options: decode.SearchOptions,
        changed: DecodingPosition | None,
    ) -> tuple[Any, Any]:
        """Read the beginning but its last token in one pass, with the engine, or with the model if it is changed."""
        prompt = self._ragged((START, *beginning)[:-1])
        if changed is None:
            engine = self.generator.engine
            with torch.inference_mode(not isinstance(engine, nn.Module)):
                return engine, engine.start(prompt, options.rows)
        state = self.model.start(prompt, options.rows)
        return ModifiedStepper(self.model, changed), (state, len(beginning))

    def _ragged(self, ids: Ids) -> Ragged:
        return Ragged.from_list([list(ids)]).to(self.model.output.weight.device)


Predictor = Translator | TextGenerator
"""A predictor that decodes an output."""


def make_adapter(predictor: Predictor) -> TaskAdapter:
    """Return the adapter for a predictor, or raise a `ValueError` if the explorer does not support its task."""
    match predictor:
        case Translator():
            return TranslatorAdapter(predictor)
        case TextGenerator():
            return LanguageModelAdapter(predictor)
    raise ValueError(
        f"the explorer shows translators, text generators, classifiers and chatbots that write replies, but this is a "
        f"{type(predictor).__name__}; open a run with task = 'translation', 'classification' or 'chat', or one with "
        "task = 'language_model' that predicts the next token"
    )
