"""Batches in, logits out: the families of models, built from the layers of `nn`."""
