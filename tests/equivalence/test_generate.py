"""Equal to Hugging Face's `generate`: the same beams with the same scores from the same random Marian.

How theirs maps to ours:
- `length_penalty` is the exponent of the number of tokens, the end counted, by which a log-probability is divided: our
  `normalise="average"`.
- `early_stopping="never"` is our `stopping="exact"` (their bound, too, is the longest length allowed), and
  `early_stopping=True` our `"full"`. Their default, False, bounds by the current length, which loses hypotheses; we
  have no such rule. They ask whether a live hypothesis could still become one of as many as the beam is wide, whatever
  is returned: our `nbest` equal to the beam.
- A hypothesis as long as it may be is given out by theirs without an end; ours must end there. A processor makes theirs
  end there too, with the end's own log-probability.
- Theirs casts logits to single precision, so scores agree to that, and the model is one whose beams do not all but tie.
"""

from typing import Any, Literal

import pytest
import torch
from tests.equivalence.test_hugging_face import marian

from regard.decode import Hypothesis, Limits, Options, Wish, search
from regard.models.weight_map import import_weights
from regard.nn.ragged import Ragged

transformers = pytest.importorskip("transformers", reason="transformers, of the extra 'export', is not installed")

THEIRS, OURS, RULES = marian()
with torch.no_grad():
    torch.manual_seed(1)
    for name, weight in THEIRS.named_parameters():
        if "norm" in name:
            weight.normal_(1.0 if name.endswith("weight") else 0.0, 0.2)
        elif "embed_positions" not in name:
            weight.normal_(0, 0.2 if name.endswith("bias") else 0.5)
    THEIRS.final_logits_bias.zero_()
    THEIRS.final_logits_bias[0, 1] = 2  # so that sequences of many lengths end by themselves
import_weights(OURS, RULES, THEIRS.state_dict())
BEGIN, END, PAD = 0, 1, 0


class EndAt:
    """A processor that allows only the end where a sequence would become as long as it may be."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __call__(self, ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        if ids.shape[1] < self.length - 1:
            return scores
        only = torch.full_like(scores, -torch.inf)
        only[:, END] = scores[:, END]
        return only


def generated(batch: list[list[int]], most: int, beam: int, **options: Any) -> list[tuple[list[int], float]]:
    """Their n best with scores, sentence by sentence."""
    source = Ragged.from_list(batch)
    with torch.no_grad():
        said = THEIRS.generate(
            input_ids=source.to_padded(PAD),
            attention_mask=source.with_values(torch.ones_like(source.values)).to_padded(),
            num_beams=beam,
            num_return_sequences=beam,
            max_length=most + 2,  # the begin symbol and the end beside
            forced_eos_token_id=None,
            do_sample=False,
            logits_processor=transformers.LogitsProcessorList([EndAt(most + 2)]),
            return_dict_in_generate=True,
            output_scores=True,
            **options,
        )
    lines = [line[1 : line.index(END, 1)] for line in said.sequences.tolist()]
    scores = said.sequences_scores.tolist() if beam > 1 else [0.0] * len(lines)
    return list(zip(lines, scores, strict=True))


def sources(seed: int) -> list[list[int]]:
    """A few sources of several lengths."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, 13, (3,), generator=generator).tolist()
    return [torch.randint(3, 17, (length,), generator=generator).tolist() for length in lengths]


def found(seed: int, options: Options) -> list[list[Hypothesis]]:
    """Our n best."""
    batch = sources(seed)
    with torch.no_grad():
        state = OURS.start(Ragged.from_list(batch), options.rows)
        return search(OURS, state, [Wish(len(each)) for each in batch], options)


@pytest.mark.parametrize(("stopping", "early_stopping"), [("exact", "never"), ("full", True)])
@pytest.mark.parametrize("penalty", [0.0, 0.7, 2.0])
@pytest.mark.parametrize(("seed", "most"), [(0, 3), (1, 6), (2, 9), (4, 20)])
def test_beams_and_scores_are_theirs(
    seed: int, most: int, penalty: float, stopping: Literal["exact", "full"], early_stopping: str | bool
) -> None:
    options = Options(
        begin=BEGIN,
        end=END,
        beam=4,
        nbest=4,
        length_penalty=penalty,
        normalise="average",
        stopping=stopping,
        limits=Limits(most=most),
    )
    ours = [each for nbest in found(seed, options) for each in nbest]
    theirs = generated(sources(seed), most, 4, length_penalty=penalty, early_stopping=early_stopping)
    assert [list(each.tokens) for each in ours] == [line for line, _ in theirs]
    assert [each.score for each in ours] == pytest.approx([score for _, score in theirs], rel=1e-5)


@pytest.mark.parametrize(("seed", "most"), [(0, 3), (1, 6), (2, 9), (3, 12), (4, 20)])
def test_greedy_is_theirs(seed: int, most: int) -> None:
    ours = found(seed, Options(begin=BEGIN, end=END, beam=1, limits=Limits(most=most)))
    theirs = generated(sources(seed), most, 1)
    assert [list(each.tokens) for (each,) in ours] == [line for line, _ in theirs]


def test_sequences_of_many_lengths_end_by_themselves() -> None:
    """What makes the tests above tell something."""
    options = Options(begin=BEGIN, end=END, beam=4, nbest=4, limits=Limits(most=20))
    every = [each for seed in range(5) for nbest in found(seed, options) for each in nbest]
    assert len({len(each.tokens) for each in every if not each.cut}) > 3
    assert len({each.tokens for each in every}) > 30
