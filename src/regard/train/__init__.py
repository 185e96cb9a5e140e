"""Training: the loop, the update of the weights, checkpoints, distributed training, and reports of a run."""
