"""Text generation and perplexity by a trained language model."""

import math
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass, field, replace
from operator import add
from typing import Any, overload

import torch

import regard
from regard.bundle import Bundle
from regard.decode import Hypothesis, LengthLimits, SentenceOptions
from regard.engines import SteppableModel
from regard.models.language_model import LanguageModel
from regard.nn.ragged import Ragged
from regard.options import GenerationOptions, OptionError
from regard.options.decoding import LONGEST_OUTPUT
from regard.predict.engine import make_engine, max_tokens, run_search
from regard.predict.search import search_options
from regard.predict.streaming import OutputMonitor, stream_pieces, text_before_stop
from regard.recipe import Decode
from regard.text import END, START, Tokenizer

SCORED_TOKENS = 4096  # tokens that are scored in one forward pass


@dataclass(frozen=True)
class GeneratedText:
    """A continuation of a prompt: the best one, and in `nbest` all of them."""

    prompt: str
    text: str
    """The continuation, without the prompt."""
    logprob: float
    """Log-probability given the prompt, in nats."""
    tokens: tuple[str, ...]
    """The subwords of the continuation."""
    token_logprobs: tuple[float, ...]
    """Log-probability of each token, and of the end symbol if the model has generated it."""
    nbest: tuple["GeneratedText", ...] = field(default=(), repr=False)

    def __str__(self) -> str:
        """Return prompt and continuation."""
        return self.prompt + self.text

    def to_json(self) -> dict[str, Any]:
        """Return everything as a JSON object."""
        table: dict[str, Any] = {
            "prompt": self.prompt,
            "text": self.text,
            "logprob": self.logprob,
            "tokens": list(self.tokens),
            "token_logprobs": list(self.token_logprobs),
        }
        if len(self.nbest) > 1:
            table["nbest"] = [continuation.to_json() for continuation in self.nbest]
        return table


@dataclass(frozen=True)
class TextPerplexity:
    """Negative log-likelihood of texts, and the counts to divide it by."""

    nats: float = 0.0
    """Negative log-likelihood in nats, the end of each document included."""
    tokens: int = 0
    """Predicted tokens, the end symbol of each document included."""
    words: int = 0
    bytes: int = 0
    characters: int = 0

    def __add__(self, other: "TextPerplexity") -> "TextPerplexity":
        """Combine the figures of two sets of texts."""
        return TextPerplexity(*map(add, astuple(self), astuple(other)))

    def to_json(self) -> dict[str, float]:
        """Return perplexity per token and per word, nats per token and per character, and bits per byte."""
        tokens, words, size = max(self.tokens, 1), max(self.words, 1), max(self.bytes, 1)
        return {
            "perplexity": math.exp(min(self.nats / tokens, 700.0)),
            "word_perplexity": math.exp(min(self.nats / words, 700.0)),
            "byte_perplexity": math.exp(min(self.nats / size, 700.0)),
            "nats_per_token": self.nats / tokens,
            "nats_per_character": self.nats / max(self.characters, 1),
            "bits_per_byte": self.nats / size / math.log(2),
            "tokens": self.tokens,
            "words": self.words,
            "bytes": self.bytes,
            "characters": self.characters,
        }


