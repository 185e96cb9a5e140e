"""Shapes are checked in these tests: every call into the layers and models is held to its signature."""

import torch
from jaxtyping import install_import_hook

install_import_hook(["regard.nn", "regard.models"], "beartype.beartype")

# The tensors are tiny: a second thread only waits for the first, and on busy cores it waits long.
torch.set_num_threads(1)
