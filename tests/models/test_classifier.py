"""Classifiers of every family: laws, attention weights, operations, and what they can learn."""

from contextlib import nullcontext
from random import Random
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from regard.models.build import build_classifier
from regard.models.classifier import Classifier
from regard.models.han import HierarchicalEncoder
from regard.nn.fill import fill_to_size
from regard.nn.pooling import AttentionPooling, MeanPooling
from regard.nn.ragged import Layout, Ragged
from regard.nn.tap import named_taps, recording
from regard.recipe import Classification, Han, Rnn, Transformer

VOCABULARY, CLASSES = 11, 4
TRANSFORMER = Transformer(width=8, inner=12, heads=2, encoder_layers=2)
RNN = Rnn(width=6, embedding=5, layers=2)
HAN = Han(width=4, embedding=5, attention_width=3)

Document = list[list[int]]
"""Token ids of each sentence."""


def make(settings: Any, pooling: Any = "mean", seed: int = 0, ngrams: int = 0) -> Classifier:
    torch.manual_seed(seed)
    options = Classification(pooling=pooling, ngrams=ngrams, ngram_buckets=13, ngram_width=6)
    model = build_classifier(settings, VOCABULARY, CLASSES, options).double().eval()
    if model.ngrams is not None:
        nn.init.normal_(model.ngrams.weight)  # zero before training, which hides much
    return model


MODELS = {
    "transformer, mean": make(TRANSFORMER),
    "transformer, first": make(TRANSFORMER, "first"),
    "transformer, attention": make(TRANSFORMER, "attention"),
    "rnn, attention": make(RNN, "attention"),
    "rnn, one direction": make(Rnn(width=6, layers=1, cell="gru", bidirectional=False)),
    "transformer, n-grams": make(TRANSFORMER, ngrams=3),
    "han": make(HAN),
    "han, n-grams": make(HAN, ngrams=2),
    "han, lstm": make(Han(width=4, embedding=5, attention_width=3, cell="lstm")),
}
every_model = pytest.mark.parametrize("model", MODELS.values(), ids=MODELS.keys())
documents = st.lists(
    st.lists(st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=4), max_size=4), min_size=1, max_size=5
)


def inputs(model: Classifier, batch: list[Document]) -> tuple[Ragged, Ragged | None]:
    """Return documents as the model reads them; other models than a hierarchical one read `<s> tokens </s>`."""
    tokens = [[token for sentence in document for token in sentence] for document in batch]
    if not model.hierarchical:
        return Ragged.from_list([[2, *ids, 3] for ids in tokens]), None
    return Ragged.from_list(tokens), Ragged.from_list([list(map(len, document)) for document in batch])


def logits(model: Classifier, batch: list[Document]) -> Tensor:
    with torch.no_grad():
        result: Tensor = model(*inputs(model, batch))
    return result


@every_model
@given(documents)
@settings(max_examples=15)
def test_a_batch_gives_the_logits_of_each_document_by_itself(model: Classifier, batch: list[Document]) -> None:
    alone = torch.cat([logits(model, [document]) for document in batch])
    torch.testing.assert_close(logits(model, batch), alone)


@every_model
@given(documents)
@settings(max_examples=10)
def test_the_order_of_documents_does_not_matter(model: Classifier, batch: list[Document]) -> None:
    torch.testing.assert_close(logits(model, batch[::-1]), logits(model, batch).flip(0))


@every_model
def test_what_fills_up_a_batch_changes_no_other_text(model: Classifier) -> None:
    batch: list[Document] = [[[5, 6], [7]], [[8]]]
    tokens, sizes = inputs(model, batch)
    longer = fill_to_size(tokens, 16, 6, 0, 9)
    sizes = None if sizes is None else fill_to_size(sizes, 16, 6, 0, 9)
    with torch.no_grad():
        torch.testing.assert_close(model(longer, sizes)[:2], logits(model, batch))


@every_model
def test_counted_operations_are_those_that_torch_counts(model: Classifier) -> None:
    document: Document = [[5, 6, 7], [8, 9], [4]]
    tokens, sizes = inputs(model, [document])
    # Watched attention uses no fused kernel, which torch would not count.
    watched = recording(model, "*weights") if any("weights" in name for name in named_taps(model)) else nullcontext()
    with watched, FlopCounterMode(display=False) as counter:
        model(tokens, sizes)
    assert model.forward_flops([tokens.tokens], [len(document)]) == counter.get_total_flops()


def test_a_hierarchical_model_equals_plain_loops_over_sentences_and_words() -> None:
    model = MODELS["han"]
    encoder = model.encoder
    assert isinstance(encoder, HierarchicalEncoder)
    document: Document = [[5, 6, 7], [8], [9, 4]]

    def attend(states: Tensor, pooling: AttentionPooling) -> Tensor:
        scores = [torch.tanh(pooling.hidden.weight @ h + pooling.hidden.bias) @ pooling.context for h in states]
        powers = [score.exp() for score in scores]
        return torch.stack([power / sum(powers) * h for power, h in zip(powers, states, strict=True)]).sum(0)

    with torch.no_grad():
        vectors = []
        for sentence in document:
            embedded = encoder.embedding.weight[sentence] * encoder.embedding.scale
            states = encoder.words.recurrence.cells(embedded)[0]
            vectors.append(attend(states, encoder.words.pooling))
        states = encoder.sentences.recurrence.cells(torch.stack(vectors))[0]
        expected = model.output(attend(states, encoder.sentences.pooling))
    torch.testing.assert_close(logits(model, [document])[0], expected)


