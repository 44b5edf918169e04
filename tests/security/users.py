"""The users of the page on users, and what a server counts of what they do."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from tests.engine.desk import Desk
from tests.examples.page import ROOT, blocks
from tests.servers import DialectServer

PAGE = ROOT / "docs/how-to/users.md"
WORD = "a-long-password"  # not a secret
OPEN = {"auth", "config|resetstat"}  # what every user may, and what the test itself does
NATIVE = {  # what the page says of Redis 8.6.2 or newer, below the list
    "producer": {"xcfgset", "xinfo|stream"},
    "worker": {"xackdel", "xcfgset", "xinfo|stream"},
    "operator": {"xcfgset"},
    "spark-writer": {"xcfgset", "xinfo|stream"},
    "spark-triage": {"xcfgset", "xinfo|stream"},
    "spark-worker": {"xackdel", "xcfgset", "xinfo|stream"},
}
CALL = re.compile(r"call\('([A-Z]+)'(?:, '([A-Z]+)')?")


def roles() -> list[str]:
    """All that the page has a list for."""
    return re.findall(r"^ACL SETUSER (\S+)", PAGE.read_text(), re.MULTILINE)


def listed(role: str, *, native: bool) -> set[str]:
    """The commands of the page's list."""
    return {rule[1:] for rule in rules(role, native=native) if rule.startswith("+")}


def rules(role: str, *, native: bool) -> list[str]:
    """What the page says behind the user's name."""
    [block] = [one for one in blocks(PAGE) if f"SETUSER {role} " in one.text]
    more = NATIVE.get(role, set()) if native else set()
    return [*block.text.split()[3:], *(f"+{command}" for command in more)]


def commands(source: str) -> set[str]:
    """What a script calls, in every branch."""
    return {
        ("|".join(words) if words[0] in ("MEMORY", "XGROUP", "XINFO") else words[0]).lower()
        for words in CALL.findall(source)
    }


def is_native(server: DialectServer, role: str = "") -> bool:
    """Whether a role finds the commands of Redis 8.6.2 there. Spark's roles ask the server and
    nobody else: no dialect can be forced upon them."""
    return server.name == "redis-native" or (
        role.startswith("spark-") and server.name == "redis-portable"
    )


class Guest:
    """A user of the page, at a server that counts from now on."""

    def __init__(self, desk: Desk, role: str) -> None:
        self._desk = desk
        self._others: Counter[str] = Counter()  # what the test asks meanwhile, as another user
        said = rules(role, native=is_native(desk.server, role))
        desk.redis.execute_command("ACL", "SETUSER", role, *said)
        desk.redis.config_resetstat()
        self.url = desk.server.url.replace("redis://", f"redis://{role}:{WORD}@")
        self._ask = desk.redis.execute_command
        desk.redis.execute_command = self._count  # type: ignore[method-assign]

    def used(self) -> set[str]:
        """What it ran, in scripts as well."""
        calls = self._calls()
        return {name for name in calls if name not in OPEN and calls[name] > self._others[name]}

    def _calls(self) -> dict[str, int]:
        stats = self._desk.redis.info("commandstats")
        self._others["info"] -= 1  # which does not count itself
        return {name.removeprefix("cmdstat_"): one["calls"] for name, one in stats.items()}

    def _count(self, *words: Any, **options: Any) -> Any:
        self._others[str(words[0]).lower().replace(" ", "|")] += 1
        return self._ask(*words, **options)
