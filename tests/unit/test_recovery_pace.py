"""Which suspects start when. Times are the test's own."""

from __future__ import annotations

from chasquimq.policy.recovery import FAR, SLOW_S, Pace, Suspect

MARK_S = 10.0


def suspects(count: int, consumer: bytes = b"dead", **more: object) -> list[Suspect]:
    told = {"idle_ms": 1_000, "deliveries": 1, **more}
    return [Suspect(b"%b-%d" % (consumer, n), consumer, **told) for n in range(count)]  # type: ignore[arg-type]


class Shift:
    """A pace, what waits for it, and what runs."""

    def __init__(self, waiting: list[Suspect], max_attempts: int = 25) -> None:
        self.pace = Pace(MARK_S, max_attempts)
        self.waiting = waiting
        self.running: list[Suspect] = []

    def go(self, now: float = 0.0, places: int = 1_000) -> int:
        chosen = self.pace.choose(self.waiting, now, places)
        for one in chosen:
            self.waiting.remove(one)
            self.running.append(one)
            self.pace.started(one, now)
        return len(chosen)

    def end_all(self) -> None:
        for one in self.running:
            self.pace.ended(one.entry_id)
        self.running.clear()


def test_the_number_doubles_while_runs_end() -> None:
    shift, sizes = Shift(suspects(50)), []
    while shift.waiting:
        now = SLOW_S if sizes else 0.0
        sizes.append(shift.go(now))
        assert shift.go(now) == 0
        shift.end_all()
    assert sizes == [1, 2, 4, 8, 16, 19]


def test_a_run_that_was_never_written_down_has_outlived_its_crash_after_a_mark() -> None:
    shift = Shift(suspects(7))
    assert shift.go(0.0) == 1
    assert [shift.pace.next_change(now) for now in (0.0, SLOW_S)] == [SLOW_S, MARK_S]
    assert shift.go(MARK_S - 0.1) == 0
    assert shift.go(MARK_S) == 2
    assert shift.go(2 * MARK_S) == 4


def test_a_run_that_was_written_down_has_to_run_for_longer() -> None:
    """It had begun up to a mark before it was seen, and went on for up to a mark after."""
    shift = Shift(suspects(3, ran_s=100.0))
    assert shift.go(0.0) == 1
    assert shift.go(100 + 2 * MARK_S - 0.1) == 0
    assert shift.go(100 + 2 * MARK_S) == 2


def test_what_had_run_longest_comes_last() -> None:
    long = [Suspect(b"long", b"dead", 1_000, 1, 3_600.0)]
    shift, order = Shift([*long, *suspects(5), *suspects(1, b"dead", ran_s=0.0)]), list[Suspect]()
    while shift.waiting:
        shift.go()
        order += shift.running
        shift.end_all()
    assert order[-1] == long[0]


def test_what_was_delivered_last_comes_first() -> None:
    """A killer that kills at once had been started a moment before its worker died."""
    old, new = suspects(1, b"dead", idle_ms=2_000)[0], Suspect(b"new", b"dead", 1_000, 1)
    shift = Shift([old, new])
    assert (shift.go(), shift.running) == (1, [new])


def test_as_many_start_as_there_are_places() -> None:
    shift = Shift(suspects(10))
    shift.go()
    shift.end_all()
    assert [shift.go(SLOW_S, places) for places in (0, 1, 5)] == [0, 1, 1]


def test_those_of_another_crash_do_not_wait_for_these() -> None:
    shift = Shift([*suspects(3, b"one"), *suspects(3, b"two")])
    assert shift.go() == 2
    assert {one.consumer for one in shift.running} == {b"one", b"two"}


def test_two_crashes_are_no_accident() -> None:
    shift = Shift([*suspects(2, deliveries=2), *suspects(2, b"other")])
    order = []
    while shift.waiting:
        assert shift.go() == 1
        order.append(shift.running[0].deliveries)
        # Others of one crash have a proof now.
        assert shift.go(2 * FAR * MARK_S) == (1 if order == [1] else 0)
        order += [one.deliveries for one in shift.running[1:]]
        shift.end_all()
    assert order == [1, 1, 2, 2]


