"""N-gram embeddings, compared with plain loops over the n-grams of each text."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from regard.nn.ngrams import NgramEmbedding
from regard.nn.ragged import Ragged

VOCABULARY, WIDTH = 9, 5
texts = st.lists(st.lists(st.integers(0, VOCABULARY - 1), max_size=6), min_size=1, max_size=4)


def embedding(longest: int, buckets: int = 7, word_dropout: float = 0.0) -> NgramEmbedding:
    torch.manual_seed(0)
    layer = NgramEmbedding(VOCABULARY, longest, buckets, WIDTH, word_dropout).double()
    torch.nn.init.normal_(layer.weight)
    return layer


def rows_of(layer: NgramEmbedding, text: list[int]) -> list[int]:
    """Return the rows of the n-grams of a text that stands alone."""
    rows = []
    for order, rows_N in enumerate(layer.rows(torch.tensor(text, dtype=torch.int64)), start=1):
        rows.extend(rows_N[: max(0, len(text) - order + 1)].tolist())
    return rows


def expected(layer: NgramEmbedding, text: list[int]) -> Tensor:
    rows = rows_of(layer, text)
    vectors = [layer.weight[row] for row in rows]
    return torch.stack(vectors).sum(0) / len(rows) ** 0.5 if rows else torch.zeros(WIDTH, dtype=torch.float64)


@given(texts, st.integers(1, 4))
def test_a_text_is_the_scaled_sum_of_its_own_ngrams(batch: list[list[int]], longest: int) -> None:
    layer = embedding(longest)
    result_BD = layer(Ragged.from_list(batch))
    torch.testing.assert_close(result_BD, torch.stack([expected(layer, text) for text in batch]))


def test_single_tokens_have_rows_of_their_own_and_longer_ngrams_share_the_others() -> None:
    layer = embedding(3)
    single, pairs, triples = layer.rows(torch.tensor([4, 1, 4, 1, 8]))
    assert single.tolist() == [4, 1, 4, 1, 8]
    assert (pairs[:4] >= VOCABULARY).all()
    assert (triples[:3] >= VOCABULARY).all()
    assert max(pairs.max(), triples.max()) < layer.weight.shape[0]
    assert pairs[0] == pairs[2]  # the same pair of tokens


def test_hashes_depend_on_the_order_of_tokens_and_spread_evenly() -> None:
    layer = NgramEmbedding(1000, 2, 4096, 1)
    first, second = np.meshgrid(np.arange(1000), np.arange(50))
    ids_N = torch.from_numpy(np.stack([first.ravel(), second.ravel()], 1).ravel())
    rows_N = layer.rows(ids_N)[1][::2] - 1000
    assert int(layer.rows(torch.tensor([7, 8]))[1][0]) != int(layer.rows(torch.tensor([8, 7]))[1][0])
    counts = np.bincount(rows_N.numpy(), minlength=4096)
    # 50,000 pairs in 4,096 buckets: the variance of even hashing is about the mean.
    assert counts.var() / counts.mean() < 1.5


def test_the_largest_ids_do_not_overflow() -> None:
    layer = NgramEmbedding(1_000_000, 10, 3, 1)
    assert all((rows_N >= 0).all() for rows_N in layer.rows(torch.full((12,), 999_999)))


def test_ngrams_are_zero_before_training_and_get_gradients() -> None:
    layer = NgramEmbedding(VOCABULARY, 2, 7, WIDTH)
    result_BD = layer(Ragged.from_list([[1, 2], [3]]))
    assert not result_BD.any()
    result_BD.sum().backward()
    assert layer.weight.grad is not None
    assert sorted(layer.weight.grad.any(1).nonzero()[:, 0].tolist()) == sorted(
        {*rows_of(layer, [1, 2]), *rows_of(layer, [3])}
    )


def test_word_dropout_keeps_the_mean_and_needs_training() -> None:
    layer, batch = embedding(2, word_dropout=0.4), Ragged.from_list([[1, 2, 3]] * 4000)
    dropped_BD = layer.train()(batch)
    whole_BD = layer.eval()(batch)
    assert not torch.equal(dropped_BD[0], dropped_BD[1])
    error_BD = dropped_BD - whole_BD
    assert (error_BD.mean(0).abs() < 4 * error_BD.std(0) / 4000**0.5).all()


@pytest.mark.parametrize("longest", [1, 2])
def test_a_table_of_buckets_exists_only_for_longer_ngrams(longest: int) -> None:
    assert embedding(longest).weight.shape[0] == VOCABULARY + (7 if longest > 1 else 0)
