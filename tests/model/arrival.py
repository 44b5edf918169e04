"""The machine's producers: jobs that come in now or later, once, or again after a lost answer."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from chasquimq import wire
from chasquimq.job import Due
from chasquimq.store import markers
from chasquimq.store.markers import Mark
from tests.model.book import AHEAD, ONCE, UNIQUE, is_garbage
from tests.model.book import Mark as Noted
from tests.model.machine import CREATED_MS, HOUR_MS, PASSED, Machine, far, nth, skew
from tests.model.site import LIMIT, NAME, Site, body, garbage

chosen = st.sampled_from(UNIQUE + ONCE)


class Arrivals(Machine):
    # -- jobs come in ----------------------------------------------------------------------------

    @rule(count=st.sampled_from([1, 1, 2, 5]), skew_ms=skew, again=st.booleans())
    def add(self, count: int, skew_ms: int, again: bool = False) -> None:
        """Who may send the same once more, after an answer was lost, adds nothing by it."""
        jobs = [self.mint(skew_ms) for _ in range(count)]

        async def step(site: Site) -> None:
            bodies = [(job, self.body(job)) for job in jobs]
            await site.add(bodies)
            if again and site.dialect.safe_to_resend:
                await site.add(bodies)

        self.each(step)
        for job in jobs:
            self.book.arrive(job)

    @rule(place=nth, now_ms=st.integers(1, 2))
    def add_own(self, place: int, now_ms: int) -> None:
        """An id of the caller's own comes in once, however often and whenever it is added; and
        once more if a stranger removed it before a worker had it."""
        job = f"own-{place}"
        entered = self.entered.get(job)
        removed = entered is not None and all(one.number != entered for one in self.book.stream)
        if removed and self.losses:
            return  # with the group it was lost what workers had been given
        if entered is None or (removed and entered > self.book.delivered):
            self.created[job] = now_ms
            self.book.gone.discard(job)
            self.book.arrive(job, attempt=0)
            self.entered[job] = self.book.stream[-1].number
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
        self.book.delayed[job], self.book.index[job] = score, job

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
        self.book.delayed[job], self.book.index[job] = score, job
        self.book.marks[job] = Noted(0, "1")

    @rule(place=nth)
    def schedule_again(self, place: int) -> None:
        """The same command once more, after its answer was lost."""
        if place < len(self.owns):
            job, data, delay_ms = self.owns[-1 - place]
            if job in self.book.marks:
                answer = self.each(lambda site: site.schedule_once(job, data, delay_ms))
                assert answer == int(self.book.index.get(job) == job)

    @precondition(lambda self: not any(map(is_garbage, self.book.delayed)))
    @rule(size=st.integers(1, 4))
    def schedule_garbage(self, size: int) -> None:
        """Bytes that are no job, by a program that is not ours."""
        member = b"\xff" * size + b"%d" % self.book.tick()
        score = PASSED + self.book.tick()
        self.book.attempts[garbage(member)] = 0
        self.book.delayed[garbage(member)] = score
        self.each(lambda site: site.shelf.link.ask("ZADD", site.shelf.keys.delayed, score, member))

    # -- unique ids ------------------------------------------------------------------------------

    @rule(job_id=chosen, later=st.sampled_from([None, None, False, True]))
    def add_unique(self, job_id: str, later: bool | None) -> None:
        """An id comes in if nobody has it: until its job is done, or for a while."""
        number = self.book.tick()
        job, created = f"{job_id}#{CREATED_MS + number}", CREATED_MS + number
        score = None if later is None else (AHEAD if later else PASSED) + number
        mark = Noted(created if job_id in UNIQUE else 0, f"t{number}")
        free = not self.book.taken(job_id)
        assert self.each(self._bring(job_id, created, score, mark)) == int(free)
        if not free:
            return
        self.created[job], self.book.attempts[job] = created, 0
        self.book.marks[job_id] = mark
        self.sent.append((job_id, created, score, mark))
        if score is None:
            self.book.arrive(job, hint=job_id in UNIQUE)
        else:
            self.book.delayed[job], self.book.index[job_id] = score, job

    def _bring(self, job_id: str, created: int, score: int | None, mark: Noted) -> Any:
        data = body(job_id, created, 0)

        async def step(site: Site) -> Any:
            wanted = _mark(site, job_id, created, mark.token)
            if score is None:
                fields = wire.join_entry(data, NAME, wanted.hint)
                return await site.shelf.send(markers.add(site.shelf.keys, wanted, fields, 0))
            due, member = Due(score, absolute=True), wire.join_member(NAME, data)
            once = site.delayed.schedule_once(due, member, job_id, HOUR_MS, None, wanted)
            return await site.shelf.send(once)

        return step

    @precondition(lambda self: bool(self.sent))
    @rule(place=nth)
    def send_again(self, place: int) -> None:
        """An accepted add once more: nothing comes in while its id is remembered or another's."""
        job_id, created, score, mark = self.sent[-1 - min(place, len(self.sent) - 1)]
        known = self.book.marks.get(job_id)
        same = known is not None and known.token == mark.token
        if same or self.book.taken(job_id):
            answer = self.each(self._bring(job_id, created, score, mark))
            there = score is not None and self.book.index.get(job_id) == f"{job_id}#{created}"
            assert answer == int(same or there)

    @precondition(lambda self: bool(self.book.marks))
    @rule(job_id=chosen, then=st.sampled_from(["", "another", "another, and cancel"]))
    def outlive(self, job_id: str, then: str) -> None:
        """Its limit passes while its job is still there: that one is on its own, and whatever
        becomes of it, the id is the next one's."""
        self.expire(job_id)
        if "cancel" in then and self.book.findable(job_id) is None:
            self.add_unique(job_id, True)
            self.expire(job_id)
        if then:
            self.add_unique(job_id, None)
        if "cancel" in then:
            self.cancel_id(job_id)

    def expire(self, job_id: str) -> None:
        self.each(lambda site: site.forget(job_id))
        self.book.marks.pop(job_id, None)
        self.book.late |= {job for job in self.created if job.startswith(f"{job_id}#")}

    def cancel_id(self, job_id: str) -> None:
        found = self.book.findable(job_id)
        assert self.each(lambda site: site.delayed.cancel(job_id)) is (found is not None)
        if found is None:
            return
        del self.book.delayed[found], self.book.index[job_id]
        self.book.done.add(found)
        if job_id in UNIQUE:
            self.book.free(found, self.created[found])
        else:
            self.book.marks.pop(job_id, None)


def _mark(site: Site, job_id: str, created: int, token: str) -> Mark:
    keys = site.shelf.keys
    if job_id in UNIQUE:
        return markers.until_done(keys, job_id, created, int(LIMIT), token)
    return markers.for_a_while(keys, job_id, int(LIMIT), token)
