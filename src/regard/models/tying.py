"""Tied embeddings: which of source, target and output share one matrix (Press & Wolf 2017)."""

from torch import nn

from regard.nn.embedding import Embedding


def tie(tied: str, source: Embedding, target: Embedding) -> nn.Parameter | None:
    """Let two embeddings share their matrix if the recipe says so.

    Args:
        tied: The recipe's setting: all, decoder, embeddings, outer or none.
        source: Embedding of the source.
        target: Embedding of the target.

    Returns:
        The matrix that the output projection is to share; None if it has its own.

    Raises:
        ValueError: The vocabularies differ in size.
    """
    match tied:
        case "all":
            _share(source, target)
            return source.weight
        case "decoder":
            return target.weight
        case "embeddings":
            _share(source, target)
            return None
        case "outer":
            return source.weight
        case "none":
            return None
    raise ValueError(f"unknown value tied = '{tied}'; choose all, decoder, embeddings, outer or none")


def _share(source: Embedding, target: Embedding) -> None:
    """Let the source use the target's matrix."""
    if target.weight.shape != source.weight.shape:
        raise ValueError(
            f"source and target vocabularies of {source.weight.shape[0]} and {target.weight.shape[0]} tokens cannot "
            "share one embedding; use a joint vocabulary, or tied = 'decoder'"
        )
    source.weight = target.weight
