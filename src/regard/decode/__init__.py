"""Next-token scores in, token ids out: every way to search, over a protocol that knows no model.

    state = model.start(sources, options.rows)
    for hypotheses in search(model, state, [Wish(source=len(each)) for each in sources], options): ...

`Options` holds for all sentences, a `Wish` for one. What can be searched is a `Stepper`; it may also be a `Joiner` or
an `Attender`. Tensors are named by the legend in `nn/__init__.py`; in this room K counts candidates and N the best that
have ended, and B counts beams, of which a sentence has one for each group.
"""

from regard.decode.hypothesis import Hypothesis
from regard.decode.options import Limits, Options, Sampling, Wish
from regard.decode.search import Search, search
from regard.decode.stepper import Attender, Joiner, Stepper

__all__ = ["Attender", "Hypothesis", "Joiner", "Limits", "Options", "Sampling", "Search", "Stepper", "Wish", "search"]
