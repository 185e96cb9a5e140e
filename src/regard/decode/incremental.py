"""A search that advances token by token, while sentences join and leave.

    running = IncrementalSearch(stepper, options)
    running.add(state, sentences)
    while running.sentences:
        running.advance()
        for number, hypotheses in running.leave(): ...

A step asks the stepper for log-probabilities, applies the rules, selects candidates, collects those that ended,
continues with the best others, and sees which beams are finished. Sentences may have different options, even beam
widths. They share the steps of the stepper, and those with options of the same shape share a table (`SearchGroup`).
"""

from collections.abc import Collection, Sequence
from typing import Generic

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.decode.candidates import Candidates
from regard.decode.greedy import CHECK_INTERVAL
from regard.decode.hypothesis import Hypothesis
from regard.decode.inference import in_inference_mode
from regard.decode.options import SearchOptions, SentenceOptions
from regard.decode.search_group import SearchGroup, group_shape
from regard.decode.stepper import AttentionStepper, JoinableStepper, State, Stepper, TopKStepper
from regard.decode.tree import TreeRecorder


class IncrementalSearch(Generic[State]):
    """A search in progress: greedy, beam search or sampling, with any rules and penalties."""

    state: State

    def __init__(
        self,
        stepper: Stepper[State],
        options: SearchOptions,
        device: torch.device | str = "cpu",
        recorder: TreeRecorder | None = None,
    ) -> None:
        """Begin without sentences.

        Args:
            stepper: What is searched.
            options: Options of all sentences that are added without options of their own.
            device: Where the stepper's tensors are.
            recorder: Records every candidate, if given. All sentences have the same options then.
        """
        self.stepper, self.options, self.recorder = stepper, options, recorder
        # The check of a protocol is slow, so these are made once.
        self.topk_stepper = stepper if isinstance(stepper, TopKStepper) else None
        self.joinable_stepper = stepper if isinstance(stepper, JoinableStepper) else None
        self.device, self.steps, self.added = torch.device(device), 0, 0
        self.sentences: list[SentenceOptions] = []
        """Options of the sentences that are searched for, in the order of their rows."""
        self.numbers: list[int] = []
        """Their numbers, counted in the order in which they were added."""
        self.groups: list[SearchGroup] = []
        """Their tables."""
        self._group_of: dict[int, SearchGroup] = {}
        """The group of each sentence, by number."""
        self._moves_R: Tensor | None = None
        """Rows that the stepper has still to select."""
        self._done_since: int | None = None
        """The step since which a finished sentence waits to leave."""
        self._check_coverage(options)

    @in_inference_mode
    def add(
        self, state: State, sentences: Sequence[SentenceOptions], searches: Sequence[SearchOptions] | None = None
    ) -> None:
        """Search for more sentences.

        Args:
            state: Their state, with `options.rows` rows for each.
            sentences: Options of each sentence.
            searches: Options of the search for each of them, with equal `rows`; None for those of the whole search.
        """
        searches = searches or [self.options] * len(sentences)
        for options, sentence in zip(searches, sentences, strict=True):
            self._check_coverage(options)
            options.check(sentence)
        if not self.sentences:
            self.state = state
        elif self.joinable_stepper is None:
            raise ValueError("this stepper cannot take new sentences during a search; wait until it is over")
        else:
            self._move()
            self.state = self.joinable_stepper.join([self.state, state])
        added: dict[SearchGroup, list[int]] = {}
        for index, sentence in enumerate(sentences):
            added.setdefault(self._group(searches[index], sentence), []).append(index)
        for group, indices in added.items():
            numbers = [self.added + index for index in indices]
            group.add([sentences[index] for index in indices], [searches[index] for index in indices], numbers)
            self._group_of |= dict.fromkeys(numbers, group)
        self.sentences += sentences
        self.numbers += range(self.added, self.added + len(sentences))
        self.added += len(sentences)
        self._place_rows()

    @in_inference_mode
    def advance(self) -> None:
        """Add one token to every live hypothesis."""
        if not self.sentences:
            return
        self._move()
        moves: list[Tensor | None] = []
        for group, candidates in zip(self.groups, self._candidates(), strict=True):
            if self.recorder is not None:
                group.record(candidates, self.recorder)
            moves.append(group.advance(candidates))
        self._moves_R = self._moves(moves)
        self.steps += 1

    @in_inference_mode
    def leave(self, patience: int | None = None) -> list[tuple[int, list[Hypothesis]]]:
        """Return finished sentences by number, each with its hypotheses, and drop them.

        They stay while they are few, since the stepper must move the state of the others when they leave; but not for
        more than `patience` steps, if it is given.
        """
        over = may_finish = False
        for group in self.groups:
            over, may_finish = over or group.is_over, may_finish or group.ranker.may_finish
        if not over and not (may_finish and (self.device.type == "cpu" or self.steps % CHECK_INTERVAL == 0)):
            return []
        done = [group.done() for group in self.groups]
        count = sum(map(sum, done))
        if count and self._done_since is None:
            self._done_since = self.steps
        waited = 0 if self._done_since is None else self.steps - self._done_since
        is_few = count < len(self.sentences) // 8 and (patience is None or waited < patience)
        if not count or (is_few and not over):
            return []
        self._done_since = None
        left: list[tuple[int, list[Hypothesis]]] = []
        for group, is_done in zip(self.groups, done, strict=True):
            if any(is_done):
                left += group.hypotheses([i for i, leaves in enumerate(is_done) if leaves])
        self.drop([number for number, _ in left])
        return sorted(left, key=lambda result: result[0])

    @in_inference_mode
    def drop(self, numbers: Collection[int]) -> None:
        """Stop searching for the sentences with these numbers."""
        dropped = {*numbers} & {*self.numbers}
        if not dropped:
            return
        kept = [i for i, number in enumerate(self.numbers) if number not in dropped]
        rows = self._state_rows()
        kept_R = torch.tensor([row for i in kept for row in rows[i]], dtype=torch.int64, device=self.device)
        for number in dropped:
            del self._group_of[number]
        for group in self.groups:
            staying = [i for i, number in enumerate(group.numbers) if number not in dropped]
            if staying and len(staying) < len(group.numbers):
                group.keep(staying)
            elif not staying:
                group.numbers = []
        self.groups = [group for group in self.groups if group.numbers]
        self.sentences, self.numbers = [self.sentences[i] for i in kept], [self.numbers[i] for i in kept]
        self._moves_R = (kept_R if self._moves_R is None else self._moves_R[kept_R]) if kept else None
        self._place_rows()

    def settled(self, number: int) -> tuple[int, ...]:
        """Return the tokens that all hypotheses of a sentence, live and ended, start with: they are final."""
        return self._group_of[number].settled(number)

    def _check_coverage(self, options: SearchOptions) -> None:
        if options.coverage_penalty and not isinstance(self.stepper, AttentionStepper):
            raise ValueError("a coverage penalty needs attention weights, which this stepper does not return")

    def _group(self, options: SearchOptions, sentence: SentenceOptions) -> SearchGroup:
        """Return the group that a sentence belongs to; make it if there is none."""
        shape = group_shape(options, sentence)
        for group in self.groups:
            if group.shape == shape:
                return group
        self.groups.append(SearchGroup(shape, options, self.device))
        return self.groups[-1]

    def _candidates(self) -> list[Candidates]:
        """Ask the stepper, and select the candidates of each group."""
        token_R = self._tokens()
        k = self._top_k()
        if k is not None and self.topk_stepper is not None:
            logprob_RK, token_RK, self.state = self.topk_stepper.top_k(token_R, self.state, k)
            return [self._select_among(group, logprob_RK, token_RK) for group in self.groups]
        logprobs_RV, self.state = self.stepper.step(token_R, self.state)
        attention_RS = None
        # The check of a protocol is slow, so it comes second.
        if any(group.options.coverage_penalty for group in self.groups) and isinstance(self.stepper, AttentionStepper):
            attention_RS = self.stepper.attention(self.state)
        return [
            group.select(
                group.own_rows(logprobs_RV),
                group.own_rows(attention_RS) if attention_RS is not None and group.options.coverage_penalty else None,
            )
            for group in self.groups
        ]

    def _select_among(
        self, group: SearchGroup, logprob_RK: Float[Tensor, "R K"], token_RK: Int[Tensor, "R K"]
    ) -> Candidates:
        """Let a group select from as many of the best tokens of each row as it needs."""
        k = group.top_k(float(token_RK.shape[1]))
        return group.select_among(*(group.own_rows(table)[:, :k] for table in (logprob_RK, token_RK)))

    def _tokens(self) -> Int[Tensor, " R"]:
        """Return the last token of each row, in the order of the state."""
        if len(self.groups) == 1:
            return self.groups[0].beams.token_BW.flatten()
        token_R = torch.cat([group.beams.token_BW.flatten() for group in self.groups])
        return token_R.scatter(
            0, torch.cat([group.rows_R for group in self.groups if group.rows_R is not None]), token_R
        )

    def _top_k(self) -> int | None:
        """Return how many of the best tokens of each row are enough for this step; None if all are needed."""
        if self.topk_stepper is None:
            return None
        most = 0
        for group in self.groups:
            k = group.top_k(float(self.topk_stepper.max_top_k))
            if k is None:
                return None
            most = max(most, k)
        return most

    def _moves(self, moves: Sequence[Tensor | None]) -> Int[Tensor, " R"] | None:
        """Return the rows of the state that continue, given those of each group; None if each continues itself."""
        if len(moves) == 1 or all(move is None for move in moves):
            return moves[0]
        moves_R = torch.arange(sum(group.row_count for group in self.groups), device=self.device)
        for group, move in zip(self.groups, moves, strict=True):
            if move is not None and group.rows_R is not None:
                moves_R[group.rows_R] = group.rows_R[move]
        return moves_R

    def _move(self) -> None:
        """Let the stepper select the rows that continue; put off until its next step, so that it moves them once."""
        if self._moves_R is not None:
            self.state = self.stepper.select(self.state, self._moves_R)
            self._moves_R = None

    def _state_rows(self) -> list[range]:
        """Return the rows of each sentence in the state."""
        rows, begin = [], 0
        for number in self.numbers:
            count = self._group_of[number].options.rows
            rows.append(range(begin, begin + count))
            begin += count
        return rows

    def _place_rows(self) -> None:
        """Tell each group where its rows are."""
        if len(self.groups) == 1:
            self.groups[0].rows_R = None
            return
        rows = dict(zip(self.numbers, self._state_rows(), strict=True))
        for group in self.groups:
            own = [row for number in group.numbers for row in rows[number]]
            group.rows_R = torch.tensor(own, device=self.device)
