"""Tensors in, tensors out: the layers every family is built from.

A tensor's name ends in its shape, by one legend for the whole project:

    N  tokens of a ragged batch, end to end      D  width
    B  sequences                                 H  heads
    S  source positions                          E  size of a head
    T  target positions                          F  inner width
    Q  queries                                   V  vocabulary
    K  keys                                      W  beams
    L  layers                                    R  rows of a search, B times W

A mask is true where one may look. A length counts real tokens. Batch first.
"""
