"""Tune the allocator of the GNU C library: keep freed memory during a search, and return it when there is much of it.

A step allocates and frees tables of some MB, logits above all. The library returns blocks of that size to the kernel
when they are freed and fetches them again, page by page, in the next step; this took a quarter of the time of a small
model with five beams. But the library adapts: after a block of up to 32 MiB was freed, it keeps blocks of that size.

A server runs for weeks, and its threads allocate blocks of all sizes. Each thread has an arena of its own, in which
small blocks that are still in use keep large free ranges from being returned, so memory grew to more than twice its
size. A server therefore has few arenas, and returns free pages inside them now and then.
"""

import ctypes
from functools import cache

import torch

BLOCK_BYTES = (1 << 25) - (1 << 16)
"""Size of the largest block the library adapts to, less what it stores beside a block."""
SERVER_ARENAS = 2
"""Arenas of a server: enough that threads seldom wait for each other."""
_M_ARENA_MAX = -8  # of mallopt, in malloc.h


@cache
def keep_freed_memory() -> None:
    """Free one large block, once a process. It is never written to, so it costs nothing; elsewhere it does nothing."""
    torch.empty(BLOCK_BYTES, dtype=torch.uint8)


def limit_arenas(count: int = SERVER_ARENAS) -> bool:
    """Limit the arenas of this process; return whether the C library has any. Call it before threads start."""
    library = ctypes.CDLL(None)
    return hasattr(library, "gnu_get_libc_version") and bool(library.mallopt(_M_ARENA_MAX, count))


def trim_memory() -> bool:
    """Return free pages of all arenas to the kernel; return whether there were any."""
    library = ctypes.CDLL(None)
    return hasattr(library, "malloc_trim") and bool(library.malloc_trim(0))
