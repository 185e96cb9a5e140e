"""Strings or alignments in, numbers out: BLEU, chrF, TER, exact match, alignment error rate, significance.

Every number carries the signature that says how it was made; two numbers may be compared when their names and
signatures agree.
"""

from regard.score.alignment import Alignment, AlignmentScore, alignment_error_rate
from regard.score.formats import format_naacl, format_pharaoh, read_alignments, read_naacl, read_pharaoh
from regard.score.lines import read_lines
from regard.score.metric import (
    METRICS,
    Score,
    bleu,
    bleu_lowercase_tokenised,
    chrf,
    exact_match,
    score,
    ter,
)
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
    "format_naacl",
    "format_pharaoh",
    "paired_bootstrap",
    "paired_randomisation",
    "read_alignments",
    "read_lines",
    "read_naacl",
    "read_pharaoh",
    "score",
    "ter",
]
