"""A thread that takes lines from a model's queue and searches for all of them side by side, step by step.

Workers are threads of one process, so a model's weights are there once. Each keeps its kernels on its own thread; only
the steps of a line that has no company may be shared by more, as in `regard translate`. What goes wrong in a step goes
wrong for one line only: the others are searched for again, each by itself. A worker that fails altogether answers for
what it had taken, and begins anew.
"""

import logging
import os
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Thread
from time import monotonic

import torch

from regard.decode import Hypothesis
from regard.models.fast.company import alone
from regard.serve.finishing import checked, finished
from regard.serve.queue import Chore, Ticket
from regard.serve.searching import Going, Group, Part, kind_of, search_alone
from regard.serve.served import FaultError, Served
from regard.translator import Translation
from regard.translator.jobs import jobs
from regard.translator.translation import nothing

log = logging.getLogger(__name__)
DEBUG = bool(os.environ.get("REGARD_DEBUG"))

ROOM = 8192
"""Source tokens times rows that a worker has under way, which bounds its memory whatever is asked for."""
ROWS = 640
"""Rows under way: each has a log-probability for every token of the vocabulary."""
BROKEN = "\ufffd"
"""What a character looks like while only some of its bytes are told."""


class Worker(Thread):
    """One of a model's workers."""

    def __init__(self, served: Served, number: int, threads: int = 1) -> None:
        """It begins when it is started, and ends when its queue is closed and empty.

        Up to so many threads share the steps of a line that has no company.
        """
        super().__init__(name=f"regard-{served.name}-{number}", daemon=True)
        self.number, self.threads = number, threads
        self.served, self.queue, self.translator = served, served.queue, served.translator
        self.busy_since: float | None = None
        """When the step under way began."""
        self._forget()

    def _forget(self) -> None:
        self.groups: list[Group] = []
        self.ready: deque[Part] = deque()
        """Parts that were taken and have no room yet."""
        self.chores: deque[Chore] = deque()
        self.taken: dict[Ticket, None] = {}

    def run(self) -> None:
        """Work until all is over; a fault ends what was under way, not the worker."""
        torch.set_num_threads(1)
        while True:
            try:
                while self._turn():
                    pass
                return
            except BaseException:
                log.exception("a worker of %s failed and begins anew", self.served.name, exc_info=DEBUG)
                self.served.meter.faults.labels(self.served.name).inc()
                for ticket in list(self.taken):
                    self._over(ticket, FaultError("the worker failed; ask again"))
                self._forget()

    def _turn(self) -> bool:
        """Take what there is, and go one step further with everything; whether there may be more to do."""
        self.busy_since = None
        tickets = self.queue.take(len(self.taken), 0 if self.ready else 64, self.number)
        if tickets is None:
            return False
        self.busy_since = monotonic()
        self.taken |= dict.fromkeys(tickets)
        for ticket in tickets:
            self._begin(ticket)
        self._admit()
        self._do_a_chore()
        for group in list(self.groups):
            self._advance(group)
        for ticket in [each for each in self.taken if each.order.gone]:
            self._over(ticket, None)
        self.groups = [group for group in self.groups if group.parts]
        return True

    def _begin(self, ticket: Ticket) -> None:
        """Cut a line into what a search takes; chores are put off."""
        if ticket.order.gone:
            return
        if isinstance(ticket, Chore):
            self.chores.append(ticket)
            return
        try:
            planned = jobs(ticket.request, self.translator.tokenizers, ticket.options, self.translator.longest)
            told = ticket.options.search(self.translator.most)
            for job in planned:
                told.check(job.wish)
        except Exception as error:
            self._over(ticket, error)
            return
        going = Going(ticket, planned)
        self.ready.extend((going, at) for at in range(len(planned)))
        if not planned:
            self._over(ticket, nothing(ticket.request.line))

    def _do_a_chore(self) -> None:
        """One only, because lines on their way wait for it."""
        while self.chores:
            chore = self.chores.popleft()
            if not chore.order.gone:
                try:
                    self._over(chore, chore.work())
                except Exception as error:
                    self._over(chore, error)
                return

    def _admit(self) -> None:
        """Let those in for whom there is room, those with equal options together."""
        weight = sum(group.weight for group in self.groups)
        rows = sum(group.options.rows * len(group.parts) for group in self.groups)
        coming: dict[Group, list[Part]] = {}
        while self.ready:
            going, at = self.ready[0]
            kind = kind_of((going, at), self.translator)
            told = kind[0]
            weight, rows = weight + told.rows * (len(going.jobs[at].ids) + 1), rows + told.rows
            if (weight > ROOM or rows > ROWS) and (self.groups or coming):
                break
            self.ready.popleft()
            if going.line.order.gone:
                continue
            group = next((each for each in (*self.groups, *coming) if each.kind == kind and each.open), None)
            coming.setdefault(group or Group(self.translator, kind, self.served.watched), []).append((going, at))
        for group, parts in coming.items():
            if group not in self.groups:
                self.groups.append(group)
            self._safely(group, parts)

    def _safely(self, group: Group, parts: list[Part]) -> None:
        """Add parts to a group; where that fails, all in it are searched for by themselves."""
        try:
            group.add(parts)
        except Exception:
            self._apart(group)

    def _advance(self, group: Group) -> None:
        """One step of a group, and what follows for those who are done."""
        self.served.meter.batch.observe(len(group.parts))
        try:
            with alone(self.threads if len(self.taken) == 1 else 1):
                done = group.advance()
        except Exception:
            self._apart(group)
            return
        self._note(done)
        for going in {going: None for going, _ in group.parts.values() if going.line.order.streamed}:
            self._tell(going)

    def _apart(self, group: Group) -> None:
        """A step failed, and nobody knows for whose sake: each is searched for by itself, and answers for itself."""
        log.warning("a search of %d lines failed; each is tried by itself", len(group.parts), exc_info=DEBUG)
        self.served.meter.faults.labels(self.served.name).inc()
        parts, group.parts = list(group.parts.values()), {}
        for part in parts:
            going, at = part
            if going.line.order.gone:
                continue
            try:
                (found,) = search_alone(self.translator, [going.jobs[at]], group.options, self.served.watched)
            except Exception as error:
                log.warning("a line could not be translated: %s: %s", type(error).__name__, error)
                self._over(going.line, FaultError("this line could not be translated"))
            else:
                self._note([(part, found)])

    def _note(self, done: Sequence[tuple[Part, list[Hypothesis]]]) -> None:
        """Keep what was found for parts, and finish the lines that have all of theirs."""
        for (going, at), hypotheses in done:
            going.found[at] = checked(self.served, going, at, hypotheses)
        complete = [going for going in {going: None for (going, _), _ in done} if len(going.found) == len(going.jobs)]
        for going in complete:
            if going.line in self.taken:
                if going.line.order.streamed:
                    self._tell(going)
                try:
                    self._over(going.line, finished(self.served, going))
                except Exception as error:
                    self._over(going.line, error)

    def _tell(self, going: Going) -> None:
        """Say the tokens that are settled since the last time."""
        tokens = going.tokens()
        if len(tokens) > going.told:
            target = self.translator.tokenizers.target
            pieces = [target.piece(each) for each in tokens[going.told :]]
            going.told = len(tokens)
            going.line.order.answer(going.line.place, Settled(tuple(pieces), target.decode(tokens).rstrip(BROKEN)))

    def _over(self, ticket: Ticket, found: object) -> None:
        """A ticket is done with; its client is told, if there is something to tell."""
        if ticket not in self.taken:
            return
        del self.taken[ticket]
        self.queue.done(1)
        meter, name = self.served.meter, self.served.name
        meter.sentences.labels(name).inc()
        if isinstance(found, Translation):
            meter.tokens.labels(name).inc(len(found.tokens))
        if found is not None:
            ticket.order.answer(ticket.place, found)


@dataclass(frozen=True)
class Settled:
    """Tokens of a line that will not change any more, and its text so far."""

    pieces: tuple[str, ...]
    text: str


def hire(served: Served) -> list[Worker]:
    """The workers of a model, at work.

    Threads that share steps do so for the first worker only, which lone lines are left to: where a second
    one had such threads, its shared steps took longer than steps by itself (docs/serve.md).
    """
    served.meter.watch(served.name, lambda: served.queue.waiting, lambda: served.queue.running)
    threads = torch.get_num_threads()
    staff = [Worker(served, number, 1 if number else threads) for number in range(served.queue.workers)]
    for worker in staff:
        worker.start()
    return staff
