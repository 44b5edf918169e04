"""A queue as a state machine: each rule does the same on every server and in the book.

The rules themselves are in `arrival` (jobs come in), `holding` (consumers), `plan` (specs) and
`care` (those who lead or operate, and what befalls servers).

The servers are Redis native, Redis with the portable dialect forced, and Valkey. After each step
every one of them must hold exactly what the book says, so they also agree among themselves. Each
change is one script or command, so interleavings of processes are sequences of these rules.

One difference is left out on purpose. After a lost group a late holder's plain ack finds its entry
unread: the portable dialect deletes it, for its work is done, XACKDEL leaves it to run again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition

from chasquimq import wire
from tests.model.book import SPECS, WHO, Book, Held, Mark, ident
from tests.model.site import NAME, Site, body

HOUR_MS = 3_600_000
PASSED = 1_000_000
CREATED_MS = 1_790_000_000_000
who, key = st.sampled_from(WHO), st.sampled_from(SPECS)
nth, few = st.integers(0, 4), st.integers(1, 4)
skew = st.sampled_from([-HOUR_MS, 0, HOUR_MS])  # a client's clock
far = st.sampled_from([False, False, True])

Step = Callable[[Site], Awaitable[Any]]

# Steps with nothing to do are not worth a place in a program.
when_held = precondition(lambda self: any(self.book.hands.values()))
when_waiting = precondition(lambda self: bool(self.book.waiting()))
when_pending = precondition(lambda self: bool(self.book.pending()))
when_silent = precondition(lambda self: any(e.silent for e in self.book.stream))
when_delayed = precondition(lambda self: bool(self.book.delayed))


class Machine(RuleBasedStateMachine):
    losses = 0  # of the group

    def __init__(self, runner: asyncio.Runner, sites: Sequence[Site], *, restarts: int = 0) -> None:
        super().__init__()
        self.runner = runner
        self.sites = sites
        self.restarts = restarts
        self.book = Book()
        self.created: dict[str, int] = {}
        self.entered: dict[str, int] = {}  # of ids that callers chose, the entry they led to
        self.owns: list[tuple[str, bytes, int]] = []  # scheduled under ids of the caller's own
        self.sent: list[tuple[str, int, int | None, Mark]] = []  # of unique ids: id, created, score

    def each(self, step: Step) -> Any:
        """The same on every server; what they answered, which is the same, too."""

        async def all_of_them() -> list[Any]:
            return await asyncio.gather(*[step(site) for site in self.sites])

        answers = self.runner.run(all_of_them())
        for site, answer in zip(self.sites, answers, strict=True):
            assert answer == answers[0], f"{site.name} differs from {self.sites[0].name}"
        return answers[0]

    def body(self, job: str) -> bytes:
        return body(ident(job), self.created[job], self.book.attempts[job])

    def member(self, job: str) -> bytes:
        return wire.join_member(NAME, self.body(job))

    def mint(self, skew_ms: int = 0) -> str:
        job = f"01JAAAAAAAAAAAAAAAAA{self.book.tick():06d}"
        self.created[job] = CREATED_MS + skew_ms
        self.book.attempts[job] = 0
        return job

    def holder(self, name: str) -> str:
        """This consumer, or another if it holds nothing."""
        hands = self.book.hands
        return next(one for one in (name, *WHO) if hands[one])

    def held(self, name: str, place: int) -> Held:
        """What this consumer is about to settle, whether it is still its own or not."""
        held = self.book.hands[name]
        return held.pop(min(place, len(held) - 1))

    @invariant()
    def every_server_holds_what_the_book_says(self) -> None:
        self.look()

    def look(self) -> None:
        self.book.check_itself()
        expected = self.book.view()

        async def compare(site: Site) -> None:
            found = await site.view(self.book)
            for place, has, must in zip(expected._fields, found, expected, strict=True):
                assert has == must, f"{site.name}, {place}: {has}, and it must be {must}"

        self.each(compare)
