"""`chasqui repeatable`, as people and programs see it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from chasquimq import wire
from chasquimq.repeat import MissedFiresPolicy, RepeatPattern
from chasquimq.sync import Queue
from tests.cli.dead import shown
from tests.cli.golden import same
from tests.cli.kit import Chasqui

__all__ = ["shown"]

FAR_MS = 4_000_000_000_000  # 2096: what fires then does not fire in a test
NINE = RepeatPattern.cron("0 9 * * MON-FRI", tz="Europe/Berlin")
TIMES = {r"\b40\d{11}\b": "EPOCH", r"\b\d{5}d\b": "DAYS"}


@contextmanager
def opened(chasqui: Chasqui, name: str) -> Iterator[Queue]:
    server = chasqui.server
    with Queue(name, redis_url=server.url, dialect=server.forced_dialect) as queue:
        yield queue


def spec(chasqui: Chasqui, queue: str, key: str) -> Any:
    with opened(chasqui, queue) as door:
        return next((one for one in door.get_repeatable_jobs() if one.key == key), None)


def fill(chasqui: Chasqui, name: str) -> None:
    """One that fires, one that is paused, one that was put aside, one that cannot be read."""
    with opened(chasqui, name) as queue:
        write, far = queue.upsert_repeatable_job, FAR_MS
        write("beat", None, repeat=RepeatPattern.every(30_000), limit=7, start_after=far)
        every = MissedFiresPolicy.fire_all(12)
        write("digest", None, repeat=NINE, start_after=far, missed_fires=every)
        write("poll", None, repeat=RepeatPattern.cron("@daily"), start_after=far, key="poll:7")
        queue.pause_repeatable("poll:7")
        write("odd", None, repeat=RepeatPattern.every(1_000), start_after=far, key="odd")
    client, keys = chasqui.server.client(), wire.Keys(name)
    client.hset(keys.spec("odd"), "spec", b"\xc1")
    client.zadd(keys.repeat, {"odd": 2**53 - 1})
    client.hset(keys.spec("odd"), "aside", f"{FAR_MS} nobody can\x1b read it")


# -- list ------------------------------------------------------------------------------------------


def test_specs_in_a_pipe(chasqui: Chasqui, queue_name: str) -> None:
    fill(chasqui, queue_name)
    ended = chasqui.call("repeatable", "list", queue_name)
    assert (ended.code, ended.err) == (0, "")
    same("repeatable-piped", ended.out, TIMES)


@pytest.mark.parametrize("columns", [80, 120])
def test_specs_in_a_terminal(shown: Chasqui, queue_name: str, columns: int) -> None:
    fill(shown, queue_name)
    with shown.open("repeatable", "list", queue_name, columns=columns, rows=40) as terminal:
        assert terminal.end() == 0
        same(f"repeatable-{columns}", terminal.text, TIMES)


def test_no_specs(chasqui: Chasqui, queue_name: str) -> None:
    ended = chasqui.call("repeatable", "list", queue_name)
    assert ended.code == 0 and "(no repeatable jobs)" in ended.out
    assert json.loads(chasqui.call("repeatable", "list", queue_name, "--json").out) == []


def test_specs_as_json_and_a_limit(chasqui: Chasqui, queue_name: str) -> None:
    fill(chasqui, queue_name)
    found = json.loads(chasqui.call("repeatable", "list", queue_name, "--json").out)
    states = {one["key"]: one["state"] for one in found}
    digest = "digest::cron:0 9 * * MON-FRI:Europe/Berlin"
    assert states == {
        "beat::every:30000": "firing", digest: "firing", "poll:7": "paused", "odd": "put aside",
    }  # fmt: skip
    assert found[0]["limit"] == 7 and found[0]["next_fire_ms"] == FAR_MS + 30_000
    some = chasqui.call("repeatable", "list", queue_name, "--limit", "3").out
    assert "there are more than these 3" in some and "poll" not in some


# -- add -------------------------------------------------------------------------------------------


def test_a_spec_is_written_and_shows_its_next_three_fires(
    chasqui: Chasqui, queue_name: str
) -> None:
    ended = chasqui.call(
        "repeatable", "add", queue_name, "bill",
        *("--cron", "0 9 1 * *", "--tz", "Europe/Berlin", "--data", '{"who": "all"}'),
        *("--limit", "5", "--start-after", "2033-01-01", "--end-before", "2034-01-01"),
        *("--missed", "fire_all:12", "--attempts", "3", "--backoff", "exponential:1s:1m"),
        *("--key", "bills"),
    )  # fmt: skip
    assert (ended.code, ended.err) == (0, "")
    lines = [re.sub(r" +[\dhdms]+$", "", line) for line in ended.out.splitlines()]
    assert lines == [
        "bills",
        "Europe/Berlin                  UTC                        epoch ms     in",
        "Sat 2033-01-01 09:00:00+01:00  2033-01-01 08:00:00Z  1988179200000",
        "Tue 2033-02-01 09:00:00+01:00  2033-02-01 08:00:00Z  1990857600000",
        "Tue 2033-03-01 09:00:00+01:00  2033-03-01 08:00:00Z  1993276800000",
    ]
    stored = spec(chasqui, queue_name, "bills")
    assert (stored.job_name, stored.limit, stored.attempts) == ("bill", 5, 3)
    assert stored.pattern == RepeatPattern.cron("0 9 1 * *", tz="Europe/Berlin")
    assert stored.missed_fires == MissedFiresPolicy.fire_all(12)
    assert stored.backoff.to_dict() == {
        "kind": "exponential", "delay_ms": 1_000, "max_delay_ms": 60_000, "multiplier": 2.0,
    }  # fmt: skip
    assert stored.end_before_ms == 2_019_686_400_000
    with opened(chasqui, queue_name) as queue:
        assert queue.run_repeatable_now("bills").data == {"who": "all"}


def test_an_interval_from_a_while_on(chasqui: Chasqui, queue_name: str) -> None:
    options = ("--every", "1h30m", "--start-after", "2h", "--backoff", "5s", "--json")
    added = json.loads(chasqui.call("repeatable", "add", queue_name, "beat", *options).out)
    assert added["key"] == "beat::every:5400000" and not added["paused"]
    seconds, _ = chasqui.server.client().time()
    first, second, third = (fire["ms"] for fire in added["next_fires"])
    assert abs(first - (seconds + 7_200 + 5_400) * 1000) < 60_000
    assert second - first == third - second == 5_400_000
    stored = spec(chasqui, queue_name, "beat::every:5400000")
    assert stored.next_fire_ms == first and stored.backoff.delay_ms == 5_000


def test_a_spec_that_is_paused_stays_so_and_says_it(chasqui: Chasqui, queue_name: str) -> None:
    assert chasqui.call("repeatable", "add", queue_name, "beat", "--every", "1h").code == 0
    assert chasqui.call("repeatable", "pause", queue_name, "beat::every:3600000").code == 0
    again = chasqui.call("repeatable", "add", queue_name, "beat", "--every", "1h")
    assert again.code == 0 and "it is paused" in again.err


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ([], "--cron EXPR or --every TIME"),
        (["--cron", "@daily", "--every", "1h"], "one of the two"),
        (["--every", "1h", "--tz", "UTC"], "--tz goes with --cron"),
        (["--every", "often"], "--every: 'often' is no duration"),
        (["--every", "0s"], "interval_ms"),
        (["--cron", "0 9 * *"], "CMQ-004"),
        (["--cron", "0 9 * * *", "--tz", "Europe/Berln"], "'Europe/Berlin'"),
        (["--every", "1h", "--data", "{"], "--data is no JSON"),
        (["--every", "1h", "--missed", "fire_al:3"], "did you mean 'fire_all:N'?"),
        (["--every", "1h", "--missed", "fire_all"], "fire_all:100"),
        (["--every", "1h", "--backoff", "exponential:1s:2s:3s"], "is no backoff"),
        (["--every", "1h", "--backoff", "soon"], "--backoff: 'soon' is no duration"),
        (["--every", "1h", "--end-before", "2020-01-01"], "before its first fire"),
    ],
)
def test_what_makes_no_sense_is_refused(shown: Chasqui, options: list[str], says: str) -> None:
    ended = shown.call("repeatable", "add", "nobody", "beat", *options)
    assert (ended.code, ended.out) == (2, "")
    assert says in ended.err
    assert not shown.server.client().exists(wire.Keys("nobody").repeat)


# -- remove, pause, resume, run --------------------------------------------------------------------


def test_remove_says_removed_or_not_found(chasqui: Chasqui, queue_name: str) -> None:
    fill(chasqui, queue_name)
    ended = chasqui.call("repeatable", "remove", queue_name, "poll:7")
    assert (ended.code, ended.out, ended.err) == (0, "removed\n", "")
    assert spec(chasqui, queue_name, "poll:7") is None
    again = chasqui.call("repeatable", "remove", queue_name, "poll:7", "--json")
    assert again.code == 1
    assert json.loads(again.out) == {"key": "poll:7", "outcome": "not found"}


@pytest.mark.parametrize("verb", ["remove", "pause", "resume", "run", "next"])
def test_an_unknown_key_names_the_nearest(chasqui: Chasqui, queue_name: str, verb: str) -> None:
    fill(chasqui, queue_name)
    ended = chasqui.call("repeatable", verb, queue_name, "pol:7")
    assert ended.code == 1
    assert "did you mean 'poll:7'?" in ended.err
    assert ended.out == ("" if verb in ("run", "next") else "not found\n")


def test_pause_and_resume(chasqui: Chasqui, queue_name: str) -> None:
    fill(chasqui, queue_name)
    key = "beat::every:30000"
    for verb, says, paused in [
        ("pause", "paused", True),
        ("pause", "paused already", True),
        ("resume", "resumed", False),
        ("resume", "firing already", False),
    ]:
        ended = chasqui.call("repeatable", verb, queue_name, key)
        assert (ended.code, ended.out) == (0, f"{says}\n")
        assert spec(chasqui, queue_name, key).paused == paused
    aside = chasqui.call("repeatable", "pause", queue_name, "odd")
    assert aside.out == "put aside: nobody can\\x1b read it\n"
    unreadable = chasqui.call("repeatable", "resume", queue_name, "odd")
    assert unreadable.code == 2 and "cannot be read" in unreadable.err


def test_run_prints_the_jobs_id(chasqui: Chasqui, queue_name: str) -> None:
    fill(chasqui, queue_name)
    ended = chasqui.call("repeatable", "run", queue_name, "poll:7")
    [(_, fields)] = chasqui.server.client().xrange(wire.Keys(queue_name).stream)
    assert ended.out == f"{wire.unpack_envelope(fields[b'd']).id}\n"
    assert ended.out.startswith("poll:7@")


# -- next ------------------------------------------------------------------------------------------


def test_fires_in_the_zone_and_in_utc_over_a_change_of_the_clock(shown: Chasqui) -> None:
    options = ("--cron", "30 2 * * *", "--tz", "Europe/Berlin", "--after", "2033-03-26", "-n", "3")
    ended = shown.call("repeatable", "next", "nobody", *options)
    assert ended.code == 0
    assert re.sub(r" +\d+d\d*h?", "  DAYS", ended.out).splitlines()[1:] == [
        "Sat 2033-03-26 02:30:00+01:00  2033-03-26 01:30:00Z  1995413400000  DAYS",
        "Sun 2033-03-27 03:00:00+02:00  2033-03-27 01:00:00Z  1995498000000  DAYS",
        "Mon 2033-03-28 02:30:00+02:00  2033-03-28 00:30:00Z  1995582600000  DAYS",
    ]


def test_fires_of_a_spec_end_with_its_limit(chasqui: Chasqui, queue_name: str) -> None:
    fill(chasqui, queue_name)
    found = json.loads(
        chasqui.call("repeatable", "next", queue_name, "beat::every:30000", "--json").out
    )
    assert [fire["ms"] - FAR_MS for fire in found] == [30_000 * n for n in range(1, 8)]
    assert found[0]["at"] == "2096-10-02T07:07:10+00:00"


def test_next_wants_a_key_or_a_pattern(shown: Chasqui) -> None:
    for options in ([], ["digest", "--every", "1h"]):
        ended = shown.call("repeatable", "next", "nobody", *options)
        assert ended.code == 2 and "KEY" in ended.err
