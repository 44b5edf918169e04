"""The machine's consumers: what they get, keep, settle, give back, and leave behind."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from chasquimq import wire
from chasquimq.job import Reason
from chasquimq.store import Holder, Kept
from tests.model.arrival import Arrivals
from tests.model.book import AHEAD, Held, ident
from tests.model.machine import (
    HOUR_MS,
    PASSED,
    few,
    nth,
    when_held,
    when_pending,
    when_silent,
    when_waiting,
    who,
)
from tests.model.site import LIMIT, NAME, Site, body

WAYS = ("ack", "ack what is ours", "finish", "bury", "retry", "retry later", "give back", "restore")
FATES = ("", "lapsed", "lapsed", "deleted", "lapsed and deleted")
how, fate = st.sampled_from(WAYS), st.sampled_from(FATES)
often = st.sampled_from([False, False, True])
MOST_DELETED = 4  # by strangers, in one program


class Consumers(Arrivals):
    deleted = 0

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
        ours = [e for e in self.book.pending(name) if not e.given_back and not e.bare]
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

    def fall_silent(self, name: str) -> None:
        """Frozen for longer than its lease: it will come back and believe to hold what it held."""
        entries = self.book.fall_silent(name)
        self.each(lambda site: site.make_silent(entries))

    @when_pending
    @rule(name=who, pause=often)
    def come_back(self, name: str, pause: bool) -> None:
        """After a crash, under the same name, and maybe into a pause."""
        self.crash(name)
        if pause:
            self.pause_or_resume(True)
            self.take_back(name)
            self.pause_or_resume(False)
        self.take_back(name)

    def take_back(self, name: str) -> None:
        """Whose body is gone is in nobody's memory."""
        left = self.book.pending(name)
        taken = [] if self.book.paused else [one for one in left if not one.bare]
        rows = self.each(lambda site: site.take_back(name))
        assert rows == [(one.number, one.deliveries) for one in taken]
        for entry in left:
            if entry.bare:
                self.book.lose(entry)
            elif entry in taken:
                self.book.take_over(name, entry)

    def pause_or_resume(self, paused: bool) -> None:
        changed = self.each(lambda site: site.pause(paused))
        assert changed is (paused is not self.book.paused)
        self.book.paused = paused

    @when_silent
    @rule(name=who, count=few, late=often, pause=often, deleted=often)
    def claim(
        self, name: str, count: int, late: bool, pause: bool = False, deleted: bool = False
    ) -> None:
        if deleted and self.deleted < MOST_DELETED:
            self.delete(next(one.number for one in self.book.stream if one.silent))
        if pause:
            self.pause_or_resume(True)
            self.claim(name, count, late)
            self.pause_or_resume(False)
        silent = [one for one in self.book.pending() if one.silent and not one.bare][:count]
        taken = [] if late or self.book.paused else silent
        rows = self.each(lambda site: site.claim(name, count, late))
        assert rows == [(one.number, one.deliveries) for one in taken]
        for entry in taken:
            self.book.take_over(name, entry)

    @when_held
    @rule(name=who, heir=who, count=few)
    def lapse(self, name: str, heir: str, count: int) -> None:
        """A lease runs out, and another takes over: two believe to hold the same."""
        self.fall_silent(self.holder(name))
        self.claim(heir, count, False)

    @when_held
    @rule(name=who, deleted=often)
    def renew(self, name: str, deleted: bool = False) -> None:
        name = self.holder(name)
        if deleted and self.deleted < MOST_DELETED:
            self.delete(self.book.hands[name][-1].number)
        held = [one.number for one in self.book.hands[name]]
        lost = [number for number in held if self.book.owned(name, number) is None]
        assert self.each(lambda site: site.renew(name, held)) == lost
        for number in held:
            entry = self.book.owned(name, number)
            if entry is not None and not entry.bare:
                entry.silent = entry.given_back = False

    # -- consumers let go of jobs ----------------------------------------------------------------

    @when_held
    @rule(some=st.lists(st.tuples(who, nth, how, fate, who), min_size=1, max_size=4))
    def settle(self, some: list[tuple[str, int, str, str, str]]) -> None:
        """One by one, in one way or another, after this or that has befallen each."""
        for one in some:
            if any(self.book.hands.values()):
                self.settle_one(*one)
                self.look()

    def settle_one(self, name: str, place: int, how: str, fate: str, heir: str) -> None:
        name = self.holder(name)
        held = self.book.hands[name][min(place, len(self.book.hands[name]) - 1)]
        if "lapsed" in fate:
            self.lapse(name, heir, 100)
        if "deleted" in fate and self.deleted < MOST_DELETED:
            self.delete(held.number)
        place = self.book.hands[name].index(held)
        if how in ("ack", "ack what is ours"):
            self.ack(name, place, how != "ack")
        elif how in ("retry", "retry later"):
            self.retry(name, place, HOUR_MS if how == "retry later" else 0)
        elif how == "give back":
            self.give_back(name, place + 1)
        else:
            getattr(self, how)(name, place)

    settle_likewise = settle  # which makes it twice as likely

    @precondition(lambda self: any(one.hint for ours in self.book.hands.values() for one in ours))
    @rule(how=st.sampled_from(["ack", "finish", "bury", "retry"]))
    def end_late(self, how: str) -> None:
        """A unique job outlives its limit: its id is the next one's, whatever becomes of it."""
        for name, hands in self.book.hands.items():
            for held in [one for one in hands if one.hint][:1]:
                self.outlive(ident(held.job), "another")
                self.settle_one(name, hands.index(held), how, "", name)

    def delete(self, number: int) -> None:
        """By a stranger's hand. Who holds it has it in memory; what waits is gone."""
        entry = self.book.entry(number)
        if entry is None or entry.bare:
            return
        self.deleted += 1
        self.each(lambda site: site.delete(number))
        if entry.owner is None:
            self.book.lose(entry)
        else:
            entry.bare = True

    def ack(self, name: str, place: int, fenced: bool) -> None:
        held = self.held(name, place)
        entry = self.book.entry(held.number)
        unique = self.unique(held)
        fenced = fenced or (entry is not None and (entry.owner is None or entry.bare))
        may = entry is not None and (entry.owner == name or not (fenced or unique))
        answer = self.each(lambda site: site.ack(name, held.number, fenced, unique))
        assert answer == int(may)
        if entry is not None and may:
            self._done(held, self.book.end(entry))

    def unique(self, held: Held) -> Holder | None:
        """Whose id is free again when this one is done."""
        return Holder(ident(held.job), self.created[held.job]) if held.hint else None

    def _done(self, held: Held, job: str) -> None:
        self.book.done.add(job)
        if held.hint:
            self.book.free(job, self.created[job])

    def finish(self, name: str, place: int) -> None:
        """The result is that of whoever held the job, and of nobody else."""
        result = b"%d" % self.book.tick()
        job_ids: list[str] = []

        def command(site: Site, name: str, held: Held) -> bytes:
            entry_id, holder = site.ids[held.number], self.unique(held)
            job_ids[:] = [ident(held.job)]
            if holder is not None:
                return site.jobs[name].free(entry_id, holder, result, 3_600)
            return site.jobs[name].finish([Kept(entry_id, ident(held.job), result)], 3_600)

        def settled(held: Held, job: str) -> None:
            self._done(held, job)
            self.book.kept[ident(job)] = result

        self.move(name, place, command, settled)
        kept = [self.book.kept.get(one) for one in job_ids]
        assert self.each(lambda site: site.shelf.store.results.get(job_ids)) == kept

    def bury(self, name: str, place: int) -> None:
        def command(site: Site, name: str, held: Held) -> bytes:
            entry_id, data = site.ids[held.number], self.body(held.job)
            hint = LIMIT if held.hint else b""
            fields = wire.pack_dead(
                data, NAME, entry_id, Reason.UNRECOVERABLE, attempt=1, unique=hint
            )
            return site.jobs[name].bury(entry_id, fields, 0, self.unique(held))

        def settled(held: Held, job: str) -> None:
            self.book.bury(job, hint=held.hint)
            if held.hint:
                self.book.free(job, self.created[job])

        self.move(name, place, command, settled)

    def move(
        self,
        name: str,
        place: int,
        command: Callable[[Site, str, Held], bytes],
        settled: Callable[[Held, str], None],
    ) -> None:
        """Moves are refused to whom the entry does not belong any more."""
        held = self.held(name, place)
        entry = self.book.owned(name, held.number)

        async def step(site: Site) -> bool:
            return bool(await site.shelf.send(command(site, name, held)))

        assert self.each(step) is (entry is not None)
        if entry is not None:
            settled(held, self.book.end(entry))

    def retry(self, name: str, place: int, delay_ms: int) -> None:
        held = self.held(name, place)
        entry, job = self.book.owned(name, held.number), held.job
        data = body(ident(job), self.created[job], self.book.attempts[job] + 1)
        score = (AHEAD if delay_ms else PASSED) + self.book.tick()

        async def step(site: Site) -> bool:
            since, member = await site.clock_ms(), wire.join_member(NAME, data)
            entry_id, unique = site.ids[held.number], self.unique(held)
            command = site.jobs[name].retry(entry_id, delay_ms, member, unique)
            moved = bool(await site.shelf.send(command))
            if moved:
                await site.settle_score(job, data, since, delay_ms, score)
            return moved

        assert self.each(step) is (entry is not None)
        if entry is not None:
            self.book.end(entry)
            self.book.attempts[job] += 1
            self.book.delayed[job] = score

    def give_back(self, name: str, count: int) -> None:
        hands = self.book.hands
        given, hands[name] = hands[name][:count], hands[name][count:]
        rows = [(one.number, one.before) for one in given]
        back = self.each(lambda site: site.give_back(name, rows))
        assert back == self.book.give_back(name, given)

    def restore(self, name: str, place: int) -> None:
        """The second half of giving back: its body was gone, and maybe it is another's by now."""
        held = self.book.hands[name][place]
        entry = self.book.entry(held.number)
        if entry is None or not entry.bare:
            return
        ours = [self.held(name, place)] if entry.owner == name else []
        back = self.each(lambda site: site.restore(name, held.number, held.before))
        assert back == self.book.give_back(name, ours)

    @rule(name=who)
    def leave(self, name: str) -> None:
        """What is left under our name without a body is in nobody's memory."""
        for entry in self.book.pending(name):
            if entry.bare:
                self.book.lose(entry)
        gone = not self.book.pending(name)
        assert self.each(lambda site: site.jobs[name].leave()) is gone
