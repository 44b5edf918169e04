"""Runs of the Spark sink that were not finished: find them, finish them, or clear them away.

A run whose driver died is found by its keys (`write/run.py` draws them). With a manifest its rows
are promised: they can be moved by anybody, at any time. Without one nothing of it was ever to be
seen, and its stages can go. Needs neither Spark nor Java.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, Literal, NamedTuple

from chasquimq.errors import StoreError
from chasquimq.spark.client import Client
from chasquimq.spark.read.names import names
from chasquimq.spark.write import move
from chasquimq.spark.write import run as runs
from chasquimq.spark.write.run import Run
from chasquimq.wire import Keys

SCRIPTS = move.SCRIPTS
TTL_MS, DEFAULT_STREAM_LEN = 86_400_000, 1_000_000  # as of the sink

# What helps: move the rest, delete it, go on without what is gone, or run the write again.
Remedy = Literal["complete", "abort", "give up", "rerun"]
Verb = Literal["complete", "abort", "give up"]


class Unfinished(NamedTuple):
    """`rows` are in the queue; `staged` are not: all that attempts have staged while the run is
    open, what is still to be moved while it is moving. `missing` were promised and are gone."""

    run: Run
    state: str
    mode: str
    age_ms: int
    idle_ms: int
    rows: int
    staged: int
    total: int | None
    missing: int
    expires_ms: int | None
    max_stream_len: int | None
    events_len: int
    ttl_ms: int
    rate: str

    @property
    def remedy(self) -> Remedy:
        if self.missing:
            return "give up"
        if self.state == runs.MOVING:
            return "complete"
        return "abort" if self.mode == "staged" else "rerun"

    def verb(self, verbs: Collection[str]) -> Verb | None:
        """Which of these helps here."""
        if self.state == runs.MOVING:
            return "give up" if "give up" in verbs else "complete" if "complete" in verbs else None
        return "abort" if "abort" in verbs and self.mode == "staged" else None

    def told(self) -> dict[str, Any]:
        """For people and programs."""
        names = ("state", "mode", "rows", "staged", "total", "missing", "age_ms", "idle_ms")
        said = {name: getattr(self, name) for name in (*names, "expires_ms", "remedy")}
        return {"run": self.run.run_id, **said}


def unfinished(client: Client, queue: str) -> list[Unfinished]:
    """The oldest first."""
    clock = client.ask("TIME")
    now_ms = int(clock[0]) * 1000 + int(clock[1]) // 1000
    looked = (_look(client, queue, key, now_ms) for key in sorted(_runs(client, queue)))
    return sorted((one for one in looked if one), key=lambda one: -one.age_ms)


def carry_out(
    client: Client,
    one: Unfinished,
    verb: Verb,
    wait_ms: int = 0,
    max_stream_len: int | None = None,
    tell: move.Tell = lambda rows, full: None,
) -> int:
    """Answers how many rows it was about: those the run has brought, or those that were deleted.

    `max_stream_len` None: as the run's writer said.
    """
    if verb == "complete":
        limit = max_stream_len or one.max_stream_len or DEFAULT_STREAM_LEN
        pace = move.Pace(limit, wait_ms, one.events_len, one.rate)
        return move.complete(client, one.run, pace, one.ttl_ms, tell)
    if verb == "abort":
        if not move.drop(client, one.run):
            raise StoreError(f"run {one.run.run_id} has got a manifest meanwhile; it is left alone")
        return one.staged
    return _give_up(client, one)


def _give_up(client: Client, one: Unfinished) -> int:
    """Delete what is promised and not moved yet. The run counts as done: rows of it are in, so it
    must not be written again."""
    deleted = 0
    for stage in list(move.promised(client, one.run)):
        deleted += client.ask("XLEN", stage)
        client.ask("UNLINK", stage)
    runs.finish(client, one.run, one.ttl_ms, give_up=True)
    move.drop(client, one.run)
    return deleted


# -- inside ----------------------------------------------------------------------------------------


def _runs(client: Client, queue: str) -> Iterator[bytes]:
    prefix = Keys(queue).tag + b"spark:"
    for some in names(client, Keys(queue), prefix, "TYPE", "hash"):
        yield from (key for key in some if b":" not in key[len(prefix) :])


def _look(client: Client, queue: str, key: bytes, now_ms: int) -> Unfinished | None:
    flat = client.ask("HGETALL", key)
    told = {name.decode(): value for name, value in zip(flat[::2], flat[1::2], strict=True)}
    state, mode = told.get("state", b"").decode(), told.get("mode", b"direct").decode()
    if state not in (runs.OPEN, runs.MOVING):
        return None
    run_id = key[len(Keys(queue).tag) + len(b"spark:") :].decode()
    run = Run(queue, run_id, told.get("query", b"").decode(), int(told.get("batch", 0)))
    if state == runs.MOVING:
        stages = list(move.promised(client, run))
    else:
        stages = sorted(client.ask("SMEMBERS", run.stages))
    staged = sum(client.ask_each([("XLEN", stage) for stage in stages]))
    moved, total = int(told.get("moved", 0)), int(told.get("total", 0))
    created_ms = int(told.get("created_ms", now_ms))
    expires_ms = int(client.ask("PTTL", key))
    limit = told.get("max_stream_len")
    return Unfinished(
        run=run,
        state=state,
        mode=mode,
        age_ms=max(0, now_ms - created_ms),
        idle_ms=max(0, now_ms - int(told.get("seen_ms", created_ms))),
        rows=int(told.get("rows", 0)),
        staged=staged,
        total=total if state == runs.MOVING else None,
        missing=max(0, total - moved - staged) if state == runs.MOVING else 0,
        expires_ms=expires_ms if expires_ms >= 0 else None,
        max_stream_len=None if limit is None else int(limit),
        events_len=int(told.get("events_len", 0)),
        ttl_ms=int(told.get("ttl_ms", TTL_MS)),
        rate=told.get("rate", b"0").decode(),
    )
