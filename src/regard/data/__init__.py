"""Lines to examples to batches: corpora, the phrasebook, the store, batching."""
