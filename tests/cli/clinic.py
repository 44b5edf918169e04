"""A server of one's own to make ill, and what doctor says of it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import redis

from chasquimq import wire
from chasquimq.job import Envelope
from tests.cli.kit import Chasqui, Ended
from tests.servers import DialectServer

Report = dict[str, dict[str, Any]]


class Clinic:
    def __init__(self, server: DialectServer) -> None:
        self.server = server
        self.chasqui = Chasqui(server)
        self.redis: redis.Redis = server.client()

    @property
    def native(self) -> bool:
        return self.server.name == "redis-native"

    @property
    def knows_idmp(self) -> bool:
        return self.server.name != "valkey"

    def doctor(self, *args: str) -> Ended:
        return self.chasqui.call("doctor", *args)

    def report(self, *args: str, url: str | None = None) -> Report:
        """The findings by their codes. Of this side there is nothing in it: that is the machine's
        affair, and no two are alike."""
        where = () if url is None else ("--redis-url", url)
        ended = self.doctor("--json", *args, *where)
        assert ended.err == ""
        found = json.loads(ended.out)
        return {one["code"]: one for one in found if one["code"].startswith(("server", "queue"))}

    def bad(self, *args: str, url: str | None = None) -> dict[str, str]:
        """Only what is not well: code and severity."""
        return {
            code: one["severity"]
            for code, one in self.report(*args, url=url).items()
            if one["severity"] in ("warning", "problem")
        }

    @contextmanager
    def setting(self, **values: str) -> Iterator[None]:
        """Other settings for a while; `_` in a name stands for `-`."""
        named = {name.replace("_", "-"): value for name, value in values.items()}
        before = {name: self.redis.config_get(name)[name] for name in named}
        for name, value in named.items():
            self.redis.config_set(name, value)
        try:
            yield
        finally:
            for name, value in before.items():
                self.redis.config_set(name, value)

    def digest(self) -> dict[bytes, Any]:
        """Every key of the server, byte by byte, when it expires, and how often anything at all
        was written."""
        found: dict[bytes, Any] = {
            key: (self.redis.dump(key), self.redis.pexpiretime(key)) for key in self.redis.keys("*")
        }
        found[b""] = self.redis.info("persistence")["rdb_changes_since_last_save"]
        return found


class Patient:
    """A queue that a test brings into some state by hand."""

    def __init__(self, clinic: Clinic, name: str) -> None:
        self.name = name
        self.keys = wire.Keys(name)
        self.redis = clinic.redis
        self.server = clinic.server
        self._idmp = clinic.knows_idmp

    def add(self, count: int = 1) -> list[bytes]:
        job = Envelope("job", b"\xc0", 1_700_000_000_000)
        fields = {"d": wire.pack_envelope(job), "n": "x"}
        return [self.redis.xadd(self.keys.stream, fields) for _ in range(count)]

    def group(self, name: str = "default") -> None:
        self.redis.xgroup_create(self.keys.stream, name, "0", mkstream=True)
        if self._idmp:
            self.redis.execute_command(
                "XCFGSET", self.keys.stream, "IDMP-MAXSIZE", 10_000, "IDMP-DURATION", 900
            )

    def hold(self, consumer: str, count: int = 1) -> None:
        self.redis.xreadgroup("default", consumer, {self.keys.stream: ">"}, count=count)


def wait_for(seen: Callable[[], bool]) -> None:
    """Until it holds, which is usually at once."""
    deadline = time.monotonic() + 20
    while not seen():
        assert time.monotonic() < deadline, "it never came to be"
        time.sleep(0.005)
