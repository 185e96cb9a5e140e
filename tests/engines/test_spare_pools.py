"""Tables of keys and values are used again, within a limit of memory."""

import pytest
import torch

from regard.engines.kv_pool import SPARE_BYTES, SparePools, drop_spare_pools

ROW_BYTES = 2 * 2 * 64 * 4  # keys and values of two layers, 64 float32 numbers each


def spare_pools() -> SparePools:
    return SparePools(2, 4, (16, 16), torch.float32)


def test_a_pool_that_was_given_back_is_taken_again_empty() -> None:
    spare = spare_pools()
    pool = spare.take(100)
    pool.take(50)
    spare.give_back(pool)
    again = spare.take(10)
    assert again is pool
    assert again.taken == 1
    assert spare.take(10) is not pool


def test_the_size_of_a_pool_is_that_of_its_tables() -> None:
    pool = spare_pools().take(1000)
    assert pool.bytes == sum(table.numel() * 4 for table in (*pool.keys, *pool.values)) == pool.capacity * ROW_BYTES


@pytest.mark.parametrize(("share", "kept"), [(4, 4), (2, 2), (1, 2)])
def test_spare_pools_have_the_limit_or_two_pools_above_it(share: int, kept: int) -> None:
    """The tables of a large model are larger than the limit in every batch, and two workers need them again."""
    spare, rows = spare_pools(), SPARE_BYTES // ROW_BYTES // share
    pools = [spare.take(rows) for _ in range(6)]
    for pool in pools:
        spare.give_back(pool)
    taken = [spare.take(1) for _ in range(6)]
    assert [any(pool is other for other in taken) for pool in pools] == [False] * (6 - kept) + [True] * kept


def test_spare_pools_of_all_engines_are_dropped_and_used_ones_are_not() -> None:
    first, second = spare_pools(), spare_pools()
    given_back, used = first.take(100), second.take(100)
    used.take(50)
    first.give_back(given_back)
    drop_spare_pools()
    assert first.take(1) is not given_back
    assert used.taken == 51
    second.give_back(used)
    assert second.take(1) is used
