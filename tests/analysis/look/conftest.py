"""A small model of every family, with a vocabulary that knows some sentences."""

from pathlib import Path
from typing import Any

import pytest
import torch

from regard.analysis.look import Looker
from regard.models.convolutional.outline import ConvS2S
from regard.models.outline import Outline
from regard.models.recurrent.outline import Bahdanau, Luong, Sutskever
from regard.text import Tokenizers
from regard.translator import Translator

TINY: dict[str, Any] = {"width": 16, "inner": 24, "heads": 2, "encoder_layers": 2, "decoder_layers": 2, "dropout": 0.0}
OUTLINES: dict[str, Outline | Sutskever | Bahdanau | Luong | ConvS2S] = {
    "transformer": Outline(**TINY),
    "norm last, learned": Outline(
        **TINY, norm_first=False, position="learned", positions=600, position_width=4, score="bilinear", tied="none"
    ),
    "rotary, window": Outline(**TINY, position="rotary", window=2),
    "alibi, additive": Outline(**TINY, position="alibi", score="additive"),
    "sutskever": Sutskever(width=12, layers=2),
    "bahdanau": Bahdanau(width=12, embedding=10, readout_width=8),
    "luong": Luong(width=12, layers=2),
    "luong, dot, not fed": Luong(width=12, layers=1, score="dot", feeding=False),
    "luong, local": Luong(width=12, layers=1, score="additive", reach=2),
    "convs2s": ConvS2S(width=12, encoder_layers=2, decoder_layers=2, positions=600),
}
SINGLE = [name for name in OUTLINES if name.startswith(("bahdanau", "luong", "convs2s"))]
HEADED = [name for name, outline in OUTLINES.items() if isinstance(outline, Outline)]
ATTENTIVE = [*HEADED, *SINGLE]
SOURCE = "I can go alone, it is late"


@pytest.fixture(scope="session")
def translators(memorised: Path) -> dict[str, Translator]:
    """One of every family, in double precision; none has learned anything, and looks differ by wide weights."""
    tokenizers, found = Tokenizers.load(memorised), {}
    for seed, (name, outline) in enumerate(OUTLINES.items()):
        torch.manual_seed(seed)
        model = outline.seq2seq(len(tokenizers.source), len(tokenizers.target)).double().eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(1.5)
        found[name] = Translator(model, tokenizers)
        found[name].options = found[name].options.told(max_length=6)  # the untaught never end
    return found


@pytest.fixture
def looker(translators: dict[str, Translator]) -> Looker:
    """Somebody who has seen nothing yet."""
    return Looker(translators)
