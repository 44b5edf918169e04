"""What a tracer sends along survives the wire, whatever else stands there; and a bad tracer is not
felt."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chasquimq import ConfigError, Queue, Worker, wire
from chasquimq.job import Again, Dead, Reason
from chasquimq.observe.guard import guarded
from chasquimq.trace import (
    MAX_CARRIER_BYTES,
    Batch,
    Origin,
    Run,
    pack_carrier,
    unpack_carrier,
)
from tests.tiers import examples

TRACE, SPAN = 0x4BF92F3577B34DA6A3CE929D0E0E4736, 0x00F067AA0BA902B7
PARENT = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
BATCH = Batch("q", "add", 1)
RUN = Run("q", "default", "id", "name", 1, 0, 1)

keys = st.from_regex(r"[a-z][a-z0-9_\-*/]{0,20}(@[a-z]{1,5})?", fullmatch=True)
values = st.from_regex(r"[!-+\--<>-~]{1,40}", fullmatch=True)
states = st.lists(st.tuples(keys, values), max_size=32).map(
    lambda members: ",".join(f"{key}={value}" for key, value in members)
)
origins = st.builds(
    Origin, st.integers(1, 2**128 - 1), st.integers(1, 2**64 - 1), st.integers(0, 255), states
)


# -- the carrier -------------------------------------------------------------------------------


def test_the_bytes_are_those_of_w3c() -> None:
    assert pack_carrier(Origin(TRACE, SPAN, 1)) == PARENT
    assert pack_carrier(Origin(TRACE, SPAN, 1, "a=1,b@c=2")) == PARENT + b";a=1,b@c=2"
    assert unpack_carrier(PARENT + b";a=1,b@c=2") == Origin(TRACE, SPAN, 1, "a=1,b@c=2")


@settings(max_examples=examples(40))
@given(origins)
def test_what_was_packed_is_read_again_and_never_too_long(origin: Origin) -> None:
    carrier = pack_carrier(origin)
    assert len(carrier) <= MAX_CARRIER_BYTES
    found = unpack_carrier(carrier)
    assert found is not None
    assert found[:3] == origin[:3]
    assert origin.state.startswith(found.state)
    if len(origin.state) < MAX_CARRIER_BYTES - 55:
        assert found.state == origin.state


def test_members_that_do_not_fit_are_left_out_from_the_end() -> None:
    members = [f"k{n}={'v' * 90}" for n in range(8)]
    carrier = pack_carrier(Origin(TRACE, SPAN, 1, ",".join(members)))
    assert carrier == PARENT + b";" + ",".join(members[:4]).encode()


@pytest.mark.parametrize(
    "origin",
    [Origin(0, SPAN), Origin(TRACE, 0), Origin(-1, SPAN), Origin(1 << 128, SPAN)],
)
def test_no_origin_no_carrier(origin: Origin) -> None:
    assert pack_carrier(origin) == b""


@pytest.mark.parametrize(
    "carrier",
    [
        b"",
        b"junk",
        PARENT[:-1],
        PARENT.upper(),
        b" " + PARENT,
        PARENT + b"\n",
        PARENT + b"-more",  # version 00 has no more
        b"ff" + PARENT[2:],
        b"00-" + b"0" * 32 + b"-00f067aa0ba902b7-01",
        b"00-4bf92f3577b34da6a3ce929d0e0e4736-" + b"0" * 16 + b"-01",
        PARENT + b";" + b"a" * 500,
        b"\xff\xfe" * 28,
    ],
)
def test_what_is_no_carrier_says_nothing(carrier: bytes) -> None:
    assert unpack_carrier(carrier) is None


def test_a_later_version_is_read_as_far_as_it_is_known() -> None:
    assert unpack_carrier(b"01" + PARENT[2:] + b"-more") == Origin(TRACE, SPAN, 1)


@pytest.mark.parametrize(
    "state", [b"a", b"a=", b"A=1", b"a=1,,b=2", b"a=\x1b[31m", b"a=\xff", b",".join([b"a=1"] * 33)]
)
def test_a_bad_member_costs_the_members_and_not_the_link(state: bytes) -> None:
    assert unpack_carrier(PARENT + b";" + state) == Origin(TRACE, SPAN, 1)


@given(st.binary(max_size=600))
def test_no_bytes_make_it_raise(carrier: bytes) -> None:
    unpack_carrier(carrier)
    unpack_carrier(PARENT + b";" + carrier)


# -- the entry -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [b"", b"n"])
@pytest.mark.parametrize("unique", [b"", b"60"])
@pytest.mark.parametrize("carrier", [b"", PARENT])
def test_an_entry_is_read_as_it_was_written(name: bytes, unique: bytes, carrier: bytes) -> None:
    fields = wire.join_entry(b"body", name, unique, carrier)
    assert wire.split_entry(fields) == (b"body", name)
    assert wire.unique_hint(fields) == unique
    assert wire.carrier_of(fields) == carrier
    assert (len(fields) > 4) == bool(unique or carrier), "whoever reads looks at long ones only"


@pytest.mark.parametrize("value", [b"x" * (MAX_CARRIER_BYTES + 1), None, 7])
def test_a_field_that_cannot_be_a_carrier_is_none(value: Any) -> None:
    assert wire.carrier_of([b"d", b"body", b"n", b"", b"t", value]) == b""


# -- the guard -----------------------------------------------------------------------------------


class Bad:
    """Raises in one place, and notes all calls."""

    def __init__(self, where: str, error: BaseException) -> None:
        self.where = where
        self.error = error
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name == "carrier":
            self.calls.append(name)
            if self.where == "carrier":
                raise self.error
            return PARENT

        def call(*args: Any) -> Bad:
            self.calls.append(name)
            if name == self.where:
                raise self.error
            return self

        return call


STEPS = ("sending", "carrier", "sent", "running", "enter", "failed", "leave")


def go_through(guard: Any) -> bytes:
    sending = guard.sending(BATCH)
    sending.sent(["id"], 0, [])
    run = guard.running(RUN)
    run.enter()
    run.failed(ValueError("no"), Again(1, 5))
    run.leave()
    return bytes(sending.carrier)


@pytest.mark.parametrize("error", [ValueError("no"), asyncio.CancelledError()])
@pytest.mark.parametrize("where", STEPS)
def test_a_tracer_that_raises_is_logged_and_not_felt(
    where: str, error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    tracer = Bad(where, error)
    carrier = go_through(guarded(tracer))
    assert carrier == (b"" if where in ("sending", "carrier") else PARENT)
    assert len(caplog.records) == 1
    assert caplog.records[0].getMessage().startswith("a tracer failed in ")
    assert caplog.records[0].exc_info is not None
    assert where == "enter" or "leave" in tracer.calls or where == "running"


def test_it_is_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    guard = guarded(Bad("enter", ValueError("no")))
    for _ in range(50):
        go_through(guard)
    assert len(caplog.records) == 1


def test_what_could_not_be_entered_is_not_left() -> None:
    tracer = Bad("enter", ValueError("no"))
    go_through(guarded(tracer))
    assert "leave" not in tracer.calls


def test_a_run_ends_once() -> None:
    tracer = Bad("", ValueError("no"))
    guard = guarded(tracer)
    assert guard is not None
    run = guard.running(RUN)
    run.failed(TimeoutError(), Dead(1, Reason.UNRECOVERABLE))
    run.dropped("lease lost")
    run.completed()
    assert tracer.calls == ["running", "failed"]


@pytest.mark.parametrize("carrier", ["text", 7, b"x" * (MAX_CARRIER_BYTES + 1), None])
def test_a_carrier_that_does_not_fit_is_not_sent(
    carrier: Any, caplog: pytest.LogCaptureFixture
) -> None:
    class Odd(Bad):
        pass

    tracer = Odd("", ValueError())
    tracer.carrier = carrier  # type: ignore[attr-defined]
    guard = guarded(tracer)
    assert guard is not None
    sending = guard.sending(BATCH)
    assert sending.carrier == b""
    assert len(caplog.records) == 1
    sending.sent(["id"], 0, [])
    assert tracer.calls == ["sending", "sent"], "its span still ends"


@pytest.mark.parametrize("tracing", [Bad, object(), "opentelemetry", 1])
def test_what_is_no_tracer_is_refused_when_it_is_given(tracing: Any) -> None:
    with pytest.raises(ConfigError, match="tracing takes a tracer"):
        Queue("q", tracing=tracing)
    with pytest.raises(ConfigError, match="tracing takes a tracer"):
        Worker("q", print, tracing=tracing)
