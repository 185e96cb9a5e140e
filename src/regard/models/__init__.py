"""Models: encoders, decoders and language models of every family, and how a recipe builds them from layers of `nn`.

memory          what encoders leave and decoders attend to, and the protocols of both
seq2seq         an encoder and a decoder of any family with an output projection
language_model  a decoder-only language model
masked_language_model
                an encoder-only language model
transformer, convolutional, recurrent
                the families: each builds its model from its own section of the recipe
build           from a recipe's `[model]` section to a model
weight_map      which weight is which in models of other libraries
"""
