"""The machine's other half: those who lead, those who operate, and what befalls servers."""

from __future__ import annotations

import sys

from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from chasquimq.store.dead import Replay
from tests.model.book import AHEAD, SPECS, UNIQUE, WHO, Mark, ident, is_garbage
from tests.model.holding import MOST_DELETED
from tests.model.machine import HOUR_MS, PASSED, far, few, nth, when_delayed, when_pending, who
from tests.model.plan import Plans
from tests.model.site import Site

role = st.sampled_from(["promoter", "scheduler"])
MOST_LOSSES = 2  # of the group in one program: each makes all else forgotten
RESTART_ONE_IN = 20
when_led = precondition(lambda self: bool(self.book.promoter or self.book.scheduler))


class Queue(Plans):
    """All rules: these beside those of producers and consumers."""

    @initialize()
    def begin(self) -> None:
        """A queue that has lived: each place holds something, one consumer has lost its leases and
        does not know, one has looked at a spec, and the id of a dead job is another's by now."""
        self.each(lambda site: site.begin())
        first, second, third = WHO
        self.add(5, 0)
        self.add_unique(UNIQUE[0], None)
        self.read(first, 6)
        self.look()
        self.fall_silent(first)
        self.claim(second, 3, False)
        self.bury(second, 0)
        self.bury(first, 5)
        self.add_unique(UNIQUE[0], None)
        self.schedule_in(0, 0)
        self.add_unique(UNIQUE[1], False)
        self.put_spec(SPECS[0])
        self.look_at_specs(first)
        self.add(2, 0)
        self.read(third, 1)

    def teardown(self) -> None:
        """What people are told of a queue is what it holds; and all that is in it can be done. Not
        after a step that failed: what follows from it would hide it."""
        if self.created and sys.exc_info()[0] is None:
            assert self.each(lambda site: site.examine()) == self.book.told()
            self.drain(WHO[-1])

    def drain(self, name: str) -> None:
        self.pause_or_resume(False)
        self.lose_lock("promoter")
        for one in WHO:
            self.crash(one)
        self.promote(name, 100)
        self.look()
        self.claim(name, 100, False)
        self.read(name, 100)
        self.look()
        numbers = [held.number for held in self.book.hands[name]]
        assert self.each(lambda site: site.ack_all(name, numbers)) == len(numbers)
        for number in numbers:
            entry = self.book.entry(number)
            assert entry is not None
            self.book.done.add(self.book.end(entry))
        self.look()
        assert all(entry.bare for entry in self.book.stream)

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
        self.cancel_id(ident(job))

    @when_delayed
    @rule(place=nth, later=far)
    def reschedule(self, place: int, later: bool) -> None:
        job = self.some(place)
        if job is None:
            return
        job_id, found = ident(job), self.book.findable(ident(job))
        delay_ms = HOUR_MS if later else 0
        score = (AHEAD if later else PASSED) + self.book.tick()

        async def step(site: Site) -> bool:
            since = await site.clock_ms()
            done = await site.reschedule(job_id, delay_ms)
            if done and found is not None:
                await site.settle_score(job_id, self.body(found), since, delay_ms, score)
            return done

        assert self.each(step) is (found is not None)
        if found is not None:
            self.book.delayed[found] = score

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
        assert done[1] == [ident(job) for job in due if job in self.created]
        assert done[2] == len([job for job in due if job not in self.created])
        for job in due:
            del self.book.delayed[job]
            if job in self.created:
                hint = ident(job) in UNIQUE and self.book.taken(ident(job))
                self.book.arrive(job, hint=hint)
                self.book.index.pop(ident(job), None)
            else:
                self.book.bury(job)

    @when_led
    @rule(which=role, name=who, how=st.sampled_from(["expires", "release", "repair", "forever"]))
    def let_go_of_a_lock(self, which: str, name: str, how: str) -> None:
        """Who does not hold it lets go of nothing, and one that expires needs no repair."""
        if how == "expires":
            self.lose_lock(which)
            return
        held = getattr(self.book, which) == name
        if how == "release":
            self.each(lambda site: site.release(which, name))
            drop = held
        else:
            drop = held and how == "forever"
            answer = self.each(lambda site: site.drop_lock(which, name, how == "forever"))
            assert answer == int(drop)
        if drop:
            setattr(self.book, which, None)

    # -- operators -------------------------------------------------------------------------------

    @rule(paused=st.booleans())
    def stop_or_go_on(self, paused: bool) -> None:
        self.pause_or_resume(paused)

    @precondition(lambda self: bool(self.book.dead or self.book.purged))
    @rule(how=st.sampled_from(["replay", "purge", "put back", "look"]), count=few)
    def operate(self, how: str, count: int) -> None:
        """On the dead."""
        if how in ("replay", "purge"):
            getattr(self, how)(count)
        else:
            self.purge(1)
            self.put_back(count - 1, how == "look")

    def replay(self, count: int) -> None:
        """The oldest of the dead that can be read and whose ids nobody has; the others stay."""
        readable = [one for one in self.book.dead if not is_garbage(one.job)][:count]
        moved = 0
        for one in readable:
            job_id, created = ident(one.job), self.created[one.job]
            if one.hint and self.book.taken(job_id):
                continue
            moved += 1
            self.book.dead.remove(one)
            self.book.arrive(one.job, attempt=0, hint=one.hint)
            if one.hint:
                self.book.marks[job_id] = Mark(created, "of a replay")
                self.book.late.discard(one.job)
        answer = self.each(lambda site: site.replay(count))
        assert answer == Replay(moved, len(readable) - moved)

    def purge(self, count: int) -> None:
        purged, self.book.dead = self.book.dead[:count], self.book.dead[count:]
        self.book.purged += purged
        assert self.each(lambda site: site.purge(count)) == len(purged)

    def put_back(self, place: int, dry_run: bool) -> None:
        """What was exported comes back once, and only if it lies there no more. What came back may
        have been purged again: that is another row."""
        rows = self.book.purged + self.book.returned + self.book.dead
        one = rows[min(place, len(rows) - 1)]
        missing = one in self.book.purged
        assert self.each(lambda site: site.put_back(one.number, dry_run)) == int(missing)
        if missing and not dry_run:
            self.book.purged.remove(one)
            self.book.returned.append(one)
            self.book.bury(one.job, hint=one.hint)

    @rule(name=who, leading=st.sampled_from([True, True, False]), deleted=st.booleans())
    def sweep(self, name: str, leading: bool, deleted: bool = False) -> None:
        """Names with nothing pending go, and of the dead what has no body; nothing else does."""
        others = [e for e in self.book.pending() if e.owner != name and not e.bare]
        if deleted and others and self.deleted < MOST_DELETED:
            self.fall_silent(others[0].owner or "")
            self.delete(others[0].number)
        self.lose_lock("promoter")
        self.promote(name if leading else WHO[WHO.index(name) - 1], 1)
        kept = {one.owner for one in self.book.pending()} - {name}
        ghosts = [one for one in self.book.pending() if one.bare and one.owner != name]
        # While all are alive to the server, what looks old may still be in somebody's memory.
        assert self.each(lambda site: site.sweep(name, living=True)) == (leading, 0)
        lost = ghosts if leading else []
        assert self.each(lambda site: site.sweep(name, living=False)) == (leading, len(lost))
        for entry in lost:
            self.book.lose(entry)
        if leading:
            assert set(self.each(lambda site: site.names())) - {name} == kept

    # -- what befalls a queue --------------------------------------------------------------------

    @precondition(lambda self: self.deleted < MOST_DELETED and bool(self.book.waiting()))
    @rule(place=nth)
    def delete_what_waits(self, place: int) -> None:
        waiting = self.book.waiting()
        self.delete(waiting[min(place, len(waiting) - 1)].number)

    @when_delayed
    @precondition(lambda self: self.deleted < MOST_DELETED)
    @rule(place=nth)
    def unschedule_behind_our_back(self, place: int) -> None:
        """An index is left, and leads nowhere."""
        job = self.some(place)
        if job not in self.book.delayed:
            return
        self.deleted += 1
        member = self.member(job)
        self.each(lambda site: site.shelf.link.ask("ZREM", site.shelf.keys.delayed, member))
        del self.book.delayed[job]
        self.book.gone.add(job)

    @precondition(lambda self: bool(self.book.index))
    @rule(place=nth)
    def repair_index(self, place: int) -> None:
        """One that leads nowhere goes, the others stay."""
        job_id = [*self.book.index][-1 - min(place, len(self.book.index) - 1)]
        idle = self.book.findable(job_id) is None
        assert self.each(lambda site: site.drop_index(job_id)) == int(idle)
        if idle:
            del self.book.index[job_id]

    @when_pending
    @precondition(lambda self: self.losses < MOST_LOSSES)
    @rule()
    def lose_group(self) -> None:
        """All that was not settled runs again, from the first entry on."""
        self.losses += 1
        self.each(lambda site: site.lose_group())
        self.book.lose_group()

    @precondition(lambda self: self.restarts > 0)
    @rule(dice=st.integers(1, RESTART_ONE_IN))
    def restart(self, dice: int) -> None:
        """Killed with what it holds on disk. It takes long, so not often."""
        if dice == RESTART_ONE_IN:
            self.restarts -= 1
            self.each(lambda site: site.restart())
