"""Blocks that come and go in each step are not fetched from the kernel each time."""

import ctypes
import subprocess
import sys

import pytest

COUNTED = """
import ctypes
import torch
from regard.models.fast.heap import keep_freed_memory

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


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="another C library, or an old one")
def test_blocks_as_large_as_logits_come_from_memory_that_is_kept() -> None:
    ran = subprocess.run([sys.executable, "-c", COUNTED], capture_output=True, text=True, check=True)
    none, before, after = map(int, ran.stdout.split())
    assert before == none + 1, "the kernel was asked for the first one"
    assert after == before, "and not for the second"
