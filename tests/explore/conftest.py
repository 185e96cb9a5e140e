"""Build small models of every family, with the vocabulary of a run that has memorised some sentences."""

from pathlib import Path
from typing import Any

import pytest
import torch

from regard.explore import Explorer
from regard.models.build import build
from regard.predict import Translator
from regard.recipe import Bahdanau, ConvS2S, Luong, Model, Sutskever, Transformer
from regard.text import Tokenizers

TINY: dict[str, Any] = {"width": 16, "inner": 24, "heads": 2, "encoder_layers": 2, "decoder_layers": 2, "dropout": 0.0}
SETTINGS: dict[str, Model] = {
    "transformer": Transformer(**TINY),
    "norm last, learned": Transformer(
        **TINY, norm_first=False, position="learned", positions=600, position_width=4, score="bilinear", tied="none"
    ),
    "rotary, window": Transformer(**TINY, position="rotary", window=2),
    "alibi, additive": Transformer(**TINY, position="alibi", score="additive"),
    "sutskever": Sutskever(width=12, layers=2, tied="none"),
    "bahdanau": Bahdanau(width=12, embedding=10, readout_width=8, tied="none"),
    "luong": Luong(width=12, layers=2, tied="none"),
    "luong, dot, not fed": Luong(width=12, layers=1, score="dot", feeding=False, tied="none"),
    "luong, local": Luong(width=12, layers=1, score="additive", reach=2, tied="none"),
    "convs2s": ConvS2S(width=12, encoder_layers=2, decoder_layers=2, positions=600, tied="none"),
}
SINGLE = [name for name in SETTINGS if name.startswith(("bahdanau", "luong", "convs2s"))]
HEADED = [name for name, settings in SETTINGS.items() if isinstance(settings, Transformer)]
ATTENTIVE = [*HEADED, *SINGLE]
SOURCE = "I can go alone, it is late"


@pytest.fixture(scope="session")
def translators(memorised: Path) -> dict[str, Translator]:
    """Build an untrained translator of every family, in double precision, with large and thus distinct weights."""
    tokenizers, translators = Tokenizers.load(memorised), {}
    for seed, (name, settings) in enumerate(SETTINGS.items()):
        torch.manual_seed(seed)
        model = build(settings, len(tokenizers["source"]), len(tokenizers["target"])).double().eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(1.5)
        translators[name] = Translator(model, tokenizers)
        # Untrained models never generate the end symbol.
        translators[name].options = translators[name].options.override(max_length=6)
    return translators


@pytest.fixture
def explorer(translators: dict[str, Translator]) -> Explorer:
    """Return an explorer with an empty cache."""
    return Explorer(translators)
