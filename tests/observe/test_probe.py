"""How full a queue is, asked from any thread and never for long."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest

from chasquimq import wire
from chasquimq.address import read_url
from chasquimq.observe.probe import Depths, Probe, Target
from chasquimq.store import Dialer
from tests.engine.desk import Desk


def target(desk: Desk, queue: str | None = None, **how: Any) -> Target:
    return Target(queue or desk.name, Dialer(read_url(desk.server.url)), **how)


@contextmanager
def probing(*targets: Target, **how: Any) -> Iterator[Probe]:
    probe = Probe(targets, **{"fresh_s": 0.0, **how})
    try:
        yield probe
    finally:
        probe.close()


def test_a_probe_counts_what_a_queue_holds(desk: Desk) -> None:
    for number in range(5):
        desk.put(f"job-{number}")
    desk.abandon(2)
    desk.redis.zadd(desk.keys.delayed, {b"member": 10**15})
    desk.redis.xadd(desk.keys.dlq, {b"d": b""})
    desk.redis.zadd(desk.keys.repeat, {b"spec": 10**15})
    desk.redis.set(desk.keys.paused, b"")
    with probing(target(desk, limit=100)) as probe:
        [found] = probe.look()
    assert msgspec.structs.replace(found, oldest_waiting_s=0.0) == Depths(
        queue=desk.name,
        waiting=3,
        pending=2,
        delayed=1,
        dead=1,
        repeatables=1,
        paused=True,
        limit=100,
    )
    assert found.oldest_waiting_s >= 0
    assert msgspec.json.decode(msgspec.json.encode(found), type=Depths) == found


def test_a_queue_that_is_not_there_is_empty(desk: Desk) -> None:
    with probing(target(desk)) as probe:
        assert probe.look() == [Depths(queue=desk.name)]


def test_how_long_the_oldest_has_waited_is_in_seconds(desk: Desk) -> None:
    now_ms = int(time.time() * 1000)
    desk.redis.xadd(desk.keys.stream, {b"d": b"x"}, id=f"{now_ms - 3_600_000}-1")
    with probing(target(desk)) as probe:
        [found] = probe.look()
    assert 3_590 < found.oldest_waiting_s < 4_000


def test_each_group_has_its_own_view(desk: Desk) -> None:
    desk.put("job")
    desk.abandon(1)
    with probing(target(desk), target(desk, group="other")) as probe:
        found = {one.group: (one.waiting, one.pending) for one in probe.look()}
    assert found == {"default": (0, 1), "other": (1, 0)}


def test_what_was_just_asked_is_not_asked_again(desk: Desk) -> None:
    with probing(target(desk), fresh_s=3_600.0) as probe:
        first = probe.look()
        desk.put("job")
        looks: list[list[Depths]] = []
        threads = [threading.Thread(target=lambda: looks.append(probe.look())) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert all(look is first for look in looks)
    with probing(target(desk)) as probe:
        assert [one.waiting for one in probe.look()] == [1]
        desk.put("job")
        assert [one.waiting for one in probe.look()] == [2]


def test_a_queue_that_cannot_be_counted_is_left_out_and_said_once(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    other = f"{desk.name}-other"
    desk.redis.set(wire.Keys(other).stream, "no stream")
    with probing(target(desk, other), target(desk)) as probe:
        assert [one.queue for one in probe.look()] == [desk.name]
        assert [one.queue for one in probe.look()] == [desk.name]
        assert sum("cannot be said" in line for line in caplog.messages) == 1
        desk.redis.delete(wire.Keys(other).stream)
        assert {one.queue for one in probe.look()} == {desk.name, other}


def test_a_server_that_does_not_answer_holds_nobody_up_and_old_figures_are_not_repeated(
    lone_desk: Desk,
) -> None:
    with probing(target(lone_desk), limit_s=0.3) as probe:
        assert len(probe.look()) == 1
        lone_desk.server.server.pause()
        try:
            assert probe.look() == []
        finally:
            lone_desk.server.server.resume()
        assert _until_found(probe) == [Depths(queue=lone_desk.name)]


def test_a_server_that_is_away_is_found_again(lone_desk: Desk) -> None:
    with probing(target(lone_desk), limit_s=0.5) as probe:
        lone_desk.server.server.kill()
        assert probe.look() == []  # it was never reached
        lone_desk.server.server.start()
        assert len(_until_found(probe)) == 1
        lone_desk.server.server.kill()
        assert probe.look() == []
        lone_desk.server.server.start()
        assert len(_until_found(probe)) == 1


def test_after_close_nothing_is_left(desk: Desk) -> None:
    before = threading.active_count()
    probe = Probe([target(desk)], fresh_s=0.0)
    probe.look()
    probe.close()
    assert probe.look() == []
    assert threading.active_count() == before
    Probe([]).close()  # which never looked


def _until_found(probe: Probe) -> list[Depths]:
    deadline = time.monotonic() + 20
    while not (found := probe.look()):
        assert time.monotonic() < deadline
    return found
