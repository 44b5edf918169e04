"""Every script of ours is run by a rule of the machine, or is left out for a reason."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any

from chasquimq import lua
from tests.model.book import ONCE
from tests.model.care import Queue
from tests.model.site import Site
from tests.servers import DIALECTS, Servers

# What Spark reads and writes, of which tests/spark_redis has programs, and what asks for rights.
# What a dead worker had only read ahead is told by records, which no program writes:
# tests/store/test_abandoned.py has those two.
LEFT_OUT = ("spark_", "may", "started_upto", "requeue")


REACHED = {
    "abandoned": "lapse",
    "ack": "ack",  # portable; natively it is a command
    "ack_held": "ack",
    "add_once": "add_own",
    "add_own": "add_own",
    "add_unique": "add_unique",
    "adopt": "adopt",
    "bury": "bury",
    "cancel": "cancel",
    "claim": "lapse",
    "count_dead": "teardown",
    "counts": "teardown",
    "drop_empty_spec": "repair_spec",
    "drop_index": "repair_index",
    "drop_lock": "let_go_of_a_lock",
    "drop_spec": "drop_spec",
    "due": "look_at_specs",
    "finish": "finish",
    "fire": "fire",
    "free": "ack",
    "give_back": "settle",
    "leave": "leave",
    "list_specs": "teardown",
    "look": "teardown",
    "move_spec": "put_aside",
    "open_stream": "lose_group",
    "promote": "promote",
    "put_spec": "put_spec",
    "rebury": "put_back",
    "release": "let_go_of_a_lock",
    "renew": "renew",
    "replay": "replay",
    "reschedule": "reschedule",
    "restore": "settle",
    "retry": "retry",
    "schedule": "schedule_in",
    "see_pending": "teardown",
    "see_spec": "put_spec",
    "sweep": "sweep",
}

PROGRAM: list[tuple[str, tuple[Any, ...]]] = [
    ("add_own", (0, 1)),
    ("add_unique", (ONCE[0], None)),
    ("schedule_in", (0, 0)),
    ("reschedule", (0, False)),
    ("cancel", (0,)),
    ("lapse", ("w1", "w2", 2)),
    ("renew", ("w1",)),
    ("adopt", ("w1",)),
    ("ack", ("w3", 0, False)),  # the one whose id is unique
    ("ack", ("w1", 4, False)),
    ("ack", ("w1", 3, True)),
    ("read", ("w3", 4)),
    ("finish", ("w3", 0)),
    ("retry", ("w3", 0, 0)),
    ("bury", ("w3", 0)),
    ("settle", ([("w2", 0, "give back", "deleted", "w1")],)),
    ("leave", ("w1",)),
    ("come_back", ("w1", True)),
    ("promote", ("w1", 4)),
    ("sweep", ("w1", True)),
    ("let_go_of_a_lock", ("promoter", "w1", "release")),
    ("schedule", (True, 0)),
    ("repair_index", (0,)),
    ("put_back", (0, False)),
    ("replay", (4,)),
    ("put_spec", ("b",)),
    ("look_at_specs", ("w1",)),
    ("fire", ("w1", "a", 1, 0, False)),
    ("put_aside", ("b",)),
    ("repair_spec", ("b",)),
    ("let_go_of_a_lock", ("scheduler", "w1", "forever")),
    ("drop_spec", ("b",)),
    ("read", ("w1", 4)),
    ("lose_group", ()),
    ("teardown", ()),
]


def test_every_script_has_a_rule_or_a_reason() -> None:
    assert REACHED.keys() == {one for one in lua.SOURCES if not one.startswith(LEFT_OUT)}


def test_a_rule_runs_the_scripts_that_it_is_said_to_run(servers: Servers, queue_name: str) -> None:
    """A server that has forgotten all scripts knows those again that were run since."""
    ran: defaultdict[str, set[str]] = defaultdict(set)
    with asyncio.Runner() as runner:
        sites = [Site(servers.shared(one), f"{queue_name}-{one.name}") for one in DIALECTS]
        machine = Queue(runner, sites)
        try:
            for site in sites:
                runner.run(site.open())
            for rule, args in [("begin", ()), *PROGRAM]:
                for site in sites:
                    site.shelf.redis.script_flush()
                getattr(machine, rule)(*args)
                for site in sites:
                    known = site.shelf.redis.script_exists(*lua.SHA.values())
                    ran[rule] |= {
                        one for one, is_there in zip(lua.SHA, known, strict=True) if is_there
                    }
                machine.look()
        finally:
            for site in sites:
                runner.run(site.shelf.close())
    assert {one: rule for one, rule in REACHED.items() if one not in ran[rule]} == {}
