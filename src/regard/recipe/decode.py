"""How a translation is searched for."""

from pydantic import Field

from regard.recipe.section import Positive, Section


class Decode(Section):
    """How a translation is searched for."""

    beam: Positive = 5
    """Hypotheses kept at each step; 1 is greedy."""
    length_penalty: float = Field(default=1.0, ge=0.0)
    """Exponent alpha of the length penalty (Wu et al. 2016, eq. 14); 0 is none."""
    longest: float = Field(default=2.0, gt=0.0)
    """Tokens a translation may have for each source token, plus 10."""
