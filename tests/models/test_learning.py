"""Every family before the Transformer learns to copy and to reverse."""

import pytest
import torch

from regard.models.build import build
from regard.models.seq2seq import Seq2Seq
from regard.nn.cross_entropy import smoothed_cross_entropy
from regard.nn.ragged import Ragged
from regard.recipe import Bahdanau, ConvS2S, Luong, Model, Sutskever

BEGIN, END, WORDS, LONGEST = 1, 2, 7, 3
SETTINGS: dict[str, Model] = {
    "sutskever": Sutskever(width=32, layers=1, tied="none", dropout=0.0),
    "bahdanau": Bahdanau(width=32, tied="all", dropout=0.0),
    "luong": Luong(width=32, layers=1, dropout=0.0, tied="all"),
    "luong, local": Luong(width=32, layers=1, score="dot", reach=2, dropout=0.0, tied="all"),
    "convs2s": ConvS2S(width=32, encoder_layers=2, decoder_layers=2, positions=9, dropout=0.0, tied="all"),
}


def drawn(number: int, backwards: bool) -> tuple[Ragged, Ragged, Ragged]:
    """Draw sources, and the inputs and labels of the decoder."""
    lengths = torch.randint(1, LONGEST + 1, (number,)).tolist()
    sources = [torch.randint(3, WORDS, (length,)) for length in lengths]
    targets = [source.flip(0) if backwards else source for source in sources]
    begin, end = torch.tensor([BEGIN]), torch.tensor([END])
    inputs, labels = (
        [torch.cat([begin, target]) for target in targets],
        [torch.cat([target, end]) for target in targets],
    )
    return Ragged.from_list(sources), Ragged.from_list(inputs), Ragged.from_list(labels)


def learn(model: Seq2Seq, backwards: bool, steps: int = 400) -> None:
    """Train until the loss of a batch is small, or for `steps` steps."""
    rate = 1e-2
    optimiser = torch.optim.Adam(model.parameters(), rate)
    for step in range(steps):
        optimiser.param_groups[0]["lr"] = rate * min((step + 1) / 40, (40 / (step + 1)) ** 0.5)
        source, inputs, labels = drawn(48, backwards)
        loss = smoothed_cross_entropy(model(source, inputs), labels.values) / labels.tokens
        optimiser.zero_grad()
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        if loss.item() < 0.005:
            return


@torch.no_grad()
def accuracy(model: Seq2Seq, backwards: bool) -> float:
    """Return the share of sequences that greedy search decodes without an error."""
    source, _, labels = drawn(200, backwards)
    state, tokens, decoded = model.start(source), torch.full((200,), BEGIN), []
    for _ in range(LONGEST + 1):
        log_probabilities, state = model.step(tokens, state)
        tokens = log_probabilities.argmax(-1)
        decoded.append(tokens)
    expected = labels.to_padded(-1)
    return float(((torch.stack(decoded, 1) == expected) | (expected < 0)).all(1).double().mean())


@pytest.mark.parametrize("backwards", [False, True], ids=["copy", "reverse"])
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS.keys())
def test_a_family_learns_to_copy_and_to_reverse(settings: Model, backwards: bool) -> None:
    torch.manual_seed(1)
    model = build(settings, WORDS, WORDS)
    learn(model, backwards)
    assert accuracy(model.eval(), backwards) >= 0.98
