"""What an encoder leaves and every decoder looks at."""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from regard.nn.ragged import Layout


@dataclass(frozen=True, eq=False)
class Memory:
    """A state for each source token, end to end, and whose it is."""

    states_ND: Float[Tensor, "N D"]
    layout: Layout
