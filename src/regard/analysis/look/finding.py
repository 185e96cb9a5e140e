"""From a source to a target, token by token: by the translator's engine, or where changes act by the model itself."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard import decode
from regard.analysis.look.changes import Means, Standing, changed
from regard.analysis.look.parts import Parts
from regard.analysis.look.questions import Change
from regard.analysis.look.reading import DECODER, Stale, StaleError
from regard.decode import Hypothesis
from regard.decode.tree import Forest
from regard.models.memory import Memory
from regard.nn.ragged import Ragged
from regard.text import END
from regard.translator import Translator
from regard.translator.engine import WatchedEngine
from regard.translator.forced import evaluating


@dataclass(frozen=True, eq=False)
class Hunt:
    """What is searched for: a source, how many beams, how the target begins, and what is changed meanwhile."""

    ids: tuple[int, ...]
    memory: Memory
    beam: int = 1
    nbest: int = 1
    prefix: tuple[int, ...] = ()
    changes: Sequence[Change] = ()
    means: Means | None = None


class ChangedSteps:
    """A model's own steps while changes act on it; it says where it stands, because a changed row has a place.

    A state is the model's, and how many tokens it has seen.
    """

    def __init__(self, stepper: Any, standing: Standing) -> None:
        """Step by a model, or by one whose looks are watched."""
        self.stepper, self.standing = stepper, standing

    def step(self, tokens_R: Int[Tensor, " R"], state: tuple[Any, int]) -> tuple[Float[Tensor, "R V"], Any]:
        """Log-probabilities of the next token in each row."""
        self.standing.place = state[1]
        logprobs_RV, after = self.stepper.step(tokens_R, state[0])
        return logprobs_RV, (after, state[1] + 1)

    def select(self, state: tuple[Any, int], rows_R: Int[Tensor, " R"]) -> tuple[Any, int]:
        """The state that goes on with these rows."""
        return self.stepper.select(state[0], rows_R), state[1]

    def attention(self, state: tuple[Any, int]) -> Float[Tensor, "R S"]:
        """Where each row looked, for a coverage penalty."""
        looked: Tensor = self.stepper.attention(state[0])
        return looked


def find(
    translator: Translator, parts: Parts, hunt: Hunt, stale: Stale, forest: Forest | None = None
) -> Generator[tuple[int, ...], None, list[Hypothesis]]:
    """Search step by step; yields the tokens that are settled after each, and returns the hypotheses, the best first.

    With a forest, every candidate of the search is kept in it.
    """
    model, options = translator.model, search_options(translator, hunt.beam, hunt.nbest)
    found: list[Hypothesis] = []
    with changed(parts, hunt.changes, DECODER, hunt.means or {}) as standing:
        # Only what acts on the model itself stays between two steps; how torch computes is nobody else's business.
        with evaluating(model):
            stepper, state = _begun(translator, hunt, options, standing)
            running: decode.Search[Any] = decode.Search(stepper, options, translator.device, forest)
            running.add(state, [decode.Wish(source=len(hunt.ids), prefix=hunt.prefix)])
        while running.wishes:
            if stale():
                raise StaleError
            with evaluating(model):
                running.advance()
                # Of several beams nothing is told before the end, so what they agree on need not be known.
                settled = running.settled(0) if hunt.beam == 1 else ()
                left = running.leave()
            found = left[0][1] if left else found
            yield settled
    if not found:
        raise ValueError("nothing can follow what the translation was made to begin with; begin it otherwise")
    return found


def search_options(translator: Translator, beam: int, nbest: int = 1) -> decode.Options:
    """How it is searched: as the translator would, but for the beams."""
    told = translator.options.told(beam=beam, nbest=nbest, groups=1, sample=False, mbr=0)
    return told.search(translator.most)


def _begun(translator: Translator, hunt: Hunt, options: decode.Options, standing: Standing) -> tuple[Any, Any]:
    """What steps, and the state it begins from: what was encoded already is not encoded again for the model's steps."""
    model, looks = translator.model, translator.aligned_by
    if not hunt.changes and not options.coverage_penalty:
        source = Ragged.from_list([[*hunt.ids, END]]).to(translator.device)
        # A model that still learns must not be left with tensors that remember being made for inference only.
        with torch.inference_mode(not isinstance(translator.engine, nn.Module)):
            return translator.engine, translator.engine.start(source, options.rows)
    state = model.decoder.start(options.rows, hunt.memory)
    if not options.coverage_penalty:
        return ChangedSteps(model, standing), (state, 0)
    if looks is None:
        raise ValueError("a coverage penalty asks where a model looks, and this one has no attention")
    return ChangedSteps(WatchedEngine(model, looks), standing), ((state, None), 0)
