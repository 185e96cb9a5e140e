"""Blocks that are freed and allocated in each step are not fetched from the kernel each time."""

import ctypes
import subprocess
import sys

import pytest

COUNTED = """
import ctypes
import torch
from regard.engines.malloc import keep_freed_memory

class Info(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks",
                                                     "fsmblks", "uordblks", "fordblks", "keepcost")]

ask = ctypes.CDLL(None).mallinfo2
ask.restype = Info
counts, blocks = [ask().hblks], []
blocks.append(torch.empty(7 << 20))
counts.append(ask().hblks)
keep_freed_memory()
blocks.append(torch.empty(7 << 20))
counts.append(ask().hblks)
print(*counts)
"""


@pytest.mark.skipif(
    not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="mallinfo2 needs the GNU C library 2.33 or later"
)
def test_large_blocks_come_from_memory_that_was_freed_before() -> None:
    ran = subprocess.run([sys.executable, "-c", COUNTED], capture_output=True, text=True, check=True)
    none, before, after = map(int, ran.stdout.split())
    assert before == none + 1, "the first block comes from the kernel"
    assert after == before, "the second does not"
