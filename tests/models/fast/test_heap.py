"""Blocks that come and go in each step are not fetched from the kernel each time."""

import platform
import subprocess
import sys

import pytest

COUNTED = """
import resource
import torch
from regard.models.fast.heap import keep_freed_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(8):
        blocks = [torch.ones(1 << 20) for _ in range(4)]
        del blocks
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

faults()
before = faults()
keep_freed_memory()
faults()
print(before, faults())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have other ways")
def test_memory_that_was_freed_is_there_for_the_next_step() -> None:
    ran = subprocess.run([sys.executable, "-c", COUNTED], capture_output=True, text=True, check=True)
    before, after = map(int, ran.stdout.split())
    assert after < 100 < before
