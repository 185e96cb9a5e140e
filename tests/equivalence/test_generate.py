"""Beam search equals Hugging Face's `generate`: same hypotheses and scores from the same random Marian.

How their options map to ours:
- `length_penalty` is the exponent of the number of tokens, the end counted, by which a log-probability is divided: our
  `normalise="average"`.
- `early_stopping="never"` is our `stopping="exact"` (their bound, too, is the longest length allowed), and
  `early_stopping=True` our `"full"`. Their default, False, bounds by the current length, which loses hypotheses; we
  have no such rule. They ask whether a live hypothesis could still become one of as many as the beam is wide, whatever
  is returned: our `nbest` equal to the beam.
- At the maximal length, their hypotheses have no end token and ours must end. A logits processor makes theirs end there
  too, with the log-probability of the end token.
- Theirs casts logits to single precision, so scores agree to that, and the model is one whose beams do not all but tie.
"""

from typing import Any, Literal

import pytest
import torch
from tests.equivalence.test_hugging_face import marian

from regard.decode import Hypothesis, LengthLimits, SearchOptions, SentenceOptions, search
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
    """A logits processor that allows only the end token at the maximal length."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __call__(self, ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        if ids.shape[1] < self.length - 1:
            return scores
        only = torch.full_like(scores, -torch.inf)
        only[:, END] = scores[:, END]
        return only


def generated(batch: list[list[int]], most: int, beam: int, **options: Any) -> list[tuple[list[int], float]]:
    """Return their n-best hypotheses with scores, sentence by sentence."""
    source = Ragged.from_list(batch)
    with torch.no_grad():
        output = THEIRS.generate(
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
    lines = [line[1 : line.index(END, 1)] for line in output.sequences.tolist()]
    scores = output.sequences_scores.tolist() if beam > 1 else [0.0] * len(lines)
    return list(zip(lines, scores, strict=True))


def sources(seed: int) -> list[list[int]]:
    """A few sources of several lengths."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, 13, (3,), generator=generator).tolist()
    return [torch.randint(3, 17, (length,), generator=generator).tolist() for length in lengths]


def searched(seed: int, options: SearchOptions) -> list[list[Hypothesis]]:
    """Return our n-best hypotheses."""
    batch = sources(seed)
    with torch.no_grad():
        state = OURS.start(Ragged.from_list(batch), options.rows)
        return search(OURS, state, [SentenceOptions(len(source)) for source in batch], options)


@pytest.mark.parametrize(("stopping", "early_stopping"), [("exact", "never"), ("full", True)])
@pytest.mark.parametrize("penalty", [0.0, 0.7, 2.0])
@pytest.mark.parametrize(("seed", "most"), [(0, 3), (1, 6), (2, 9), (4, 20)])
def test_hypotheses_and_scores_equal_theirs(
    seed: int, most: int, penalty: float, stopping: Literal["exact", "full"], early_stopping: str | bool
) -> None:
    options = SearchOptions(
        begin=BEGIN,
        end=END,
        beam=4,
        nbest=4,
        length_penalty=penalty,
        normalise="average",
        stopping=stopping,
        limits=LengthLimits(maximum=most),
    )
    ours = [hypothesis for nbest in searched(seed, options) for hypothesis in nbest]
    theirs = generated(sources(seed), most, 4, length_penalty=penalty, early_stopping=early_stopping)
    assert [list(hypothesis.tokens) for hypothesis in ours] == [line for line, _ in theirs]
    assert [hypothesis.score for hypothesis in ours] == pytest.approx([score for _, score in theirs], rel=1e-5)


@pytest.mark.parametrize(("seed", "most"), [(0, 3), (1, 6), (2, 9), (3, 12), (4, 20)])
def test_greedy_search_equals_theirs(seed: int, most: int) -> None:
    ours = searched(seed, SearchOptions(begin=BEGIN, end=END, beam=1, limits=LengthLimits(maximum=most)))
    theirs = generated(sources(seed), most, 1)
    assert [list(hypothesis.tokens) for (hypothesis,) in ours] == [line for line, _ in theirs]


def test_sequences_of_many_lengths_end_by_themselves() -> None:
    """Without this, the tests above would prove little."""
    options = SearchOptions(begin=BEGIN, end=END, beam=4, nbest=4, limits=LengthLimits(maximum=20))
    hypotheses = [hypothesis for seed in range(5) for nbest in searched(seed, options) for hypothesis in nbest]
    assert len({len(hypothesis.tokens) for hypothesis in hypotheses if not hypothesis.truncated}) > 3
    assert len({hypothesis.tokens for hypothesis in hypotheses}) > 30
