"""How a model learns."""

from typing import Literal

from pydantic import Field

from regard.recipe.section import Positive, Section, Share


class Train(Section):
    """How a model learns."""

    steps: Positive = 8000
    """Updates of the weights."""
    tokens: Positive | Literal["auto"] = 4096
    """Tokens of either side in one batch on one device; `auto` takes what fits."""
    accumulate: Positive = 1
    """Batches whose gradients make one update."""
    optimiser: Literal["adam", "adamw", "muon"] = "adamw"
    """Adam (Kingma & Ba 2015), AdamW (Loshchilov & Hutter 2019), Muon for matrices (Jordan et al. 2024)."""
    rate: float = Field(default=1e-3, gt=0.0)
    """Highest learning rate."""
    schedule: Literal["inverse-root", "cosine", "trapezoid", "constant", "plateau"] = "inverse-root"
    """How the rate moves after warm-up; `inverse-root` is the paper's (§5.3)."""
    warmup: int = Field(default=1000, ge=0)
    """Steps over which the rate rises from zero (§5.3)."""
    decay: float = Field(default=0.0, ge=0.0)
    """Weight decay, decoupled."""
    clip: float = Field(default=1.0, gt=0.0)
    """Largest norm of the gradient; a larger one is scaled down to it."""
    smoothing: Share = 0.1
    """Label smoothing (Szegedy et al. 2016; §5.4)."""
    precision: Literal["float32", "bfloat16"] = "bfloat16"
    """Number format of the matrix products; weights stay in float32."""
    average: int = Field(default=1, ge=1)
    """Checkpoints whose weights are averaged at the end (§6.1 takes 5 for base, 20 for big)."""
    every: Positive = 500
    """Steps between two validations, each with a checkpoint."""
    patience: int = Field(default=0, ge=0)
    """Validations without progress before stopping early; 0 never stops early."""