@given(documents)
@settings(max_examples=15)
def test_attention_weights_sum_to_one_in_each_sentence_and_in_each_document(batch: list[Document]) -> None:
    model = MODELS["han"]
    tokens, sizes = inputs(model, batch)
    assert sizes is not None
    with recording(model, "encoder.*.pooling.weights") as seen, torch.no_grad():
        model(tokens, sizes)
    if not sizes.tokens:
        assert not any(seen.values())
        return
    words = Ragged(seen["encoder.words.pooling.weights"][0], Layout.from_lengths(sizes.values))
    sentences = sizes.with_values(seen["encoder.sentences.pooling.weights"][0])
    for part in [*words.to_list(), *sentences.to_list()]:
        assert float(part.sum()) == pytest.approx(float(part.numel() > 0))


def test_the_order_of_sentences_matters_to_a_hierarchical_model() -> None:
    model, document = MODELS["han"], [[5, 6], [7], [8, 9]]
    assert not torch.allclose(logits(model, [document]), logits(model, [document[::-1]]))


def test_a_document_without_sentences_is_a_zero_vector() -> None:
    model = MODELS["han"]
    batches: list[list[Document]] = [[[]], [[], [[5]]]]
    for batch in batches:
        vectors = model.vectors(*inputs(model, batch))
        assert torch.equal(vectors[0], torch.zeros_like(vectors[0]))


def test_a_document_may_have_two_thousand_sentences_of_one_word() -> None:
    model = MODELS["han"]
    result = logits(model, [[[5]] * 2000, [[6, 7]]])
    torch.testing.assert_close(result[1:], logits(model, [[[6, 7]]]))
    assert result.isfinite().all()


def test_a_hierarchical_model_asks_for_the_sizes_of_sentences() -> None:
    with pytest.raises(ValueError, match="give the number of tokens of each sentence"):
        MODELS["han"](Ragged.from_list([[5, 6]]))


@pytest.mark.parametrize("level", ["words", "sentences"])
def test_the_gradients_of_both_levels_of_attention_are_those_of_finite_differences(level: str) -> None:
    encoder = make(HAN, seed=1).encoder
    assert isinstance(encoder, HierarchicalEncoder)
    part = encoder.words if level == "words" else encoder.sentences
    layout = Layout.from_lengths([2, 0, 3, 1])
    x = torch.randn(6, 5 if level == "words" else 8, dtype=torch.float64, requires_grad=True)
    weights = [part.pooling.hidden.weight, part.pooling.hidden.bias, part.pooling.context]
    assert torch.autograd.gradcheck(lambda *_: part(x, layout), (x, *weights))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_mean_of_a_long_text_is_exact_in_half_precision(dtype: torch.dtype) -> None:
    x = torch.full((4000, 2), 1.0, dtype=dtype)
    assert MeanPooling()(x, Layout.from_lengths([4000])).tolist() == [[1.0, 1.0]]


def accuracy(model: Classifier, examples: list[tuple[Document, int]]) -> float:
    with torch.no_grad():
        predicted = model.eval()(*inputs(model, [document for document, _ in examples])).argmax(-1)
    return float((predicted == torch.tensor([label for _, label in examples])).double().mean())


def learn(model: Classifier, draw: Any, steps: int, rate: float) -> float:
    """Train on drawn examples, and return the accuracy on new ones."""
    random, optimiser = Random(1), torch.optim.Adam(model.train().parameters(), rate)
    for _ in range(steps):
        examples = [draw(random) for _ in range(32)]
        labels = torch.tensor([label for _, label in examples])
        optimiser.zero_grad()
        result = model(*inputs(model, [document for document, _ in examples]))
        torch.autograd.backward(nn.functional.cross_entropy(result, labels))
        optimiser.step()
    return accuracy(model, [draw(random) for _ in range(200)])


def one_word_decides(random: Random) -> tuple[Document, int]:
    """Return a document whose label is the one of four words that occurs in it."""
    label = random.randrange(4)
    document = [[random.randrange(8, 11) for _ in range(random.randint(1, 4))] for _ in range(random.randint(1, 4))]
    random.choice(document).append(4 + label)
    return document, label


def parity_of_marked_sentences(random: Random) -> tuple[Document, int]:
    """Return a document of up to three sentences, whose label is whether an odd number of them has a marked word."""
    document, marked = [], 0
    for _ in range(random.randint(1, 3)):
        sentence = [random.randrange(8, 11) for _ in range(random.randint(1, 2))]
        if random.random() < 0.5:
            sentence.insert(random.randint(0, len(sentence)), 4)
            marked += 1
        document.append(sentence)
    return document, marked % 2


@pytest.mark.parametrize(
    ("settings", "pooling"),
    [
        (Transformer(width=16, inner=32, heads=2, encoder_layers=1, dropout=0.0), "attention"),
        (Rnn(width=8, layers=1, dropout=0.0), "mean"),
        (Han(width=8, embedding=8, attention_width=8, dropout=0.0), "mean"),
    ],
    ids=["transformer", "rnn", "han"],
)
def test_every_family_learns_that_one_word_of_one_sentence_decides(settings: Any, pooling: Any) -> None:
    torch.manual_seed(0)
    model = build_classifier(settings, VOCABULARY, CLASSES, Classification(pooling=pooling))
    assert learn(model, one_word_decides, 80, 2e-2) > 0.98


def test_a_hierarchical_model_learns_the_parity_of_marked_sentences() -> None:
    torch.manual_seed(0)
    model = build_classifier(Han(width=16, embedding=8, attention_width=8, dropout=0.0), VOCABULARY, 2)
    assert learn(model, parity_of_marked_sentences, 200, 1e-2) > 0.98
