"""Markers of unique jobs: strings that say "a job with this id came in", for everybody.

    dlid:<id>     for a while     <token>, or 1 by the reference: who finds it adds nothing
    unique:<id>   until done      <created ms> <limit s> <token>     its job waits or runs
                                  - and the same                     it is done; for a minute more

The token tells a command that is sent again from somebody else's: the answer is the same as the
first time, even if the job is done by then. Which job the marker of a unique id stands for is told
by `wire/revival.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from chasquimq import lua
from chasquimq.store.resp import Arg, pack
from chasquimq.wire import Keys, pack_holder

MEMORY_S = 60  # how long a job that is done is remembered for those who send its add again


class Mark(NamedTuple):
    key: bytes
    value: bytes
    lives_s: int
    memory_s: int  # how long the same add is recognised, at the least
    hint: bytes  # goes with the job, so that whoever ends it looks for the marker; b"": nobody


def until_done(keys: Keys, job_id: str, created_ms: int, limit_s: int, token: str) -> Mark:
    value = pack_holder(created_ms, limit_s, token)
    memory_s = min(MEMORY_S, limit_s)
    return Mark(keys.unique(job_id), value, limit_s, memory_s, b"%d" % limit_s)


def for_a_while(keys: Keys, job_id: str, lives_s: int, token: str) -> Mark:
    return Mark(keys.dlid(job_id), token.encode(), lives_s, lives_s, b"")


def once(keys: Keys, job_id: str, lives_s: int) -> Mark:
    """The reference's, for a delayed job whose id the caller chose."""
    return Mark(keys.dlid(job_id), b"1", lives_s, lives_s, b"")


def add(keys: Keys, mark: Mark, fields: Sequence[bytes], trim: int) -> bytes:
    """A command for a pipe. Reply: 1 added, 0 somebody's job with this id is there."""
    args: tuple[Arg, ...] = (mark.value, mark.lives_s, trim, *fields)
    return pack(*lua.call("add_unique", (keys.stream, mark.key), args))
