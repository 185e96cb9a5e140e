"""FlexAttention over the packed stream equals attention over padded rows.

FlexAttention is always traced, and the wrappers that check shapes under pytest cannot be traced. So it runs in a
separate process: this file, as a program.
"""

import json
import subprocess
import warnings

import pytest
import torch
from torch import nn

from regard.nn.attention import kernels
from regard.nn.attention.dense import AttentionCore
from regard.nn.attention.flex import block_mask
from regard.nn.attention.mask import AttentionMask, alibi_slopes
from regard.nn.attention.plan import AttentionPlan, plan_attention
from regard.nn.attention.scores import DotScore
from regard.nn.ragged import Layout
from regard.nn.tap import Tap

MASKS = {
    "full": AttentionMask(),
    "causal": AttentionMask(causal=True),
    "window": AttentionMask(window=3),
    "causal window": AttentionMask(causal=True, window=200),
    "alibi": AttentionMask(causal=True, slopes=alibi_slopes(2)),
}


def gap(mask: AttentionMask, queries: Layout, keys: Layout) -> float:
    """Return the largest difference of the two kernels; torch has no backward pass of this kernel on a CPU."""
    torch.manual_seed(0)
    core = AttentionCore(DotScore(0.25), Tap(), Tap(), Tap(), nn.Dropout(0.0))
    q, k, v = (torch.randn(side.tokens, 2, 16, dtype=torch.float64) for side in (queries, keys, keys))
    packed = AttentionPlan(mask, queries, keys, None, block_mask(mask, queries, keys))
    flex, padded = (kernels.attend(q, k, v, plan, core) for plan in (packed, plan_attention(mask, queries, keys)))
    return float((flex - padded).abs().max())


def every_gap() -> dict[str, float]:
    target, source = Layout.from_lengths([5, 0, 1, 40, 130]), Layout.from_lengths([150, 4, 0, 90, 2])
    gaps = {name: gap(mask, target, target) for name, mask in MASKS.items()}
    return {**gaps, "cross-attention": gap(AttentionMask(), target, source)}


@pytest.fixture(scope="module")
def gaps(python: str) -> dict[str, float]:
    done = subprocess.run([python, __file__], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@pytest.mark.parametrize("name", [*MASKS, "cross-attention"])
def test_the_packed_stream_equals_the_padded_rows(name: str, gaps: dict[str, float]) -> None:
    assert gaps[name] < 1e-12


if __name__ == "__main__":
    warnings.filterwarnings("ignore", message="flex_attention called without torch.compile")
    print(json.dumps(every_gap()))
