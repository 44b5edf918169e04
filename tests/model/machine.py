"""A queue as a state machine: each rule does the same on every server and in the book.

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
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from chasquimq import wire
from chasquimq.job import Due, Reason
from chasquimq.store import Kept
from tests.model.book import AHEAD, SPECS, WHO, Book, Held, Late
from tests.model.site import NAME, Site, body, garbage

HOUR_MS = 3_600_000
PASSED = 1_000_000
who, key = st.sampled_from(WHO), st.sampled_from(SPECS)
nth, few = st.integers(0, 4), st.integers(1, 4)
skew = st.sampled_from([-HOUR_MS, 0, HOUR_MS])  # a client's clock
far = st.sampled_from([False, False, True])

Step = Callable[[Site], Awaitable[Any]]

# Steps with nothing to do are not worth a place in a program.
when_held = precondition(lambda self: any(self.book.hands.values()))
when_waiting = precondition(lambda self: any(e.owner is None for e in self.book.stream))
when_pending = precondition(lambda self: bool(self.book.pending()))
when_silent = precondition(lambda self: any(e.silent for e in self.book.stream))
when_delayed = precondition(lambda self: bool(self.book.delayed))


class Machine(RuleBasedStateMachine):
    def __init__(self, runner: asyncio.Runner, sites: Sequence[Site], *, restarts: int = 0) -> None:
        super().__init__()
        self.runner = runner
        self.sites = sites
        self.restarts = restarts
        self.book = Book()
        self.created: dict[str, int] = {}
        self.owns: list[tuple[str, bytes, int]] = []  # scheduled under ids of the caller's own
        self.cancelled: set[str] = set()

    def each(self, step: Step) -> Any:
        """The same on every server; what they answered, which is the same, too."""

        async def all_of_them() -> list[Any]:
            return [await step(site) for site in self.sites]

        answers = self.runner.run(all_of_them())
        for site, answer in zip(self.sites, answers, strict=True):
            assert answer == answers[0], f"{site.name} differs from {self.sites[0].name}"
        return answers[0]

    def body(self, job: str) -> bytes:
        return body(job, self.created[job], self.book.attempts[job])

    def mint(self, skew_ms: int = 0) -> str:
        job = f"01JAAAAAAAAAAAAAAAAA{self.book.tick():06d}"
        self.created[job] = 1_790_000_000_000 + skew_ms
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

    @initialize()
    def begin(self) -> None:
        self.each(lambda site: site.begin())
        self.add(5, 0)
        self.read(WHO[0], 3)

    @invariant()
    def every_server_holds_what_the_book_says(self) -> None:
        self.book.check_itself()
        expected = self.book.view()

        async def look(site: Site) -> None:
            found = await site.view(self.book)
            for place, has, must in zip(expected._fields, found, expected, strict=True):
                assert has == must, f"{site.name}, {place}: {has}, and it must be {must}"

        self.each(look)

    # -- jobs come in ----------------------------------------------------------------------------

    @rule(count=st.sampled_from([1, 1, 2, 5]), skew_ms=skew)
    def add(self, count: int, skew_ms: int) -> None:
        jobs = [self.mint(skew_ms) for _ in range(count)]
        self.each(lambda site: site.add([(job, self.body(job)) for job in jobs]))
        for job in jobs:
            self.book.arrive(job)

    @rule(place=nth, now_ms=st.integers(1, 2))
    def add_own(self, place: int, now_ms: int) -> None:
        """An id of the caller's own comes in once, however often and whenever it is added."""
        job = f"own-{place}"
        if job not in self.created:
            self.created[job] = now_ms
            self.book.arrive(job, attempt=0)
        fields = [b"d", body(job, now_ms, 0), b"n", NAME]

        async def step(site: Site) -> None:
            await site.shelf.send(site.dialect.add_own(job.encode(), fields, 3_600))

        self.each(step)

    @rule(later=far, skew_ms=skew)
    def schedule(self, later: bool, skew_ms: int) -> None:
        """At a moment, with a minted id."""
        job = self.mint(skew_ms)
        score = (AHEAD if later else PASSED) + self.book.tick()
        member, due = wire.join_member(NAME, self.body(job)), Due(score, absolute=True)
        self.each(lambda site: site.shelf.send(site.delayed.schedule(due, member, job, HOUR_MS)))
        self.book.delayed[job] = Late(score, indexed=True)

    @rule(delay_ms=st.sampled_from([0, HOUR_MS]), skew_ms=skew)
    def schedule_in(self, delay_ms: int, skew_ms: int) -> None:
        """After a while, by the server's clock whatever the client's says; its id is chosen."""
        job = self.mint(skew_ms)
        data, score = self.body(job), (AHEAD if delay_ms else PASSED) + self.book.tick()

        async def step(site: Site) -> Any:
            since = await site.clock_ms()
            answer = await site.schedule_once(job, data, delay_ms)
            await site.settle_score(job, data, since, delay_ms, score)
            return answer

        assert self.each(step) == 1
        self.owns.append((job, data, delay_ms))
        self.book.delayed[job] = Late(score, indexed=True)

    @rule(place=nth)
    def schedule_again(self, place: int) -> None:
        """The same command once more, after its answer was lost."""
        if place < len(self.owns):
            job, data, delay_ms = self.owns[-1 - place]
            if job not in self.cancelled:
                answer = self.each(lambda site: site.schedule_once(job, data, delay_ms))
                assert answer == int(self.book.findable(job))

    @rule(size=st.integers(1, 4))
    def schedule_garbage(self, size: int) -> None:
        """Bytes that are no job, by a program that is not ours."""
        member = b"\xff" * size + b"%d" % self.book.tick()
        score = PASSED + self.book.tick()
        self.book.attempts[garbage(member)] = 0
        self.book.delayed[garbage(member)] = Late(score, indexed=False)
        self.each(lambda site: site.shelf.link.ask("ZADD", site.shelf.keys.delayed, score, member))

    # -- consumers get jobs ----------------------------------------------------------------------

    @when_waiting
    @rule(name=who, count=few)
    def read(self, name: str, count: int) -> None:
        self.each(lambda site: site.read(name, count))
        self.book.read(name, count)

    @when_waiting
    @rule(name=who, count=few)
    def read_and_lose_the_answer(self, name: str, count: int) -> None:
        self.each(lambda site: site.read(name, count))
        self.book.read(name, count, lost=True)

    @when_pending
    @rule(name=who)
    def adopt(self, name: str) -> None:
        """What is pending under our name and we do not know of, after a lost answer."""
        ours = [one for one in self.book.pending(name) if not one.given_back]
        rows = self.each(lambda site: site.numbered(site.jobs[name].adopt(100)))
        assert rows == [(one.number, one.deliveries - 1) for one in ours]
        for entry in ours:
            entry.silent = False
            self.book.hold(name, entry, entry.deliveries - 1)

    @when_pending
    @rule(name=who)
    def crash(self, name: str) -> None:
        """All that it held stays pending, and nobody renews it."""
        self.book.hands[name] = []
        self.fall_silent(name)

    @when_pending
    @rule(name=who)
    def fall_silent(self, name: str) -> None:
        """Frozen for longer than its lease: it will come back and believe to hold what it held."""
        entries = self.book.fall_silent(name)
        self.each(lambda site: site.make_silent(entries))

    @when_pending
    @rule(name=who)
    def come_back(self, name: str) -> None:
        """After a crash, under the same name."""
        if self.book.hands[name]:
            return
        taken = [] if self.book.paused else self.book.pending(name)
        rows = self.each(lambda site: site.take_back(name))
        assert rows == [(one.number, one.deliveries) for one in taken]
        for entry in taken:
            self.book.take_over(name, entry)

    @when_silent
    @rule(name=who, count=few, late=st.sampled_from([False, False, False, True]))
    def claim(self, name: str, count: int, late: bool) -> None:
        silent = [one for one in self.book.pending() if one.silent][:count]
        taken = [] if late or self.book.paused else silent
        rows = self.each(lambda site: site.claim(name, count, late))
        assert rows == [(one.number, one.deliveries) for one in taken]
        for entry in taken:
            self.book.take_over(name, entry)

    @when_held
    @rule(name=who)
    def renew(self, name: str) -> None:
        name = self.holder(name)
        held = [one.number for one in self.book.hands[name]]
        lost = [number for number in held if self.book.owned(name, number) is None]
        assert self.each(lambda site: site.renew(name, held)) == lost
        for number in held:
            entry = self.book.owned(name, number)
            if entry is not None:
                entry.silent = entry.given_back = False

    # -- consumers let go of jobs ----------------------------------------------------------------

    @when_held
    @rule(name=who, place=nth, fenced=st.booleans())
    def ack(self, name: str, place: int, fenced: bool) -> None:
        name = self.holder(name)
        held = self.held(name, place)
        entry = self.book.entry(held.number)
        fenced = fenced or (entry is not None and entry.owner is None)
        may = entry is not None and (not fenced or entry.owner == name)
        assert self.each(lambda site: site.ack(name, held.number, fenced)) == int(may)
        if entry is not None and may:
            self.book.done.add(self.book.end(entry))

    @when_held
    @rule(name=who, place=nth)
    def finish(self, name: str, place: int) -> None:
        self.settle(name, place, self._finish, self._finished)

    def _finish(self, site: Site, name: str, held: Held) -> bytes:
        kept = Kept(site.ids[held.number], held.job, b"result")
        return site.jobs[name].finish([kept], 3_600)

    def _finished(self, job: str) -> None:
        self.book.done.add(job)
        self.book.kept.add(job)

    @when_held
    @rule(name=who, place=nth)
    def bury(self, name: str, place: int) -> None:
        self.settle(name, place, self._bury, self.book.dead.append)

    def _bury(self, site: Site, name: str, held: Held) -> bytes:
        entry_id, data = site.ids[held.number], self.body(held.job)
        fields = wire.pack_dead(data, NAME, entry_id, Reason.UNRECOVERABLE, attempt=1)
        return site.jobs[name].bury(entry_id, fields, 0)

    def settle(
        self,
        name: str,
        place: int,
        command: Callable[[Site, str, Held], bytes],
        settled: Callable[[str], None],
    ) -> None:
        """Moves are refused to whom the entry does not belong any more."""
        name = self.holder(name)
        held = self.held(name, place)
        entry = self.book.owned(name, held.number)

        async def step(site: Site) -> bool:
            return bool(await site.shelf.send(command(site, name, held)))

        assert self.each(step) is (entry is not None)
        if entry is not None:
            settled(self.book.end(entry))

    @when_held
    @rule(name=who, place=nth, delay_ms=st.sampled_from([0, 0, HOUR_MS]))
    def retry(self, name: str, place: int, delay_ms: int) -> None:
        name = self.holder(name)
        held = self.held(name, place)
        entry, job = self.book.owned(name, held.number), held.job
        data = body(job, self.created[job], self.book.attempts[job] + 1)
        score = (AHEAD if delay_ms else PASSED) + self.book.tick()

        async def step(site: Site) -> bool:
            since, member = await site.clock_ms(), wire.join_member(NAME, data)
            command = site.jobs[name].retry(site.ids[held.number], delay_ms, member)
            moved = bool(await site.shelf.send(command))
            if moved:
                await site.settle_score(job, data, since, delay_ms, score)
            return moved

        assert self.each(step) is (entry is not None)
        if entry is not None:
            self.book.end(entry)
            self.book.attempts[job] += 1
            self.book.delayed[job] = Late(score, indexed=False)

    @when_held
    @rule(name=who, count=few)
    def give_back(self, name: str, count: int) -> None:
        name, hands = self.holder(name), self.book.hands
        given, hands[name] = hands[name][:count], hands[name][count:]
        rows = [(one.number, one.before) for one in given]
        back = self.each(lambda site: site.give_back(name, rows))
        assert back == sum(self.book.give_back(name, one) for one in given)

    @rule(name=who)
    def leave(self, name: str) -> None:
        gone = not self.book.pending(name)
        assert self.each(lambda site: site.jobs[name].leave()) is gone
