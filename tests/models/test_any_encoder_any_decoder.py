"""Any encoder goes with any decoder over a `Memory`, if their widths fit."""

from itertools import product
from typing import Any

import pytest
import torch

from regard.models import hran
from regard.models.build import build
from regard.models.memory import Decoder, Encoder
from regard.models.recurrent import bahdanau
from regard.models.seq2seq import Seq2Seq
from regard.nn.embedding import Embedding, OutputProjection
from regard.nn.ragged import NestedRagged, Ragged
from regard.nn.tap import recording
from regard.recipe import Bahdanau, ConvS2S, HierarchicalTransformer, Hran, Luong, Model, Sutskever, Transformer

WIDTH, VOCABULARY = 8, 11
SIZES: dict[str, Any] = {"width": WIDTH, "inner": 12, "heads": 2, "encoder_layers": 1, "decoder_layers": 1}
# The memory of every encoder has the same width; the bidirectional one concatenates two states of half that width.
FAMILIES: dict[str, Model] = {
    "transformer": Transformer(**SIZES),
    "sutskever": Sutskever(width=WIDTH, layers=1),
    "luong": Luong(width=WIDTH, layers=1),
    "bahdanau": Bahdanau(width=WIDTH // 2, embedding=WIDTH, cell="lstm", readout_width=WIDTH),
    "convs2s": ConvS2S(width=10, embedding=WIDTH, encoder_layers=1, decoder_layers=2, positions=20),
}
SOURCE = Ragged.from_list([[3, 4, 5], [6], [], [1, 2, 3, 4, 5, 6]])
TARGET = Ragged.from_list([[2, 4], [2], [2, 5, 6], [2, 7, 1]])


def encoder_of(name: str) -> Encoder:
    return build(FAMILIES[name], VOCABULARY, VOCABULARY).encoder


def decoder_of(name: str, summary_width: int) -> Decoder:
    settings = FAMILIES[name]
    if isinstance(settings, Bahdanau):  # its bridge is made for the summary of the memory
        return bahdanau.make_decoder(settings, Embedding(VOCABULARY, WIDTH), WIDTH, summary_width)
    return build(settings, VOCABULARY, VOCABULARY).decoder


def crossed(encoder: str, decoder: str) -> Seq2Seq:
    torch.manual_seed(0)
    summary_width = WIDTH // 2 if encoder == "bahdanau" else WIDTH
    parts = encoder_of(encoder), decoder_of(decoder, summary_width), OutputProjection(WIDTH, VOCABULARY)
    return Seq2Seq(*parts).double().eval()


PAIRS = [
    (encoder, decoder)
    for encoder, decoder in product(FAMILIES, FAMILIES)
    # A bidirectional encoder leaves a final state for each direction; a plain recurrent decoder starts from one.
    if not (encoder == "bahdanau" and decoder in ("sutskever", "luong"))
]


def check_steps(model: Seq2Seq, inputs: Ragged | NestedRagged) -> None:
    """Check that decoding steps give the teacher-forced log-probabilities."""
    padded, state, steps = TARGET.to_padded(), model.start(inputs), []
    for column in range(TARGET.longest):
        logprobs, state = model.step(padded[:, column], state)
        steps.append(logprobs)
    forced = model(inputs, TARGET).log_softmax(-1)
    torch.testing.assert_close(TARGET.layout.unpad(torch.stack(steps, 1)), forced)


@pytest.mark.parametrize(("encoder", "decoder"), PAIRS)
def test_decoding_steps_give_the_teacher_forced_log_probabilities(encoder: str, decoder: str) -> None:
    check_steps(crossed(encoder, decoder), SOURCE)


@pytest.mark.parametrize("decoder", ["sutskever", "luong"])
def test_a_recurrent_decoder_says_which_state_it_needs(decoder: str) -> None:
    with pytest.raises(
        ValueError, match=r"starts from 2 tensor\(s\) of 1 layer\(s\) and width 8, but the encoder leaves"
    ):
        crossed("bahdanau", decoder).start(SOURCE)


def test_a_bridge_of_another_width_is_refused() -> None:
    model = Seq2Seq(encoder_of("transformer"), decoder_of("bahdanau", WIDTH // 2), OutputProjection(WIDTH, VOCABULARY))
    with pytest.raises(ValueError, match="made from a vector of width 4, but the encoder leaves one of width 8"):
        model.start(SOURCE)


NESTED: dict[str, Model] = {
    "hran": Hran(width=WIDTH // 2, embedding=WIDTH),
    "hierarchical": HierarchicalTransformer(**SIZES),
}
NESTED_PAIRS = [
    (encoder, decoder)
    for encoder, decoder in product(NESTED, [*FAMILIES, "hran"])
    if not (encoder == "hran" and decoder in ("sutskever", "luong"))
]
DIALOGUES = NestedRagged.from_list([[[3, 4, 5], [6]], [[6]], [], [[1, 2, 3], [4], [5, 6]]])


@pytest.mark.parametrize(("encoder", "decoder"), NESTED_PAIRS)
def test_every_decoder_reads_the_memory_of_nested_inputs(encoder: str, decoder: str) -> None:
    torch.manual_seed(0)
    encoded = build(NESTED[encoder], VOCABULARY, VOCABULARY).encoder
    summary_width = WIDTH // 2 if encoder == "hran" else WIDTH
    decodes: Decoder
    if decoder == "hran":
        chosen = Hran(width=WIDTH // 2, embedding=WIDTH)
        decodes = hran.make_decoder(chosen, Embedding(VOCABULARY, WIDTH), WIDTH, summary_width)
    else:
        decodes = decoder_of(decoder, summary_width)
    check_steps(Seq2Seq(encoded, decodes, OutputProjection(WIDTH, VOCABULARY)).double().eval(), DIALOGUES)


@pytest.mark.parametrize("encoder", FAMILIES)
def test_a_hierarchical_decoder_reads_an_input_without_parts_as_a_single_turn(encoder: str) -> None:
    torch.manual_seed(0)
    summary_width = WIDTH // 2 if encoder == "bahdanau" else WIDTH
    chosen = Hran(width=WIDTH // 2, embedding=WIDTH)
    decoder = hran.make_decoder(chosen, Embedding(VOCABULARY, WIDTH), WIDTH, summary_width)
    model = Seq2Seq(encoder_of(encoder), decoder, OutputProjection(WIDTH, VOCABULARY)).double().eval()
    check_steps(model, SOURCE)
    with recording(model, "decoder.cell.turns.weights") as seen:
        model(SOURCE, TARGET)
    (weights,) = seen["decoder.cell.turns.weights"]
    expected = [[[float(step < length and row != 2)] for step in range(3)] for row, length in enumerate([2, 1, 3, 3])]
    torch.testing.assert_close(weights[:, 0], torch.tensor(expected, dtype=torch.float64))
