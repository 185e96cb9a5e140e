"""How a translation is searched for."""

from typing import Literal

from pydantic import Field

from regard.recipe.section import Positive, Section


class Decode(Section):
    """How a translation is searched for."""

    beam: Positive = 5
    """Hypotheses kept at each step; 1 is greedy."""
    length_penalty: float = Field(default=1.0, ge=0.0)
    """Exponent alpha of the length penalty (Wu et al. 2016, eq. 14); 0 is none."""
    normalise: Literal["gnmt", "average"] = "gnmt"
    """What that is the exponent of: (5 + length) / 6 (Wu et al. 2016, eq. 14), or the length itself."""
    coverage_penalty: float = Field(default=0.0, ge=0.0)
    """Weight beta of source tokens that were not looked at (Wu et al. 2016, eq. 14); 0 is none."""
    no_repeat: int = Field(default=0, ge=0)
    """No sequence of this many tokens appears twice in a translation; 0 is no such rule."""
    longest: float = Field(default=2.0, gt=0.0)
    """Tokens a translation may have for each source token, plus 10."""
