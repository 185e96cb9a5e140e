"""Subword sampling that can be repeated: BPE-dropout (Provilkov et al. 2020) and unigram sampling (Kudo 2018).

SentencePiece draws from a generator of each thread's own, seeded at that thread's first draw from one number of the
process. So lines are cut into blocks of a fixed size, and each block is encoded by a fresh thread whose generator is
started from the block's own seed under a lock: neither the number of threads nor other sampling changes the result.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Lock

import numpy as np
import sentencepiece

BLOCK = 256  # lines a thread encodes before the next seed: about 5 ms of work against 0.1 ms to start a thread
_seeding = Lock()


class Sampler:
    """Draws segmentations from one SentencePiece model."""

    def __init__(self, processor: "sentencepiece.SentencePieceProcessor", primer: str) -> None:
        """`primer` is a line whose encoding is certain to draw a number: it holds a piece that can be split."""
        self.processor, self.primer = processor, primer

    def sample(self, lines: list[str], amount: float, seed: int, threads: int) -> list["np.ndarray"]:
        """Segment lines at random: `amount` is the dropout of BPE, or the smoothing α of a unigram model."""
        blocks = [lines[at : at + BLOCK] for at in range(0, len(lines), BLOCK)]
        seeds = [_seed(seed, block) for block in range(len(blocks))]
        if threads == 1 or len(blocks) == 1:
            found: Sequence[list[np.ndarray]] = [
                self._block(block, amount, one) for block, one in zip(blocks, seeds, strict=True)
            ]
        else:
            with ThreadPoolExecutor(min(threads, len(blocks))) as pool:
                found = list(pool.map(self._block, blocks, [amount] * len(blocks), seeds))
        return [row for rows in found for row in rows]

    def _block(self, lines: list[str], amount: float, seed: int) -> list["np.ndarray"]:
        with _seeding:
            sentencepiece.set_random_generator_seed(seed)
            thread = sentencepiece.ThreadPool(1)
            self._draw([self.primer], amount, thread)
        return self._draw(lines, amount, thread)

    def _draw(self, lines: list[str], amount: float, thread: "sentencepiece.ThreadPool") -> list["np.ndarray"]:
        rows: list[np.ndarray] = self.processor.encode(
            lines, return_type="numpy", thread_pool=thread, enable_sampling=True, alpha=amount, nbest_size=-1
        )
        return rows


def _seed(seed: int, block: int) -> int:
    """A block's seed; 31 bits, because SentencePiece takes the largest 32-bit number to mean "any"."""
    return int(np.random.SeedSequence([seed, block]).generate_state(1)[0] >> 1)
