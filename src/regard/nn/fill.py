"""Fill batches up to a fixed size, so that compiled kernels and CUDA graphs see one shape."""

from dataclasses import replace

import numpy as np
import torch

from regard.nn.ragged import Layout, Ragged

FILL_LENGTH = 64  # tokens of a filler sequence; attention to short sequences costs least


def fill_to_size(batch: Ragged, tokens: int, sequences: int, value: int, longest: int) -> Ragged:
    """Append filler sequences of `value`, then empty ones, until the batch has the requested size.

    Attention does not cross sequences, so the filler changes no other output; the caller must ignore its loss.

    Args:
        batch: The batch to fill.
        tokens: Number of tokens of the result.
        sequences: Number of sequences of the result.
        value: Token id of the filler.
        longest: Length that the result claims for its longest sequence. It must be the same for all batches, or
            compiled code would specialise on it.

    Raises:
        ValueError: If the batch is too large for the requested size.
    """
    missing_tokens, missing_sequences = tokens - batch.tokens, sequences - len(batch)
    fill_length = min(FILL_LENGTH, longest)
    if missing_tokens < 0 or missing_sequences * fill_length < missing_tokens:
        raise ValueError(
            f"a batch of {batch.tokens} tokens in {len(batch)} sequences cannot be filled to {tokens} tokens in "
            f"{sequences} sequences; raise these sizes or lower the token budget of a batch"
        )
    if batch.longest > longest:
        raise ValueError(f"the batch has a sequence of {batch.longest} tokens, but at most {longest} were declared")
    ends = np.minimum(batch.tokens + fill_length * np.arange(1, missing_sequences + 1), tokens)
    layout = Layout.from_offsets(np.concatenate([batch.offsets.cpu().numpy(), ends]))
    values = torch.cat([batch.values, batch.values.new_full((missing_tokens,), value)])
    return Ragged(values, replace(layout, longest=longest).to(values.device))
