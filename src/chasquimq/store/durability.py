"""Have the server say that what was added is safe: on its disk, or on replicas.

A flush of durable adds ends with a mark and a wait, in the same write.

    SET {chasqui:<q>}:durable "" PX 1      the mark: a write of our own that leaves nothing behind
    WAITAOF 1 0 <ms>  or  WAIT <n> <ms>    until the mark, and so all before it, is there

The wait looks at what its own connection wrote last. Behind adds that were recognised, and so wrote
nothing, it would answer at once, although their first send may never have left the server's memory.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from chasquimq.config import Durability, DurabilityOptions
from chasquimq.errors import StoreError, StoreUnavailableError
from chasquimq.store.link import Link
from chasquimq.store.resp import pack
from chasquimq.wire import Keys
from chasquimq.wire.info import parse_info

IN_MEMORY = "the job is in the server's memory"


class Doubt(NamedTuple):
    """Why a flush is not confirmed. `accepted`: True, its jobs are in the server's memory; None,
    nobody knows."""

    why: str
    accepted: bool | None = True


class Witness:
    """Who must have the jobs of a flush before their adds return."""

    answers = 2

    def __init__(self, level: Durability, options: DurabilityOptions, keys: Keys) -> None:
        self.timeout_ms = options.durability_timeout_ms
        self._on_disk = level == "local"
        self._replicas = options.replicas
        count = (1, 0) if self._on_disk else (options.replicas,)
        wait = pack("WAITAOF" if self._on_disk else "WAIT", *count, self.timeout_ms)
        self.commands = pack("SET", keys.durable, "", "PX", 1) + wait

    async def check(self, link: Link) -> None:
        """Refuse a server that could not confirm, before anything is sent."""
        if not self._on_disk:
            return  # replicas come and go: each wait counts them anew
        [known] = await link.ask("COMMAND", "INFO", "waitaof")
        facts = parse_info(await link.ask("INFO", "server", "persistence"))
        if not known:
            raise _unfit("it has no WAITAOF (Redis >= 7.2 has it)", "upgrade it")
        if facts.get("aof_enabled") != "1":
            raise _unfit("it keeps no append-only file", "set appendonly yes")
        name = answers_early(facts)
        if name:
            policy = await _fsync_policy(link)
            if policy != "always":
                raise _unfit(
                    f"{name} answers WAITAOF before the data is on its disk unless appendfsync is "
                    f"always, and here it is {policy or 'unknown (CONFIG GET is refused)'}",
                    "set appendfsync always",
                )

    def doubt(self, marked: Any, waited: Any) -> Doubt | None:
        """What the answers to mark and wait leave open; None: nothing."""
        for reply in (waited, marked):
            if isinstance(reply, Exception):
                return _unasked(reply)
        limit = f"within {self.timeout_ms} ms"
        if not self._on_disk:
            if waited >= self._replicas:
                return None
            return Doubt(f"{waited} of {self._replicas} replicas confirmed {limit}; {IN_MEMORY}")
        if waited[0] >= 1:
            return None
        return Doubt(f"the server's disk did not confirm {limit}; {IN_MEMORY}")


def _unasked(reply: Exception) -> Doubt:
    if str(reply).startswith("UNBLOCKED"):
        # It is a replica now, and what it had alone it will throw away.
        return Doubt(f"the wait was broken off ({reply}); the job may be in, or not", None)
    return Doubt(f"no confirmation could be asked for ({reply}); {IN_MEMORY}")


def _unfit(what: str, fix: str) -> StoreError:
    return StoreError(
        f"this server cannot confirm durability='local': {what}; {fix}, or use durability='memory'"
    )


def answers_early(facts: dict[str, str]) -> str | None:
    """The name of a server whose WAITAOF is believed only under appendfsync always: under everysec
    it counts what it has written, but not yet synced (docs/decisions/0028-durability.md)."""
    if facts.get("server_name") == "valkey":
        return f"Valkey {facts.get('valkey_version', '')}".strip()
    version = facts.get("redis_version", "")
    return f"Redis {version}" if version.startswith("7.4.") else None


async def _fsync_policy(link: Link) -> str | None:
    try:
        reply = await link.ask("CONFIG", "GET", "appendfsync")
    except StoreUnavailableError:
        raise
    except StoreError:  # an ACL, or a provider, keeps it from us
        return None
    return str(reply[1].decode()) if len(reply) == 2 else None
