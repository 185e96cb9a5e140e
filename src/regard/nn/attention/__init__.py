"""Attention: how tokens look at each other.

`scores` says how well a key answers a query, `sight` who may look where, `multihead` what is projected and put
together; `kernels` picks how it is computed: `explicit`, `padded`, `flex` or `varlen`, which all give the same numbers.
"""
