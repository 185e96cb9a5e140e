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
    """Sources, what the decoder is given and what it is to say."""
    lengths = torch.randint(1, LONGEST + 1, (number,)).tolist()
    sources = [torch.randint(3, WORDS, (length,)) for length in lengths]
    targets = [each.flip(0) if backwards else each for each in sources]
    begin, end = torch.tensor([BEGIN]), torch.tensor([END])
    given, labels = [torch.cat([begin, each]) for each in targets], [torch.cat([each, end]) for each in targets]
    return Ragged.from_list(sources), Ragged.from_list(given), Ragged.from_list(labels)


def learn(model: Seq2Seq, backwards: bool, steps: int = 400) -> None:
    """Until a batch is certain, or so many steps."""
    rate = 1e-2
    optimiser = torch.optim.Adam(model.parameters(), rate)
    for step in range(steps):
        optimiser.param_groups[0]["lr"] = rate * min((step + 1) / 40, (40 / (step + 1)) ** 0.5)
        source, given, labels = drawn(48, backwards)
        loss = smoothed_cross_entropy(model(source, given), labels.values) / labels.tokens
        optimiser.zero_grad()
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        if loss.item() < 0.005:
            return


@torch.no_grad()
def right(model: Seq2Seq, backwards: bool) -> float:
    """The share of sequences a greedy search gets right to the last token."""
    source, _, labels = drawn(200, backwards)
    state, tokens, said = model.start(source), torch.full((200,), BEGIN), []
    for _ in range(LONGEST + 1):
        log_probabilities, state = model.step(tokens, state)
        tokens = log_probabilities.argmax(-1)
        said.append(tokens)
    wanted = labels.to_padded(-1)
    return float(((torch.stack(said, 1) == wanted) | (wanted < 0)).all(1).double().mean())


@pytest.mark.parametrize("backwards", [False, True], ids=["copy", "reverse"])
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS.keys())
def test_it_learns_to_copy_and_to_reverse(settings: Model, backwards: bool) -> None:
    torch.manual_seed(1)
    model = build(settings, WORDS, WORDS)
    learn(model, backwards)
    assert right(model.eval(), backwards) >= 0.98
