"""From what a search found for the parts of a line to its translation."""

from collections.abc import Sequence

from regard.decode import Hypothesis
from regard.serve.searching import Going, search_alone
from regard.serve.served import Served
from regard.translator import Translation
from regard.translator.assembling import assemble
from regard.translator.jobs import Job
from regard.translator.searching import Found, by_risk, find_avoiding, find_patiently


def checked(served: Served, going: Going, at: int, hypotheses: list[Hypothesis]) -> Found:
    """What was found for a part, if it keeps what was asked for; if not, what another search finds."""
    translator, options = served.translator, going.line.options
    told, first = options.search(translator.most), [hypotheses]

    def search(some: Sequence[Job]) -> list[Found]:
        if first:
            return find_patiently(some, lambda _: [first.pop()])
        return find_patiently(some, lambda each: search_alone(translator, each, told, served.watched))

    (found,) = find_avoiding([going.jobs[at]], translator.tokenizers.target, search)
    if options.mbr and not isinstance(found, Exception):
        return by_risk(found, translator.tokenizers.target, options.nbest)
    return found


def finished(served: Served, going: Going) -> Translation:
    """The translation of a line all of whose parts are done, or the fault of one of them."""
    found = [going.found[at] for at in range(len(going.jobs))]
    ranked: list[tuple[Job, list[Hypothesis]]] = []
    for job, each in zip(going.jobs, found, strict=True):
        if isinstance(each, Exception):
            raise each
        ranked.append((job, each))
    pairs = [(job.ids, one.tokens) for job, each in ranked for one in each]
    looked = iter(served.weights(pairs) if going.line.options.alignments else [None] * len(pairs))
    whole = [(job, [(one, next(looked)) for one in each]) for job, each in ranked]
    return assemble(going.line.request.line, whole, served.translator.tokenizers)
