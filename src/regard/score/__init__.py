"""Evaluation metrics: BLEU, chrF, TER, exact match, alignment error rate, and significance tests.

Every score carries the signature that says how it was computed. Two scores are comparable if their names and signatures
agree.
"""

from regard.score.alignment import Alignment, AlignmentScore, alignment_error_rate
from regard.score.formats import (
    read_alignments,
    read_naacl,
    read_pharaoh,
    read_sentences,
)
from regard.score.metric import METRICS, Score, bleu, bleu_lowercase_tokenised, chrf, exact_match, score, ter
from regard.score.significance import Comparison, paired_bootstrap, paired_randomisation

__all__ = [
    "METRICS",
    "Alignment",
    "AlignmentScore",
    "Comparison",
    "Score",
    "alignment_error_rate",
    "bleu",
    "bleu_lowercase_tokenised",
    "chrf",
    "exact_match",
    "paired_bootstrap",
    "paired_randomisation",
    "read_alignments",
    "read_naacl",
    "read_pharaoh",
    "read_sentences",
    "score",
    "ter",
]
