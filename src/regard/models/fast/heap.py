"""Memory that was freed stays at hand.

A step allocates and frees tables of some MB, logits above all. The GNU C library hands blocks of that size back to the
kernel as soon as they are free, and takes them anew, page by page, in the next step, which was a quarter of the time of
a small model with five beams. But it learns: from the largest block that was ever freed, up to 32 MiB, it concludes
that such blocks come and go, and keeps them.
"""

from functools import cache

import torch

LESSON = (1 << 25) - (1 << 16)
"""Bytes of the largest block it learns from, with room for what it notes beside a block."""


@cache
def keep_freed_memory() -> None:
    """Free one large block, once a process; it is never written to, so it costs nothing. Harmless elsewhere."""
    torch.empty(LESSON, dtype=torch.uint8)