class TextGenerator:
    """A trained language model with its tokenizer.

    >>> generator = regard.load("runs/shakespeare")
    >>> print(generator("ROMEO:", max_tokens=100, temperature=0.7))
    """

    def __init__(
        self,
        model: LanguageModel,
        tokenizer: Tokenizer,
        decoding: Decode | None = None,
        *,
        window: int | None = None,
        engine: SteppableModel | None = None,
    ) -> None:
        """Generate with a model as it is now, or with an engine made from it.

        Args:
            model: The language model.
            tokenizer: The tokenizer it was trained with.
            decoding: The recipe's `[decode]` section, for the defaults of beam search.
            window: Tokens of context that the model was trained on; a longer context is cut at its beginning.
            engine: A fast engine for the model.
        """
        self.model, self.tokenizer = model, tokenizer
        self.engine: SteppableModel = engine or model
        self.window = min(window or LONGEST_OUTPUT, max_tokens(model.decoder.max_positions))
        settings = decoding or Decode()
        self.options = GenerationOptions(length_penalty=settings.length_penalty, no_repeat=settings.no_repeat)

    @classmethod
    def from_bundle(cls, bundle: Bundle, precision: str = "auto") -> "TextGenerator":
        """Generate with a trained run, on the device it was loaded to."""
        model, data = bundle.model, bundle.recipe.data
        return cls(
            model,
            bundle.tokenizers["text"],
            bundle.recipe.decode,
            window=data.block or data.longest,
            engine=make_engine(model, model.output.weight.device, precision),
        )

    @property
    def device(self) -> torch.device:
        """The device of the model."""
        return self.model.output.weight.device

    @overload
    def __call__(self, prompts: str = "", **options: Any) -> GeneratedText: ...
    @overload
    def __call__(self, prompts: Sequence[str], **options: Any) -> list[GeneratedText]: ...
    def __call__(self, prompts: str | Sequence[str] = "", **options: Any) -> GeneratedText | list[GeneratedText]:
        """Continue a prompt or a list of prompts, with options such as `temperature=0.7`: see `GenerationOptions`."""
        chosen = self.options.override(**options)
        if isinstance(prompts, str):
            return self._generate(prompts, chosen)
        return [self._generate(prompt, chosen) for prompt in prompts]

    def stream(self, prompt: str = "", **options: Any) -> Iterator[str]:
        """Continue a prompt and yield pieces of text as they are generated; they add up to the whole text.

        Raises:
            ValueError: If several hypotheses are asked for, of which none is final before the end.
        """
        chosen = self.options.override(**options)
        if chosen.nbest > 1 or (not chosen.sample and chosen.beam > 1):
            raise OptionError("only a single hypothesis can be streamed; use sampling or {beam:1}, and {nbest:1}")
        yield from stream_pieces(
            lambda emit, stopped: self._generate(prompt, chosen, emit, stopped), name="regard-generate"
        )

    def look(self, prompt: str = "", **options: Any) -> Any:
        """Open the explorer of this model in a notebook: see `regard.look`."""
        return regard.look(self, prompt, **options)

    def perplexity(self, texts: Iterable[str]) -> TextPerplexity:
        """Return the perplexity of documents of any length.

        A document longer than the model's window is scored in overlapping windows: each token once, with at least half
        a window of context.
        """
        total = TextPerplexity()
        for text in texts:
            logprobs = self.token_logprobs(text)
            nats = -math.fsum(logprobs)
            total += TextPerplexity(nats, len(logprobs), len(text.split()), len(text.encode()), len(text))
        return total

    def token_logprobs(self, text: str) -> list[float]:
        """Return the log-probability of each token of a text given those before it, and of the end symbol."""
        return self._token_logprobs([START, *self.tokenizer.encode(text), END])

    def _generate(
        self,
        prompt: str,
        options: GenerationOptions,
        emit: Callable[[str], None] | None = None,
        stopped: threading.Event | None = None,
    ) -> GeneratedText:
        """Continue one prompt, in several rounds if the text becomes longer than the model's window.

        Args:
            prompt: The text to continue.
            options: Options of the generation.
            emit: Called with each new piece of final text.
            stopped: Set to end the generation early.
        """
        ids = [START, *self.tokenizer.encode(prompt)]
        done: list[int] = []
        logprobs: list[float] = []
        monitor = OutputMonitor(self.tokenizer, options.stop, emit, stopped)
        while True:
            remaining = options.max_tokens - len(done)
            context = [*ids, *done][-self.window :]
            if len(context) + remaining > self.window:
                context = context[-max(1, self.window // 2) :]
            room = min(remaining, max(1, self.window - len(context)))
            hypotheses = self._search(context, room, options, monitor, done)
            best = hypotheses[0]
            if room == remaining or len(best.tokens) < room or monitor.is_complete([*done, *best.tokens]):
                break
            done += best.tokens
            logprobs += best.token_logprobs[: len(best.tokens)]
        results = []
        for hypothesis in hypotheses:
            tokens, scores = [*done, *hypothesis.tokens], (*logprobs, *hypothesis.token_logprobs)
            text = text_before_stop(self.tokenizer.decode(tokens), options.stop)
            results.append(GeneratedText(prompt, text, sum(scores), tuple(map(self.tokenizer.piece, tokens)), scores))
        monitor.emit_up_to(results[0].text)
        return replace(results[0], nbest=tuple(results))

    def _search(
        self, context: list[int], room: int, options: GenerationOptions, monitor: "OutputMonitor", done: list[int]
    ) -> list[Hypothesis]:
        """Search for at most `room` more tokens after a context."""
        limits = LengthLimits(min(max(options.min_tokens - len(done), 0), room), room)
        # A text that is cut at its maximum length has no end symbol to pay for.
        search = search_options(options, limits, samples=options.nbest if options.sample else 0, free_cut=True)
        sentence = SentenceOptions(
            begin=context[-1],
            seed=options.seed + len(done),
            is_complete=(lambda tokens: monitor.is_complete([*done, *tokens])) if monitor.is_needed else None,
        )
        prompts = Ragged.from_list([context[:-1]]).to(self.device)
        (hypotheses,) = run_search(self.engine, prompts, [sentence], search)
        return hypotheses

    def _token_logprobs(self, ids: Sequence[int]) -> list[float]:
        """Return the log-probabilities of all ids but the first."""
        windows, begin, scored = [], 0, 1
        while scored < len(ids):
            end = min(begin + self.window, len(ids) - 1)
            windows.append((begin, end, scored))
            scored, begin = end + 1, max(end - self.window // 2, begin + 1)
        logprobs: list[float] = []
        size = max(1, SCORED_TOKENS // self.window)
        with torch.no_grad():
            for at in range(0, len(windows), size):
                group = windows[at : at + size]
                tokens = Ragged.from_list([list(ids[first:last]) for first, last, _ in group]).to(self.device)
                logprobs_NV = self.model(tokens).float().log_softmax(-1)
                labels = [label for first, last, _ in group for label in ids[first + 1 : last + 1]]
                # Tokens that an earlier window has scored are only context here.
                counted = [index >= since for first, last, since in group for index in range(first + 1, last + 1)]
                labels_N = torch.tensor(labels, device=self.device)
                picked_N = logprobs_NV.gather(1, labels_N[:, None])[:, 0].double()
                logprobs += picked_N[torch.tensor(counted, device=self.device)].tolist()
        return logprobs
