"""A recipe to a trained model: the loop and what it tells, loss, optimiser, checkpoints, many processes."""
