"""What a translation is: the text, how sure the model was, and which word became which."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from regard.translator.alignment import Link
from regard.translator.splitting import join

_LINE_ENDS = str.maketrans("\n\r\t", "   ")


@dataclass(frozen=True)
class Translation:
    """One line translated. Of several best, this is the first, and `nbest` holds all."""

    source: str
    """The line as it was given."""
    text: str
    score: float
    """What the search ranked it by: the log-probability with its penalties."""
    logprob: float
    """Its log-probability given the source, in nats."""
    tokens: tuple[str, ...]
    """The pieces the text was put together from."""
    token_logprobs: tuple[float, ...]
    """The log-probability of each, and at last that of the end; a line in parts has an end for each."""
    alignment: tuple[Link, ...] | None = None
    """Words of source and target that belong together, counted from 0; None where nobody asked or the model has no
    attention to read it from."""
    nbest: tuple["Translation", ...] = field(default=(), repr=False)
    fault: str = ""
    """Why there is no translation, where there is none."""

    def __str__(self) -> str:
        """The text."""
        return self.text

    @property
    def line(self) -> str:
        """The text on one line, without tabs."""
        return self.text.translate(_LINE_ENDS)

    def pharaoh(self) -> str:
        """The alignment as `0-0 1-2`."""
        return " ".join(f"{source}-{target}" for source, target in self.alignment or ())

    def to_json(self) -> dict[str, Any]:
        """All of it, as JSON holds it."""
        table: dict[str, Any] = {
            "source": self.source,
            "text": self.text,
            "score": _finite(self.score),
            "logprob": _finite(self.logprob),
            "tokens": list(self.tokens),
            "token_logprobs": [_finite(each) for each in self.token_logprobs],
        }
        if self.alignment is not None:
            table["alignment"] = [list(link) for link in self.alignment]
        if len(self.nbest) > 1:
            table["nbest"] = [{**each.to_json(), "source": self.source} for each in self.nbest]
        if self.fault:
            table["fault"] = self.fault
        return table


def nothing(source: str, fault: str = "", aligned: bool = True) -> Translation:
    """The translation of a line without words, or of one that could not be translated; `aligned` has no links."""
    score = -math.inf if fault else 0.0
    one = Translation(source, "", score, score, (), (), () if aligned and not fault else None, (), fault)
    return Translation(source, "", score, score, (), (), one.alignment, (one,), fault)


def together(source: str, parts: Sequence[Translation]) -> Translation:
    """The translation of a line from those of its parts; the score is the mean over tokens of theirs."""
    if len(parts) == 1:
        return parts[0]
    text, _ = join([part.text for part in parts])
    weights = [max(1, len(part.token_logprobs)) for part in parts]
    return Translation(
        source,
        text,
        sum(part.score * weight for part, weight in zip(parts, weights, strict=True)) / sum(weights),
        sum(part.logprob for part in parts),
        tuple(token for part in parts for token in part.tokens),
        tuple(each for part in parts for each in part.token_logprobs),
    )


def _finite(number: float) -> float | None:
    """JSON has no infinity."""
    return number if math.isfinite(number) else None
