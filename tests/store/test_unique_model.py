"""Unique until done, against a model: whatever happens in whatever order, one live job per id.

Every step of a job's life is one script, so interleavings of processes are sequences of these.
Live are jobs that wait, run or are delayed. One whose limit has passed is on its own: it runs, but
its id is free.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chasquimq import wire
from chasquimq.job import Due, Envelope
from chasquimq.store import Holder, Jobs, markers
from tests.store.faulty import wipe
from tests.store.shelf import GROUP, Shelf

KEYS = ("a", "b")
WHO = ("w1", "w2")
key, who = st.sampled_from(KEYS), st.sampled_from(WHO)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), key, st.booleans()),
        st.tuples(st.just("send again"), st.integers(0, 5)),
        st.tuples(st.sampled_from(["read", "finish", "retry", "bury", "steal"]), who),
        st.tuples(st.sampled_from(["cancel", "expire"]), key),
        st.tuples(st.just("promote")),
    ),
    max_size=40,
)


@dataclass
class World:
    """What was sent, who holds what, and which jobs have outlived their limits."""

    shelf: Shelf
    jobs: dict[str, Jobs]
    clock_ms: int = 1_700_000_000_000
    sent: list[tuple[str, bytes]] = field(default_factory=list)
    held: dict[str, list[tuple[bytes, Envelope]]] = field(
        default_factory=lambda: {one: [] for one in WHO}
    )
    late: set[tuple[str, int]] = field(default_factory=set)
    forgotten: set[bytes] = field(default_factory=set)  # commands the server knows no more

    def live(self) -> list[tuple[str, int]]:
        bodies = [fields[b"d"] for _, fields in self.shelf.entries()]
        bodies += [wire.split_member(one)[1] for one in self.shelf.delayed()]
        envelopes = [wire.unpack_envelope(body) for body in bodies]
        return [(one.id, one.created_at_ms) for one in envelopes]

    def protected(self) -> Counter[str]:
        return Counter(
            job_id for job_id, created in self.live() if (job_id, created) not in self.late
        )

    # -- steps -----------------------------------------------------------------------------------

    async def add(self, job_id: str, delayed: bool) -> None:
        self.clock_ms += 1
        keys, taken = self.shelf.keys, self.protected()[job_id]
        mark = markers.until_done(keys, job_id, self.clock_ms, 100, f"t{self.clock_ms}")
        body = wire.pack_envelope(Envelope(job_id, b"\xc0", self.clock_ms))
        if delayed:
            member, due = wire.join_member(b"n", body), Due(1, absolute=True)
            command = self.shelf.store.delayed.schedule_once(due, member, job_id, 1, None, mark)
        else:
            command = markers.add(keys, mark, wire.join_entry(body, b"n", mark.hint), 0)
        answer = await self.shelf.send(command)
        assert answer == (0 if taken else 1), f"{job_id} is {'taken' if taken else 'free'}"
        if answer:
            self.sent.append((job_id, command))

    async def send_again(self, nth: int) -> None:
        """The answer to an accepted add was lost: the same command comes once more."""
        if nth < len(self.sent) and self.sent[-1 - nth][1] not in self.forgotten:
            before = self.live()
            await self.shelf.send(self.sent[-1 - nth][1])
            assert sorted(self.live()) == sorted(before)

    async def read(self, name: str) -> None:
        for row in await self.shelf.send(self.jobs[name].read(2, 1)) or ():
            for entry_id, fields in row[1]:
                self._take(name, entry_id, fields[1])

    async def steal(self, name: str) -> None:
        for other in WHO:
            if other != name and self.held[other]:
                entry_id, envelope = self.held[other][0]  # who does not learn of it
                self.shelf.redis.xclaim(self.shelf.keys.stream, GROUP, name, 0, [entry_id])
                self.held[name].append((entry_id, envelope))

    def _take(self, name: str, entry_id: bytes, body: bytes) -> None:
        self.held[name].append((entry_id, wire.unpack_envelope(body)))

    async def settle(self, name: str, how: str) -> None:
        if not self.held[name]:
            return
        entry_id, envelope = self.held[name].pop(0)
        jobs, holder = self.jobs[name], Holder(envelope.id, envelope.created_at_ms)
        if how == "finish":
            command = jobs.free(entry_id, holder)
        elif how == "bury":
            command = jobs.bury(entry_id, [b"d", b"x"], 0, holder)
        else:
            again = wire.join_member(b"n", wire.pack_envelope(envelope))
            command = jobs.retry(entry_id, 0, again, holder)
        await self.shelf.send(command)

    async def expire(self, job_id: str) -> None:
        self.shelf.redis.delete(self.shelf.keys.unique(job_id))
        self.late |= {job for job in self.live() if job[0] == job_id}
        self.forgotten |= {command for owner, command in self.sent if owner == job_id}

    async def cancel(self, job_id: str) -> None:
        await self.shelf.store.delayed.cancel(job_id)

    async def promote(self) -> None:
        for member in self.shelf.delayed():  # due, whatever the clock says
            self.shelf.redis.zadd(self.shelf.keys.delayed, {member: 1})
        await self.shelf.store.delayed.promote("me", 5, 100)

    async def do(self, step: tuple[Any, ...]) -> None:
        verb, *rest = step
        if verb in ("finish", "retry", "bury"):
            await self.settle(rest[0], verb)
        else:
            await getattr(self, verb.replace(" ", "_"))(*rest)
        for job_id, count in self.protected().items():
            assert count <= 1, f"{count} live jobs {job_id!r} after {step}"

    async def drain(self) -> None:
        """Everything ends; then every id is free."""
        for _ in range(200):
            await self.promote()
            await self.read(WHO[0])
            for one in WHO:
                await self.settle(one, "finish")
            if not self.live() and not any(self.held.values()):
                break
        assert self.live() == []
        for job_id in KEYS:
            await self.add(job_id, False)


@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
async def test_at_most_one_live_job_per_id(shelf: Shelf, steps: list[tuple[Any, ...]]) -> None:
    wipe(shelf)
    await shelf.join()
    world = World(shelf, {name: shelf.jobs(name) for name in WHO})
    for step in steps:
        await world.do(step)
    await world.drain()
