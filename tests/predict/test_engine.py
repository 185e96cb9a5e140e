"""The engine with attention weights, before and after its first step."""

import torch

from regard.predict import Translator
from regard.predict.engine import AttentionEngine, encoder_input


def test_rows_can_be_selected_before_the_first_step(translator: Translator) -> None:
    """A line with a coverage penalty may be dropped from a batch before its first step."""
    assert translator.alignment_head is not None
    engine = AttentionEngine(translator.model, translator.alignment_head)
    ids = [translator.tokenizers["source"].encode(line) for line in ("we have called", "the shirt costs twelve")]
    begin = torch.tensor([2])
    both = engine.select(engine.start(encoder_input(ids, torch.device("cpu"))), torch.tensor([1]))
    alone = engine.start(encoder_input(ids[1:], torch.device("cpu")))
    with torch.no_grad():
        (selected, after_selected), (expected, after_expected) = engine.step(begin, both), engine.step(begin, alone)
    torch.testing.assert_close(selected, expected)
    length = len(ids[1]) + 1
    torch.testing.assert_close(engine.attention(after_selected)[:, :length], engine.attention(after_expected))
