"""Neural network layers shared by all model families.

The end of a tensor's name is its shape, by one legend for the whole project:

    N  tokens of a ragged batch, end to end      D  width
    B  sequences                                 H  heads
    S  source positions                          E  size of a head
    T  target positions                          F  inner width
    Q  queries                                   V  vocabulary
    K  keys                                      W  beam width
    L  layers                                    R  rows of a search, B times W
    M  words of a ragged batch, end to end
    U  parts (sentences, turns) of a nested batch, end to end
    C  columns of a series                       P  patches of its past
    G  groups of future steps                    O  outputs for each step: the forecast, then quantiles

In a series, T are steps of the past and H those of the future. A mask is true where attention is allowed. A length
counts real tokens. Tensors are batch first.
"""
