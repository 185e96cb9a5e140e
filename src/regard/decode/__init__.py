"""Search: from the log-probabilities of the next token to sequences of tokens, over protocols that know no model.

    options = SearchOptions(begin=1, end=2, beam=5)
    state = model.start(sources, options.rows)
    sentences = [SentenceOptions(source_length=length) for length in lengths]
    for hypotheses in search(model, state, sentences, options): ...

| function | what it returns |
|---|---|
| `search` | the best hypotheses of each sentence: greedy, beam search or samples |
| `explore` | the same, with the tree of all candidates |
| `alternatives` | the most probable tokens after a prefix, each completed |
| `stream` | hypotheses as they finish, with continuous batching |
| `ensemble` | one stepper made of several |
| `rerank`, `minimum_bayes_risk` | hypotheses in another order |

`SearchOptions` hold for all sentences, unless `IncrementalSearch` is given others; `SentenceOptions` hold for one. Any
`Stepper` can be searched; it may also be a `JoinableStepper`, a `MixedStepper`, an `AttentionStepper`, a `TopKStepper`
or a `MultiStepper`.

Tensors are named by the legend in `nn/__init__.py`. In this package K counts candidates or phrases, N the slots for
ended hypotheses, and B counts beams, of which a sentence has one for each group.
"""

from regard.decode.ensemble import Ensemble, ensemble
from regard.decode.hypothesis import Hypothesis, minimum_bayes_risk, rerank
from regard.decode.incremental import IncrementalSearch
from regard.decode.options import LengthLimits, SearchOptions, SentenceOptions, WordBoundaries
from regard.decode.search import alternatives, branching, explore, search, stream
from regard.decode.stepper import (
    AttentionStepper,
    JoinableStepper,
    MixedStepper,
    MultiStepper,
    StaticSearch,
    Stepper,
    TopKStepper,
)
from regard.decode.tree import SearchNode, SearchTree, TreeRecorder
from regard.options import SamplingOptions

__all__ = [
    "AttentionStepper",
    "Ensemble",
    "Hypothesis",
    "IncrementalSearch",
    "JoinableStepper",
    "LengthLimits",
    "MixedStepper",
    "MultiStepper",
    "SamplingOptions",
    "SearchNode",
    "SearchOptions",
    "SearchTree",
    "SentenceOptions",
    "StaticSearch",
    "Stepper",
    "TopKStepper",
    "TreeRecorder",
    "WordBoundaries",
    "alternatives",
    "branching",
    "ensemble",
    "explore",
    "minimum_bayes_risk",
    "rerank",
    "search",
    "stream",
]
