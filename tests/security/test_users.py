"""The users of the page on users: each list is enough for its role, and has nothing to spare."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine.desk import Desk
from tests.examples.page import ROOT, blocks
from tests.security.exercise import EXERCISES, Role, set_scene
from tests.servers import DialectServer

WORD = "a-long-password"  # not a secret
OPEN = {"auth", "config|resetstat"}  # what every user may, and what the test itself does


def rules(role: str, server: DialectServer) -> list[str]:
    """What the page says behind the user's name, on this server."""
    [block] = [b for b in blocks(ROOT / "docs/how-to/users.md") if f"SETUSER {role} " in b.text]
    extra = ["+xcfgset"] if role == "producer" and server.name == "redis-native" else []
    return [*block.text.split()[3:], *extra]


def used(desk: Desk) -> set[str]:
    stats = desk.redis.info("commandstats")
    return {name.removeprefix("cmdstat_") for name, one in stats.items() if one["calls"]} - OPEN


@pytest.mark.parametrize("role", EXERCISES)
async def test_a_list_is_enough_and_all_of_it_is_used(
    own_server: DialectServer, role: str, tmp_path: Path
) -> None:
    desk, said = Desk(own_server, "mail"), rules(role, own_server)
    await set_scene(desk, role)
    desk.redis.execute_command("ACL", "SETUSER", role, *said)
    url = own_server.url.replace("redis://", f"redis://{role}:{WORD}@")
    desk.redis.config_resetstat()
    await EXERCISES[role](Role(desk, url, tmp_path))
    assert used(desk) == {rule[1:] for rule in said if rule.startswith("+")}
    assert desk.redis.acl_log() == []
