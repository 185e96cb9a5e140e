"""The packed stream gives the numbers of the padded rows.

FlexAttention is always traced, and the wrappers that check shapes under pytest cannot be, so it runs in a process of
its own: this file, as a program.
"""

import json
import subprocess
import sys
import warnings

import pytest
import torch
from torch import nn

from regard.nn.attention import kernels
from regard.nn.attention.dense import Inside
from regard.nn.attention.flex import block_mask
from regard.nn.attention.plan import Plan, plan
from regard.nn.attention.scores import Dot
from regard.nn.attention.sight import Sight, alibi_slopes
from regard.nn.ragged import Layout
from regard.nn.tap import Tap

SIGHTS = {
    "everything": Sight(),
    "causal": Sight(causal=True),
    "window": Sight(window=3),
    "causal window": Sight(causal=True, window=200),
    "alibi": Sight(causal=True, slopes=alibi_slopes(2)),
}


def gap(sight: Sight, queries: Layout, keys: Layout) -> float:
    """How far the two kernels are apart; torch has no backward pass of this kernel on a CPU."""
    torch.manual_seed(0)
    inside = Inside(Dot(0.25), Tap(), Tap(), Tap(), nn.Dropout(0.0))
    q, k, v = (torch.randn(each.tokens, 2, 16, dtype=torch.float64) for each in (queries, keys, keys))
    packed = Plan(sight, queries, keys, None, block_mask(sight, queries, keys))
    one, other = (kernels.attend(q, k, v, each, inside) for each in (packed, plan(sight, queries, keys)))
    return float((one - other).abs().max())


def every_gap() -> dict[str, float]:
    one, other = Layout.from_lengths([5, 0, 1, 40, 130]), Layout.from_lengths([150, 4, 0, 90, 2])
    gaps = {name: gap(sight, one, one) for name, sight in SIGHTS.items()}
    return {**gaps, "across": gap(Sight(), one, other)}


@pytest.fixture(scope="module")
def gaps() -> dict[str, float]:
    done = subprocess.run([sys.executable, __file__], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@pytest.mark.parametrize("name", [*SIGHTS, "across"])
def test_the_packed_stream_gives_the_numbers_of_the_padded_rows(name: str, gaps: dict[str, float]) -> None:
    assert gaps[name] < 1e-12


if __name__ == "__main__":
    warnings.filterwarnings("ignore", message="flex_attention called without torch.compile")
    print(json.dumps(every_gap()))
