"""The machine's other half: those who lead, those who operate, and what befalls servers."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from chasquimq.job import Due
from chasquimq.store.specs import Fired
from tests.model.book import AHEAD, SPECS, WHO
from tests.model.machine import (
    HOUR_MS,
    PASSED,
    Machine,
    far,
    few,
    nth,
    when_delayed,
    when_pending,
    who,
)
from tests.model.site import Site, is_garbage
from tests.store.drawer import firing, spec

key = st.sampled_from(SPECS)
FIRED_MS = 1_700_000_000_000  # as `firing` makes envelopes
MOST_LOSSES = 2  # of the group in one program: each makes all else forgotten


class Queue(Machine):
    """All rules: these beside those of producers and consumers."""

    losses = 0

    # -- delayed jobs ----------------------------------------------------------------------------

    def some(self, place: int) -> str | None:
        """A job, of those that came in last; a delayed one, if there is any."""
        jobs = [job for job in self.book.delayed if job in self.created] or list(self.created)
        return jobs[-1 - place] if place < len(jobs) else None

    @when_delayed
    @rule(place=nth)
    def cancel(self, place: int) -> None:
        job = self.some(place)
        if job is None:
            return
        there = self.book.findable(job)
        assert self.each(lambda site: site.delayed.cancel(job)) is there
        if there:
            del self.book.delayed[job]
            self.book.done.add(job)
            self.cancelled.add(job)

    @when_delayed
    @rule(place=nth, later=far)
    def reschedule(self, place: int, later: bool) -> None:
        job = self.some(place)
        if job is None:
            return
        there, delay_ms = self.book.findable(job), HOUR_MS if later else 0
        score, data = (AHEAD if later else PASSED) + self.book.tick(), self.body(job)

        async def step(site: Site) -> bool:
            since = await site.clock_ms()
            done = await site.delayed.reschedule(job, Due(delay_ms))
            if done:
                await site.settle_score(job, data, since, delay_ms, score)
            return done

        assert self.each(step) is there
        if there:
            self.book.delayed[job].score = score

    @when_delayed
    @rule(name=who, batch=few)
    def promote(self, name: str, batch: int) -> None:
        leads = self.book.promoter in (None, name)
        done = self.each(lambda site: site.promote(name, batch))
        assert done[0] is leads
        if not leads:
            return
        self.book.promoter = name
        due = self.book.due(batch)
        assert done[1] == [job for job in due if job in self.created]
        assert done[2] == len([job for job in due if job not in self.created])
        for job in due:
            del self.book.delayed[job]
            if job in self.created:
                self.book.arrive(job)
            else:
                self.book.dead.append(job)

    @rule(which=st.sampled_from(["promoter", "scheduler"]))
    def lose_lock(self, which: str) -> None:
        """It expired, and its holder does not know."""
        self.each(lambda site: site.shelf.link.ask("DEL", site.lock(which)))
        setattr(self.book, which, None)

    # -- operators -------------------------------------------------------------------------------

    @rule(paused=st.booleans())
    def pause_or_resume(self, paused: bool) -> None:
        changed = self.each(lambda site: site.pause(paused))
        assert changed is (paused is not self.book.paused)
        self.book.paused = paused

    @precondition(lambda self: bool(self.book.dead))
    @rule(count=few)
    def replay(self, count: int) -> None:
        """The oldest of the dead that can be read; the others stay where they are."""
        readable = [job for job in self.book.dead if not is_garbage(job)][:count]
        assert self.each(lambda site: site.replay(count)) == len(readable)
        for job in readable:
            self.book.dead.remove(job)
            self.book.arrive(job, attempt=0)

    @rule(name=who)
    def sweep(self, name: str) -> None:
        """Names with nothing pending go, and nothing else does."""
        leads = self.book.promoter == name
        assert self.each(lambda site: site.sweep(name)) == (leads, 0)
        if leads:
            names = set(self.each(lambda site: site.names())) - {name}
            assert names == {one.owner for one in self.book.pending()} - {name}

    @when_pending
    @precondition(lambda self: self.losses < MOST_LOSSES)
    @rule()
    def lose_group(self) -> None:
        """All that was not settled runs again, from the first entry on."""
        self.losses += 1
        self.each(lambda site: site.lose_group())
        self.book.lose_group()

    @precondition(lambda self: self.restarts > 0)
    @rule()
    def restart(self) -> None:
        self.restarts -= 1
        self.each(lambda site: site.restart())

    # -- specs -----------------------------------------------------------------------------------

    @rule(name=key)
    def put_spec(self, name: str) -> None:
        score, edition = 10_000 * self.book.tick(), self.book.tick()
        packed = spec(name, payload=b"%d" % edition)

        async def step(site: Site) -> bool:
            _, seen = await site.shelf.store.specs.see(name)
            return await site.shelf.store.specs.put(seen, packed, b"", score)

        assert self.each(step) is True
        self.book.specs[name] = (score, edition)

    @precondition(lambda self: bool(self.book.specs))
    @rule(name=key)
    def drop_spec(self, name: str) -> None:
        there = self.book.specs.pop(name, None) is not None
        assert self.each(lambda site: site.shelf.store.specs.drop(name)) is there

    @rule(name=who)
    def look_at_specs(self, name: str) -> None:
        """What a scheduler sees now it may fire much later, and another beside it."""
        leads = self.book.scheduler in (None, name)
        assert self.each(lambda site: site.look(name)) == (sorted(self.book.specs) if leads else -1)
        if leads:
            self.book.scheduler = name
            self.book.sights[name] = dict(self.book.specs)

    @precondition(lambda self: any(self.book.sights.values()))
    @rule(name=who, which=key, windows=st.integers(0, 3))
    def fire(self, name: str, which: str, windows: int) -> None:
        seen = self.book.sights.get(name, {}).get(which)
        if seen is None:
            return
        moments = range(seen[0], seen[0] + windows)
        then = seen[0] + windows + 1

        async def step(site: Site) -> Any:
            one = firing(site.sights[name][which], *moments, then=then)
            return (await site.shelf.store.specs.fire(name, [one]))[0]

        leads, same = self.book.scheduler == name, self.book.specs.get(which) == seen
        done = leads and same
        assert self.each(step) == (Fired(True, windows, False) if done else Fired(leads))
        if done:
            for at_ms in moments:
                job = f"{which}@{at_ms}"
                assert job not in self.created, "the model itself fired a window twice"
                self.created[job] = FIRED_MS
                self.book.arrive(job, attempt=0)
            self.book.specs[which] = (then, seen[1])

    @precondition(lambda self: bool(self.book.specs))
    @rule(name=who, which=key)
    def look_while_another_changes_it(self, name: str, which: str) -> None:
        """Two leaders with the same view, or a spec that is removed while it fires."""
        self.look_at_specs(name)
        self.lose_lock("scheduler")
        other = WHO[WHO.index(name) - 1]
        self.look_at_specs(other)
        self.fire(other, which, 1)
        self.lose_lock("scheduler")
        self.look_only_for_the_lock(name)
        self.fire(name, which, 1)

    def look_only_for_the_lock(self, name: str) -> None:
        """It leads again, and still goes by what it saw before."""
        before = {site.name: site.sights.get(name) for site in self.sites}
        known = self.book.sights.get(name)
        self.look_at_specs(name)
        for site in self.sites:
            site.sights[name] = before[site.name] or {}
        self.book.sights[name] = known or {}
