"""Attention: queries, keys and values of a ragged batch in, mixed values out.

`scores` compares queries with keys, `mask` says which pairs are allowed, `plan` prepares a batch once for all layers,
`kernels` picks the implementation, and `multihead` and `single_head` are the layers models are built from.
"""
