"""A model that is looked at: what was found of it lately is kept, so that another view of a sentence costs nothing."""

from collections.abc import Generator, Sequence

from regard.analysis.look.about import About, longest
from regard.analysis.look.changes import Means, check_changes
from regard.analysis.look.finding import Hunt, find
from regard.analysis.look.kept import Kept
from regard.analysis.look.parts import PartName, parts_of
from regard.analysis.look.questions import Ablate, Block, Change
from regard.analysis.look.reading import Encoded, Stale, Weights, Written, encode, mixed_means, write
from regard.analysis.look.tokens import Side, source_side
from regard.decode import Hypothesis
from regard.text import END
from regard.translator import Translator

CANDIDATES = 50
"""Most probable tokens kept of each place."""
Changes = tuple[Change, ...]


class Subject:
    """A translator under observation."""

    def __init__(self, name: str, translator: Translator, about: About) -> None:
        """Look at a translator's model, which nobody else may watch or change meanwhile."""
        self.name, self.translator, self.about = name, translator, about
        self.model, self.parts = translator.model, parts_of(translator.model)
        self.kept = Kept()

    def source(self, line: str) -> Side:
        """A line that can be read, as tokens; refused where it is empty or too long."""
        side = source_side(line, self.translator.tokenizers.source)
        if len(side.pieces) == 1:
            raise ValueError("there is nothing to read; write a sentence")
        if len(side.pieces) - 1 > (most := longest(self.translator)):
            raise ValueError(f"this line has {len(side.pieces) - 1} tokens, and {most} can be looked at; shorten it")
        return side

    def target(self, ids: Sequence[int]) -> tuple[int, ...]:
        """Ids of a target without its end, refused where the model does not know them."""
        tokenizer, most = self.translator.tokenizers.target, min(self.translator.most, 2 * longest(self.translator))
        given = tuple(ids[:-1] if ids and ids[-1] == END else ids)
        for each in given:
            if each >= len(tokenizer) or each == END:
                raise ValueError(
                    f"{each} is no token of a translation; ids are 0 to {len(tokenizer) - 1}, the end last"
                )
        if len(given) > most:
            raise ValueError(f"a translation of {len(given)} tokens is longer than the {most} that can be looked at")
        return given

    def changes(self, changes: Sequence[Change], source: Side) -> Changes:
        """Changes that this model can undergo."""
        check_changes(changes, self.parts, len(source.pieces))
        return tuple(changes)

    def encoded(self, ids: tuple[int, ...], changes: Changes, stale: Stale) -> Encoded:
        """What the encoder leaves of a source; changes of the decoder do not matter to it."""
        mine = tuple(each for each in changes if not isinstance(each, Block) and each.part == "encoder")

        def make() -> Encoded:
            return encode(self.model, self.parts, ids, mine, self.means(ids, mine, stale), stale)

        return self.kept.get(("encoded", ids, key_of(mine)), make, lambda found: _size(found.weights))

    def written(self, ids: tuple[int, ...], target: tuple[int, ...], changes: Changes, stale: Stale) -> Written:
        """What the decoder makes of a target."""

        def make() -> Written:
            memory, means = self.encoded(ids, changes, stale).memory, self.means(ids, changes, stale)
            return write(self.model, self.parts, memory, target, changes, means, stale, CANDIDATES)

        return self.kept.get(("written", ids, target, key_of(changes)), make, lambda found: _size(found.weights))

    def weights(
        self, ids: tuple[int, ...], target: tuple[int, ...], changes: Changes, part: PartName, stale: Stale
    ) -> Weights:
        """All weights of a part's pass."""
        if part == "encoder":
            return self.encoded(ids, changes, stale).weights
        return self.written(ids, target, changes, stale).weights

    def found(
        self, ids: tuple[int, ...], beam: int, prefix: tuple[int, ...], changes: Changes, stale: Stale
    ) -> Generator[tuple[int, ...], None, Hypothesis]:
        """The best translation; yields the tokens that are settled as they come, nothing where it was found before."""
        key = ("found", ids, beam, prefix, key_of(changes))
        known = self.kept.peek(key)
        if isinstance(known, Hypothesis):
            return known
        memory, means = self.encoded(ids, changes, stale).memory, self.means(ids, changes, stale)
        hunt = Hunt(ids, memory, beam, 1, prefix, changes, means)
        best = (yield from find(self.translator, self.parts, hunt, stale))[0]
        self.kept.put(key, best)
        return best

    def means(self, ids: tuple[int, ...], changes: Changes, stale: Stale) -> Means:
        """What the heads to be set to their mean mix on average over this sentence, as it is translated unchanged."""
        wanted = [(each.part, each.layer) for each in changes if isinstance(each, Ablate) and each.how == "mean"]
        if not wanted:
            return {}

        def make() -> Means:
            target = (
                ()
                if all(part == "encoder" for part, _ in wanted)
                else exhausted(self.found(ids, 1, (), (), stale)).tokens
            )
            return mixed_means(self.model, self.parts, ids, target, wanted)

        return self.kept.get(("means", ids, tuple(wanted)), make)


def exhausted(search: Generator[tuple[int, ...], None, Hypothesis]) -> Hypothesis:
    """What a search finds, without watching it."""
    while True:
        try:
            next(search)
        except StopIteration as over:
            found: Hypothesis = over.value
            return found


def key_of(changes: Changes) -> tuple[str, ...]:
    """Changes as something to remember them by."""
    return tuple(each.model_dump_json() for each in changes)


def _size(weights: Weights) -> int:
    return sum(each.nbytes for each in weights.values())