def test_a_last_run_is_alone() -> None:
    shift = Shift(suspects(3), max_attempts=2)
    assert [shift.go(), shift.go(FAR * MARK_S)] == [1, 0]
    # With a single attempt there is no run left, and it is only buried.
    assert Shift(suspects(3), max_attempts=1).go() == 1


def test_at_first_they_start_one_at_a_time() -> None:
    """A killer that kills at once takes no other suspect down with it, wherever it stands."""
    shift = Shift(suspects(20))
    for number in range(10):
        assert shift.go(number * SLOW_S / 10) == 1
        shift.end_all()
    assert shift.go(SLOW_S) == 10


def test_what_had_run_for_long_does_not_hold_up_what_had_not() -> None:
    """Its lease may have run out first: then the others of its crash are seen later."""
    shift = Shift(suspects(2, ran_s=3_600.0))
    assert shift.go() == 1
    shift.waiting += [Suspect(b"short", b"dead", 1_000, 1, 5.0), Suspect(b"new", b"dead", 1_000, 1)]
    assert [shift.go(0.1), shift.go(0.1)] == [1, 0]
    assert shift.running[-1].entry_id == b"new"


def test_what_has_probably_not_run_waits_for_what_has() -> None:
    shift = Shift([*suspects(5), *[one._replace(likely=False) for one in suspects(9)[5:]]])
    long = Suspect(b"long", b"dead", 1_000, 1, 3_600.0)
    shift.waiting.insert(0, long)
    sizes = []
    while shift.waiting:
        sizes.append(shift.go(2 * SLOW_S if sizes else 0.0))
        kinds = {(one.likely, one.ran_s is None) for one in shift.running if one != long}
        assert len(kinds) < 2
        shift.end_all()
    assert sizes == [1, 2, 3, 4]  # the long one is among the third


def test_of_those_that_run_alone_the_shortest_come_first() -> None:
    shift = Shift([*suspects(1, ran_s=60.0, deliveries=3), *suspects(2, b"other", deliveries=2)])
    order = []
    while shift.waiting:
        assert shift.go() == 1
        order.append(shift.running[0].consumer)
        shift.end_all()
    assert order == [b"other", b"other", b"dead"]


def test_what_lasts_for_much_longer_than_before_is_no_suspect_any_more() -> None:
    """Nobody waits for the end of a job that hangs: neither behind it, nor to be alone."""
    shift = Shift(suspects(2, ran_s=5.0, deliveries=2))
    assert shift.go() == 1
    far = 2 * (5.0 + (2 + FAR) * MARK_S)
    assert shift.pace.next_change(5.0 + 2 * MARK_S) == far
    assert [shift.go(far - 0.1), shift.go(far)] == [0, 1]
    once = Shift([*suspects(1), *suspects(1, b"other", deliveries=2)])
    assert once.go() == 1
    assert [once.go((1 + FAR) * MARK_S - 0.1), once.go((1 + FAR) * MARK_S)] == [0, 1]


def test_a_suspect_that_was_withdrawn_proves_nothing() -> None:
    shift = Shift(suspects(3))
    shift.go()
    shift.pace.withdrawn(shift.running.pop().entry_id)
    assert shift.go() == 1
    assert shift.go() == 0


def test_what_waits_for_a_slot_is_not_proved() -> None:
    shift = Shift(suspects(3))
    assert shift.go() == 1
    shift.pace.postponed([shift.running[0].entry_id, b"another"], MARK_S - 1)
    assert [shift.go(2 * MARK_S - 2), shift.go(2 * MARK_S - 1)] == [0, 2]


def test_what_is_over_is_forgotten() -> None:
    shift = Shift(suspects(3))
    for _ in range(3):
        shift.go()
        shift.end_all()
    assert shift.go() == 0
    shift.waiting = suspects(3)
    assert shift.go() == 1
