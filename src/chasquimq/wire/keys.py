"""The Redis keys of one queue, as bytes. Built once per queue, then only joined.

    {chasqui:<q>}:stream            stream   jobs that wait or run
    {chasqui:<q>}:delayed           zset     members to run later, scored by due time in ms
    {chasqui:<q>}:dlq               stream   dead jobs
    {chasqui:<q>}:events            stream   what happened
    {chasqui:<q>}:repeat            zset     spec keys, scored by their next fire in ms
    {chasqui:<q>}:repeat:spec:<k>   hash     one spec, as store/specs.py draws it
    {chasqui:<q>}:result:<id>       string   what a handler returned
    {chasqui:<q>}:dlid:<id>         string   "this id was scheduled": the marker of unique ids
    {chasqui:<q>}:didx:<id>         string   the member of a delayed job, to find it by its id
    {chasqui:<q>}:promoter:lock     string   who promotes
    {chasqui:<q>}:scheduler:lock    string   who fires specs
    {chasqui:<q>}:paused            string   there while the queue is paused
    {chasqui:<q>}:started           hash     what each consumer had started: wire/started.py
    {chasqui:<q>}:unique:<id>       string   the marker of an id that is unique until done
    {chasqui:<q>}:idmp:<p>:<id>     string   our own marker where the server has no IDMP
    {chasqui:<q>}:durable           string   there for a millisecond: what durable adds wait for
    {chasqui:<q>}:spark:...         several  of Spark: spark/write/run.py, spark/act/task.py
    {chasqui:<q>}:wake              channel  "there is a new first", of delayed jobs or of specs

The braces are a hash tag: all keys of a queue live in one slot of a cluster, so scripts may
touch several of them. A brace in the name would move that border, hence `check_stored_queue_name`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from chasquimq.errors import ConfigError

MAX_QUEUE_NAME_BYTES = 200
_FORBIDDEN = re.compile(r"[{}\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_TURNS_TEXT = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")  # bidi controls


def check_queue_name(name: str) -> None:
    """ConfigError for a name that a queue should not be given.

    Beyond `check_stored_queue_name` a name is at most 200 bytes long, does not turn the direction
    of text, and is no path out of a folder: tools make file names and URLs of it.
    """
    check_stored_queue_name(name)
    size = len(name.encode())
    if size > MAX_QUEUE_NAME_BYTES:
        raise ConfigError(
            f"queue name {name[:80]!r}... has {size} bytes in UTF-8, limit is "
            f"{MAX_QUEUE_NAME_BYTES}; choose a shorter name"
        )
    found = _TURNS_TEXT.search(name)
    if found:
        raise ConfigError(
            f"queue name {name[:80]!r} holds {found[0]!r}, which turns the direction of text; "
            "leave it out"
        )
    first, *others = parts = re.split(r"[/\\]", name)
    if (others and not first) or not {".", ".."}.isdisjoint(parts):
        raise ConfigError(
            f"queue name {name[:80]!r} is a path: it begins with a slash, or has the part '.' or "
            "'..'; choose a name such as 'mail' or 'eu/mail'"
        )


def check_stored_queue_name(name: str) -> None:
    """ConfigError for a name that would break hash tags, terminals or operators' tools. Queues that
    were named before `check_queue_name` became stricter can still be looked at."""
    if not isinstance(name, str):
        raise ConfigError(f"a queue name is a str, got {type(name).__name__}: {name!r:.80}")
    if not name:
        raise ConfigError("queue name '' is empty; give the queue a name")
    found = _FORBIDDEN.search(name)
    if found:
        raise ConfigError(
            f"queue name {name[:80]!r} holds {found[0]!r}; leave out braces, control characters "
            "and lone surrogates"
        )


def _raw(part: bytes | str) -> bytes:
    return part if isinstance(part, bytes) else part.encode()


@dataclass(frozen=True, slots=True)
class Keys:
    queue: str
    tag: bytes = field(init=False, repr=False)
    stream: bytes = field(init=False, repr=False)
    delayed: bytes = field(init=False, repr=False)
    dlq: bytes = field(init=False, repr=False)
    events: bytes = field(init=False, repr=False)
    repeat: bytes = field(init=False, repr=False)
    promoter_lock: bytes = field(init=False, repr=False)
    scheduler_lock: bytes = field(init=False, repr=False)
    paused: bytes = field(init=False, repr=False)
    started: bytes = field(init=False, repr=False)
    durable: bytes = field(init=False, repr=False)
    wake: bytes = field(init=False, repr=False)

    def __post_init__(self) -> None:
        check_stored_queue_name(self.queue)
        tag = b"{chasqui:%b}:" % self.queue.encode()
        object.__setattr__(self, "tag", tag)
        named = ("stream", "delayed", "dlq", "events", "repeat", "paused", "started", "durable")
        for name in (*named, "wake"):
            object.__setattr__(self, name, tag + name.encode())
        object.__setattr__(self, "promoter_lock", tag + b"promoter:lock")
        object.__setattr__(self, "scheduler_lock", tag + b"scheduler:lock")

    def result(self, job_id: bytes | str) -> bytes:
        return b"%bresult:%b" % (self.tag, _raw(job_id))

    def dlid(self, job_id: bytes | str) -> bytes:
        return b"%bdlid:%b" % (self.tag, _raw(job_id))

    def didx(self, job_id: bytes | str) -> bytes:
        return b"%bdidx:%b" % (self.tag, _raw(job_id))

    def unique(self, job_id: bytes | str) -> bytes:
        return b"%bunique:%b" % (self.tag, _raw(job_id))

    def spec(self, key: bytes | str) -> bytes:
        return b"%brepeat:spec:%b" % (self.tag, _raw(key))

    def idmp(self, producer_id: bytes | str, job_id: bytes | str) -> bytes:
        return b"%bidmp:%b:%b" % (self.tag, _raw(producer_id), _raw(job_id))
