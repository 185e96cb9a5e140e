"""Tables of keys and values are used again, within a limit of memory."""

import torch

from regard.engines.kv_pool import SPARE_BYTES, KVPool, SparePools

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


def test_spare_pools_take_no_more_memory_than_the_limit() -> None:
    spare, rows = spare_pools(), SPARE_BYTES // ROW_BYTES // 2
    pools = [spare.take(rows) for _ in range(5)]
    for pool in pools:
        spare.give_back(pool)
    kept = [spare.take(1) for _ in range(5)]
    assert [any(pool is other for other in kept) for pool in pools] == [False, False, False, True, True]


def test_a_pool_above_the_limit_is_dropped_and_the_others_stay() -> None:
    spare = spare_pools()
    small, large = KVPool(2, 4, (16, 16), torch.float32), spare.take(SPARE_BYTES // ROW_BYTES + 64)
    spare.give_back(small)
    spare.give_back(large)
    assert spare.take(1) is small
    assert spare.take(1) is not large
