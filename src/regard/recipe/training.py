"""The `[train]` section: optimiser, learning rate, batches and validation."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from regard.recipe.section import Fraction, Positive, Section


class Train(Section):
    """Training: optimiser, learning rate, batches, validation."""

    steps: Positive | None = None
    """Number of optimiser steps; unset is as many as `minutes` allows or, without a time limit, 20 epochs: at least
    1,000 steps, at most 8,000."""
    minutes: float | None = Field(default=None, gt=0.0)
    """Stop after this many minutes, even if steps are left; unset is no limit."""
    tokens: Positive | Literal["auto"] | None = None
    """Maximum number of tokens of each side in a batch on one device; `auto` is as many as fit into memory; unset is
    1,024 on a CPU, and up to 4,096 elsewhere if an epoch still has 50 steps."""
    accumulate: Positive = 1
    """Gradient accumulation: batches per optimiser step."""
    optimiser: Literal["adam", "adamw", "muon"] | None = None
    """Optimiser: Adam (Kingma & Ba 2015), AdamW (Loshchilov & Hutter 2019) or, for matrices, Muon (Jordan et al.
    2024); unset is AdamW, or Muon for a Transformer if rate, schedule and warmup are unset too."""
    rate: Annotated[float, Field(gt=0.0)] | None = None
    """Peak learning rate; unset is 0.001 or, if optimiser, schedule and warmup are unset too, one that suits the
    model."""
    schedule: Literal["inverse-root", "cosine", "trapezoid", "constant", "plateau"] | None = None
    """Learning rate schedule after warm-up; `inverse-root` is that of the paper (§5.3); unset is `inverse-root`, or
    `cosine` if optimiser, rate and warmup are unset too."""
    warmup: Annotated[int, Field(ge=0)] | None = None
    """Warm-up steps, in which the learning rate rises from zero (§5.3); unset is a tenth of the steps, at most
    1,000."""
    cooldown: Fraction = 0.2
    """Fraction of the steps at the end in which `trapezoid` decreases to zero (Hägele et al. 2024)."""
    shrink: float = Field(default=0.7, gt=0.0, lt=1.0)
    """Factor of the learning rate after each validation without improvement, for `plateau`."""
    decay: float = Field(default=0.0, ge=0.0)
    """Weight decay of matrices: decoupled for AdamW and Muon, added to the gradient for Adam."""
    clip: float = Field(default=1.0, gt=0.0)
    """Gradient clipping: maximum norm of the gradient."""
    smoothing: Fraction = 0.1
    """Label smoothing (Szegedy et al. 2016; §5.4)."""
    rdrop: float = Field(default=0.0, ge=0.0)
    """Weight of R-Drop, the divergence between two passes with different dropout (Liang et al. 2021); 0 disables it."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Precision of matrix products; weights stay in float32. `auto` is bfloat16 if the device supports it."""
    compile: bool | Literal["auto"] = "auto"
    """Compile the model with `torch.compile`; `auto` compiles on CUDA if the run is long enough to gain from it."""
    record: bool | Literal["auto"] = "auto"
    """Use CUDA graphs, in a run of one process on CUDA; `auto` uses them if they are faster for some first batches.
    Recurrent and hierarchical models cannot use them."""
    sharding: Literal["ddp", "fsdp"] = "ddp"
    """With several processes: replicate the model (`ddp`) or shard it (`fsdp`)."""
    ema: Fraction = 0.0
    """Decay of an exponential moving average of the weights, such as 0.999; 0 disables it."""
    average: int = Field(default=1, ge=1)
    """Number of last checkpoints whose weights are averaged after training (§6.1: 5 for base, 20 for big)."""
    every: Positive | None = None
    """Steps between validations; each validation saves a checkpoint; unset is 500, or a tenth of the steps if that is
    less and `steps` is unset."""
    keep: Positive = 2
    """Number of checkpoints kept for resuming, besides the best weights and those to be averaged."""
    choose: Literal["loss", "bleu", "cider", "accuracy", "macro_f1", "recall"] = "loss"
    """Criterion on `data.valid` for the best weights: loss; BLEU of translations, replies or captions; CIDEr-D of
    captions; accuracy of a classifier or tagger; macro F1 of a classifier; recall@1 of replies that are selected among
    10."""
    patience: int = Field(default=0, ge=0)
    """Early stopping: number of validations without improvement; 0 disables it."""
    translate: Annotated[int, Field(ge=0)] | Literal["auto"] = "auto"
    """Number of examples of `data.valid` to translate, classify, tag or reply to, the same ones at each validation;
    `auto` is as many as cost less than 5 % of the time, or all if another criterion than the loss chooses the best
    weights."""
    start: str = ""
    """Trained run whose weights initialise the model, such as `runs/other`; empty is a random initialisation."""
    vocabulary: Literal["start", "new"] = "start"
    """Vocabulary with `train.start`: `start` is that of the other run with `text.symbols` added; `new` is learned from
    this text, and known pieces keep their embeddings."""

    @model_validator(mode="after")
    def _criterion_needs_predictions(self) -> "Train":
        if self.choose != "loss" and self.translate == 0:
            raise ValueError(
                f"choose = '{self.choose}' needs predictions, but translate = 0 makes none; "
                "use translate = 'auto' or choose = 'loss'"
            )
        return self
