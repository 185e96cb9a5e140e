"""Which of source, target and output share one matrix (Press & Wolf 2017)."""

from torch import nn

from regard.nn.embedding import Embedding


def tie(tied: str, source: Embedding, target: Embedding) -> nn.Parameter | None:
    """Let the embeddings be one as told; the matrix the output is to share, or None if it has its own."""
    match tied:
        case "all":
            source.weight = _same(target, source)
            return source.weight
        case "decoder":
            return target.weight
        case "embeddings":
            source.weight = _same(target, source)
            return None
        case "outer":
            return source.weight
        case "none":
            return None
    raise ValueError(f"'{tied}' ties nothing; it may be all, decoder, embeddings, outer or none")


def _same(target: Embedding, source: Embedding) -> nn.Parameter:
    """The one matrix of two embeddings, which must have one vocabulary."""
    if target.weight.shape != source.weight.shape:
        raise ValueError(
            f"source and target vocabularies of {source.weight.shape[0]} and {target.weight.shape[0]} cannot share one "
            "embedding; use a joint vocabulary, or tie the decoder only"
        )
    return target.weight
