"""What doctor says of a queue, from facts alone."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from chasquimq.address import read_url
from chasquimq.cli.app import build_whole
from chasquimq.cli.check import queue, schedule, weight
from chasquimq.cli.check.finding import Finding, Severity, Shell
from chasquimq.cli.check.queue import check_names, check_queue
from chasquimq.job import Counts
from chasquimq.store.exam.queue import Broken, Holder, Lock, Patience, QueueFacts
from chasquimq.store.survey import Family

MINUTE, HOUR = 60_000, 3_600_000
PATIENCE = Patience(MINUTE, HOUR)
SHELL = Shell(read_url("redis://127.0.0.1:6379"))
IDMP = {"length": 3, "idmp-maxsize": 10_000, "idmp-duration": 900}
BUSY = Holder("w1", 2, 1_000, oldest_ms=2_000)
AWAY = Holder("w2", 0, 2 * HOUR)
LOCK = Lock("w1", 4_000)


def facts(**changes: Any) -> QueueFacts:
    """Those of a queue that is well, with these changes."""
    well: dict[str, Any] = {
        "counts": Counts(3, 2, 1, 0, 1, 500),
        "length": 5,
        "groups": ("default",),
        "holders": (BUSY,),
        "stream": IDMP,
        "promoter": LOCK,
        "scheduler": LOCK,
        "families": {"stream": Family(1, [b"s"], 900, 900)},
    }
    return QueueFacts(queue="mail", group="default", **{**well, **changes})


def look(seen: QueueFacts, *, native: bool = True) -> dict[str, Finding]:
    return {one.code: one for one in check_queue(seen, SHELL, PATIENCE, native=native)}


def stream_of(count: int, each: int, *, names: int = 1, lasting: int = 0) -> Family:
    return Family(count, [b"key"] * names, count * each, each, lasting)


WAITS = Counts(waiting=7, oldest_waiting_ms=5 * MINUTE)
# (code, what is different, a word of the command that mends it)
TROUBLE: list[tuple[str, dict[str, Any], str]] = [
    ("queue.not-looked-at", {"trouble": "NOPERM"}, ""),
    ("queue.unknown", {"exists": False}, "chasqui inspect"),
    ("queue.wrong-kind", {"wrong": {"dlq": "string"}}, "RENAME"),
    ("queue.paused", {"paused": "deploy"}, "chasqui resume mail"),
    ("queue.no-workers", {"counts": WAITS, "holders": ()}, "chasqui worker"),
    ("queue.backlog", {"counts": Counts(waiting=7, oldest_waiting_ms=HOUR)}, "--processes"),
    ("queue.stuck", {"holders": (Holder("w", 1, HOUR, HOUR, stuck=1), BUSY)}, "chasqui worker"),
    ("queue.ghosts", {"holders": (Holder("w", 3, HOUR, ghosts=3, ripe=2), BUSY)},
     "chasqui doctor mail --fix"),
    ("queue.dead-consumers", {"holders": (AWAY, BUSY)}, "chasqui doctor mail --fix"),
    ("queue.several-groups", {"groups": ("default", "old")}, "XINFO GROUPS"),
    ("queue.other-group", {"groups": ("crew",)}, "chasqui doctor mail --group crew"),
    ("queue.near-limit", {"length": 800_000}, "chasqui worker"),
    ("queue.full", {"length": 1_000_000}, "chasqui worker"),
    ("queue.idmp-small", {"stream": {**IDMP, "idmp-maxsize": 100}}, "IDMP-MAXSIZE 10000"),
    ("queue.delayed-stuck", {"promoter": None, "overdue": 2, "overdue_ms": 11_000}, "worker"),
    ("queue.delayed-late", {"overdue": 2, "overdue_ms": MINUTE}, ""),
    ("queue.lock-forever", {"promoter": Lock("gone", -1)}, "chasqui doctor mail --fix"),
    ("queue.specs-stuck", {"scheduler": None, "specs_overdue": 2, "specs_overdue_ms": 11_000},
     "worker"),
    ("queue.specs-late", {"specs_overdue": 2, "specs_overdue_ms": MINUTE}, ""),
    ("queue.spec-unreadable", {"unreadable": (Broken("daily", "bad bytes"),)},
     "chasqui repeatable remove mail daily"),
    ("queue.spec-aside", {"aside": (Broken("daily", "no such zone"),)},
     "chasqui repeatable resume mail daily"),
    ("queue.spec-paused", {"spec_pauses": 2}, "chasqui repeatable list mail"),
    ("queue.spec-empty", {"empty_specs": (b"old",)}, "chasqui doctor mail --fix"),
    ("queue.spec-unlisted", {"unlisted": ((b"lost", True),)},
     "chasqui repeatable remove mail lost"),
    ("queue.dead", {"counts": Counts(dead=3)}, "chasqui dlq peek mail"),
    ("queue.dead-growing", {"counts": Counts(dead=30), "dead_lately": 12}, "dlq peek mail"),
    ("queue.dead-full", {"counts": Counts(dead=80_000)}, "chasqui dlq export mail"),
    ("queue.events-large", {"events": 200_000}, "XTRIM"),
    ("queue.large", {"families": {"stream": stream_of(1, 300 << 20)}}, "MEMORY USAGE"),
    ("queue.sparse-stream",
     {"families": {"stream": stream_of(1, 65 << 20)}, "stream": {**IDMP, "radix-tree-keys": 900}},
     "XRANGE"),
    ("queue.never-expire", {"families": {"result": stream_of(5, 90, names=5, lasting=2)}}, "TTL"),
    ("queue.index-lost", {"lost_indexes": (b"{chasqui:mail}:didx:x",)}, "doctor mail --fix"),
]  # fmt: skip
GOOD = {"queue.well", "queue.bytes"}


def test_a_queue_that_is_well_has_nothing_but_good_news() -> None:
    assert set(look(facts())) == GOOD


@pytest.mark.parametrize(("code", "change", "mend"), TROUBLE, ids=[one[0] for one in TROUBLE])
def test_each_trouble_is_seen_alone_and_names_what_mends_it(
    code: str, change: dict[str, Any], mend: str
) -> None:
    found = look(facts(**change))
    assert set(found) - GOOD == {code}
    assert mend in (found[code].fix or "")
    assert ("queue.well" in found) == (found[code].severity <= Severity.NOTE)
    if found[code].remedy is not None:
        assert found[code].fix == "chasqui doctor mail --fix"


@pytest.mark.parametrize("change", [one[1] for one in TROUBLE], ids=[one[0] for one in TROUBLE])
def test_a_command_of_ours_that_is_named_exists_with_its_options(change: dict[str, Any]) -> None:
    for one in look(facts(**change)).values():
        words = shlex.split(one.fix or "")
        if words[:1] == ["chasqui"]:
            command = build_whole()
            rest = words[1:]
            while hasattr(command, "commands") and rest:
                command = command.commands[rest.pop(0)]
            known = {option for each in command.params for option in each.opts}
            assert {word for word in rest if word.startswith("--")} <= known


def test_every_kind_of_finding_is_tested_here() -> None:
    elsewhere = {"queue.name-refused", "queue.name-quoted", "queue.walk-cut"}
    told = {code for code, *_ in TROUBLE} | GOOD | elsewhere
    assert told == {**queue.KINDS, **schedule.KINDS, **weight.KINDS}.keys()


def test_a_name_that_a_shell_would_misread_is_told_and_quoted() -> None:
    seen = facts()
    seen.queue = "e mail*"
    assert look(seen)["queue.name-quoted"].fix == "chasqui inspect 'e mail*'"


def test_names_that_are_none_and_a_walk_cut_short() -> None:
    assert check_names((), True, 9) == []
    refused, cut = check_names((b"a\x07", b"\xff"), False, 5_000)
    assert (refused.code, cut.code) == ("queue.name-refused", "queue.walk-cut")
    assert "\x07" not in refused.text


def test_a_paused_queue_is_not_blamed_for_what_waits() -> None:
    waits = Counts(waiting=7, oldest_waiting_ms=HOUR)
    stuck = Holder("w", 1, HOUR, HOUR, stuck=1)
    found = look(facts(paused="1", counts=waits, holders=(stuck,)))
    assert set(found) - GOOD == {"queue.paused"}


def test_an_entry_that_its_worker_may_still_run_is_not_offered_for_removal() -> None:
    found = look(facts(holders=(Holder("w", 3, 10, ghosts=3),)))["queue.ghosts"]
    assert (found.fix, found.remedy) == (None, None)
    assert "may still run" in found.text


def test_a_consumer_that_holds_something_is_never_called_removable() -> None:
    found = look(facts(holders=(Holder("w", 1, 2 * HOUR), BUSY)))
    assert "queue.dead-consumers" not in found


@pytest.mark.parametrize(("age_ms", "code"), [(MINUTE - 1, None), (MINUTE, "queue.no-workers")])
def test_jobs_may_wait_for_two_leases_before_workers_are_missed(
    age_ms: int, code: str | None
) -> None:
    counts = Counts(waiting=1, oldest_waiting_ms=age_ms)
    assert set(look(facts(counts=counts, holders=()))) - GOOD == ({code} if code else set())


def test_idmp_settings_matter_where_they_are_used() -> None:
    small = facts(stream={"idmp-maxsize": 100, "idmp-duration": 100})
    assert "queue.idmp-small" not in look(small, native=False)


def test_what_strangers_wrote_is_escaped() -> None:
    found = look(facts(aside=(Broken("a\x1b[2Jb", "no\nzone"),)))["queue.spec-aside"]
    assert found.text.isprintable()
