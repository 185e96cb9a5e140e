"""The convolutional family: gated convolutions, and attention in every layer of the decoder."""
