"""Keep freed memory in the process.

A step allocates and frees tables of some MB, logits above all. The GNU C library returns blocks of that size to the
kernel when they are freed and fetches them again, page by page, in the next step; this took a quarter of the time of a
small model with five beams. But the library adapts: after a block of up to 32 MiB was freed, it keeps blocks of that
size.
"""

from functools import cache

import torch

BLOCK_BYTES = (1 << 25) - (1 << 16)
"""Size of the largest block the library adapts to, less what it stores beside a block."""


@cache
def keep_freed_memory() -> None:
    """Free one large block, once a process. It is never written to, so it costs nothing; elsewhere it does nothing."""
    torch.empty(BLOCK_BYTES, dtype=torch.uint8)
