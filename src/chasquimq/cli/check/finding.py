"""A finding: what was seen, how bad it is, and the command that mends it. Pure.

Every kind of finding has a code of its own, which stays the same for ever, and one severity:
alerts and scripts go by them. `docs/reference/doctor.md` explains each.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Any

import msgspec

from chasquimq.address import DEFAULT_URL, Address


class Severity(IntEnum):
    OK = 0  # looked at, and well
    NOTE = 1  # good to know
    WARNING = 2  # jobs may be late, doubled or lost when something else fails
    PROBLEM = 3  # jobs are stuck or refused, or will be lost

    @property
    def word(self) -> str:
        return self.name.lower()


OK, NOTE, WARNING, PROBLEM = Severity


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    code: str
    severity: Severity
    text: str
    facts: Mapping[str, Any] = {}
    fix: str | None = None  # a line for a shell
    queue: str | None = None
    remedy: str | None = None  # what `--fix` does about it
    done: str | None = None  # what it did

    @property
    def part(self) -> str:
        """server, queue, python or host."""
        return self.code.partition(".")[0]

    @property
    def repaired(self) -> bool:
        return self.done is not None and self.severity is OK

    def to_dict(self) -> dict[str, Any]:
        return {
            "code": self.code,
            "severity": self.severity.word,
            "queue": self.queue,
            "text": self.text,
            "facts": dict(self.facts),
            "fix": self.fix,
            "fixable": self.remedy is not None,
            "done": self.done,
        }


class Book:
    """Where a check writes its findings; it knows how bad each kind is."""

    def __init__(self, kinds: Mapping[str, Severity], queue: str | None = None) -> None:
        self.found: list[Finding] = []
        self._kinds = kinds
        self._queue = queue

    def add(
        self,
        code: str,
        text: str,
        *,
        fix: str | None = None,
        remedy: str | None = None,
        **facts: Any,
    ) -> None:
        self.found.append(
            Finding(
                code=code,
                severity=self._kinds[code],
                text=text,
                facts=facts,
                fix=fix,
                queue=self._queue,
                remedy=remedy,
            )
        )

    @property
    def well(self) -> bool:
        """Nothing in it needs anybody."""
        return all(one.severity <= NOTE for one in self.found)


class Shell:
    """Lines to paste, for this very server. They hold no secret and no user: what mends a server
    wants an operator, whose password `redis-cli` takes from $REDISCLI_AUTH. Where ours has one,
    `chasqui` takes its URL from $CHASQUI_REDIS_URL. Of a node of a cluster: `cluster` is the
    address that leads to all of them, which `chasqui` is given."""

    def __init__(self, address: Address, cluster: Address | None = None) -> None:
        self._address = address
        self._given = cluster or address

    @property
    def follows_cluster(self) -> bool:
        return self._given.kind == "cluster"

    def redis(self, *words: object) -> str:
        return shlex.join(["redis-cli", *self._place(), *map(str, words)])

    def config(self, name: str, value: str) -> str:
        return self.redis("CONFIG", "SET", name, value)

    def cluster(self) -> str:
        """How to name the cluster that this node is of."""
        endpoint = self._address.endpoint
        if endpoint.path is not None:
            return self.redis("CLUSTER", "SLOTS")
        scheme = "rediss" if self._address.tls else "redis"
        return f"export CHASQUI_REDIS_URL={scheme}+cluster://{endpoint}"

    def chasqui(self, command: str, *names: str, options: Sequence[str] = ()) -> str:
        """`names`: of queues and specs, which strangers chose. None of them becomes an option."""
        where: list[str] = [*options]
        if self._given.password is None and str(self._given) != DEFAULT_URL:
            where += ["--redis-url", str(self._given)]
        words = [*names, *where]
        if any(name.startswith("-") for name in names):
            words = [*where, "--", *names]
        return shlex.join(["chasqui", *command.split(), *words])

    def _place(self) -> list[str]:
        address, words = self._address, []
        endpoint = address.endpoint
        if endpoint.path is not None:
            words += ["-s", endpoint.path]
        elif (endpoint.host, endpoint.port) != ("127.0.0.1", 6379):
            words += ["-h", endpoint.host, "-p", str(endpoint.port)]
        if address.tls:
            words += ["--tls", *(["--cacert", address.ca_file] if address.ca_file else [])]
        if address.db:
            words += ["-n", str(address.db)]
        return words


def worst(findings: Iterable[Finding]) -> Severity:
    return max((one.severity for one in findings), default=OK)
