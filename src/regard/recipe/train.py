"""How a model learns."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from regard.recipe.section import Positive, Section, Share


class Train(Section):
    """How a model learns."""

    steps: Positive = 8000
    """Updates of the weights."""
    minutes: float | None = Field(default=None, gt=0.0)
    """Stop after so long, whatever the steps; unset never does."""
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
    cooldown: Share = 0.2
    """Share of the steps over which `trapezoid` falls to zero at the end (Hägele et al. 2024)."""
    shrink: float = Field(default=0.7, gt=0.0, lt=1.0)
    """What `plateau` multiplies the rate by after each validation without progress."""
    decay: float = Field(default=0.0, ge=0.0)
    """Weight decay of matrices: decoupled in AdamW and Muon, part of the gradient in Adam."""
    clip: float = Field(default=1.0, gt=0.0)
    """Largest norm of the gradient; a larger one is scaled down to it."""
    smoothing: Share = 0.1
    """Label smoothing (Szegedy et al. 2016; §5.4)."""
    rdrop: float = Field(default=0.0, ge=0.0)
    """Weight of R-Drop (Liang et al. 2021), which holds two passes with their own dropout to each other; 0 is off."""
    precision: Literal["float32", "bfloat16"] = "bfloat16"
    """Number format of the matrix products; weights stay in float32."""
    compile: bool | Literal["auto"] = "auto"
    """Compile the model; `auto` does so on CUDA when the run is long enough to pay for it."""
    record: bool | Literal["auto"] = "auto"
    """Where one process learns on CUDA: record the kernels of a batch once and then launch them together (CUDA graphs);
    `auto` does so where some batches show it to be quicker; recurrent models cannot be recorded."""
    sharding: Literal["ddp", "fsdp"] = "ddp"
    """With several processes: the whole model in each (`ddp`), or a part of it in each (`fsdp`)."""
    ema: Share = 0.0
    """Follow the weights by a moving average that keeps this share of itself each step, such as 0.999; 0 is off."""
    average: int = Field(default=1, ge=1)
    """Checkpoints whose weights are averaged at the end (§6.1 takes 5 for base, 20 for big)."""
    every: Positive = 500
    """Steps between two validations, each with a checkpoint."""
    keep: Positive = 2
    """Checkpoints kept to go on from; weights to average and the best weights are kept besides."""
    choose: Literal["loss", "bleu"] = "loss"
    """What says on `data.valid` which weights are best."""
    patience: int = Field(default=0, ge=0)
    """Validations without progress before stopping early; 0 never stops early."""
    translate: Annotated[int, Field(ge=0)] | Literal["auto"] = "auto"
    """Sentences of `data.valid` translated at each validation; `auto` takes what costs under 5 % of the time, and all
    of them where BLEU chooses."""
    start: str = ""
    """A trained run whose weights to begin with, such as `runs/other`; unset begins with random ones."""
    vocabulary: Literal["start", "new"] = "start"
    """Of a run begun from another: that one's vocabulary with `text.symbols` added, or a new one learnt from this text,
    in which pieces known before keep their vectors."""

    @model_validator(mode="after")
    def _bleu_needs_translations(self) -> "Train":
        if self.choose == "bleu" and self.translate == 0:
            raise ValueError(
                "choose = 'bleu' judges translated sentences, and translate = 0 translates none; "
                "use translate = 'auto' or choose = 'loss'"
            )
        return self
