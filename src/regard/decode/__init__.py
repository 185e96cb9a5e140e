"""Next-token scores in, token ids out: every way to search, over a protocol that knows no model.

    options = Options(begin=1, end=2, beam=5)
    state = model.start(sources, options.rows)
    for hypotheses in search(model, state, [Wish(source=length) for length in lengths], options): ...

`Options` holds for all sentences, a `Wish` for one. `search` gives each sentence its best hypotheses (beam, greedy,
samples), `explore` the whole tree beside, `alternatives` what else could stand behind a prefix, `stream` keeps a batch
full, `ensemble` makes one stepper of several; `rerank` and `minimum_bayes_risk` choose among what was found. What can
be searched is a `Stepper`; it may also be a `Joiner`, an `Attender`, a `Shortlister` or a `Runner`.

Tensors are named by the legend in `nn/__init__.py`. In this room K counts candidates (or phrases) and N the best that
have ended; B counts beams, of which a sentence has one for each group.
"""

from regard.decode.alternatives import alternatives, branching
from regard.decode.ensemble import Ensemble, ensemble
from regard.decode.hypothesis import Hypothesis
from regard.decode.options import Limits, Options, Sampling, Wish
from regard.decode.rerank import minimum_bayes_risk, rerank
from regard.decode.search import Search, explore, search
from regard.decode.stepper import Attender, Board, Joiner, Runner, Shortlister, Stepper
from regard.decode.stream import stream
from regard.decode.tree import Node, Tree

__all__ = [
    "Attender",
    "Board",
    "Ensemble",
    "Hypothesis",
    "Joiner",
    "Limits",
    "Node",
    "Options",
    "Runner",
    "Sampling",
    "Search",
    "Shortlister",
    "Stepper",
    "Tree",
    "Wish",
    "alternatives",
    "branching",
    "ensemble",
    "explore",
    "minimum_bayes_risk",
    "rerank",
    "search",
    "stream",
]
