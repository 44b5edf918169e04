"""Whatever bytes stand where a job's data belong: a WireError, or data that encode alike."""

from __future__ import annotations

from chasquimq import wire
from chasquimq.errors import WireError
from chasquimq.wire.scan import read_value, scan


def check(data: bytes) -> None:
    try:
        end = scan(data)
        assert 0 < end <= len(data)
    except WireError:
        end = None
    try:
        value = wire.decode(data)
    except WireError:
        return
    assert end == len(data), "decoded without a scan, which would have refused it"
    # Compared as text, because NaN is not equal to itself.
    assert repr(read_value(data)) == repr(value), "the two readers differ"
    again = wire.encode(value)
    # No comparison of sizes: a float of 32 bits is written with 64.
    assert repr(wire.decode(again)) == repr(value)
    assert wire.encode(wire.decode(again)) == again
