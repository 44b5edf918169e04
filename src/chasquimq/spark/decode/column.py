"""Values of one column -> Arrow. None is null; WireError where a value does not fit."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from chasquimq.errors import WireError
from chasquimq.spark.decode.page import array

TIMESTAMP = pa.timestamp("us", tz="UTC")
# What Spark calls a timestamp, and Python a datetime: the years 1 to 9999.
FIRST_US, LAST_US = -62_135_596_800_000_000, 253_402_300_799_999_999


def texts(values: Sequence[bytes | str | None] | pa.Array) -> pa.Array:
    """Bytes that may be UTF-8, without a str for each."""
    try:
        held = values if isinstance(values, pa.Array) else array(values, pa.binary())
        return held.cast(pa.string())
    except pa.ArrowInvalid:
        raise WireError("is not UTF-8") from None


def own_texts(values: Sequence[bytes | None]) -> pa.Array:
    """What an encoder of ours wrote is UTF-8: nobody looks again."""
    return array(values, pa.binary()).view(pa.string())


def numbers(values: Sequence[int | None]) -> pa.Array:
    try:
        return pa.array(values, pa.int64())
    except OverflowError:
        raise WireError("is beyond BIGINT") from None


def digits(values: Sequence[bytes | None] | pa.Array) -> pa.Array:
    """Numbers that were written as text: digits and nothing else."""
    read = texts(values)
    # Arrow itself would take signs and hexadecimal numbers too.
    if not pc.all(pc.ascii_is_decimal(read), min_count=0).as_py():
        raise WireError("is no number")
    try:
        return read.cast(pa.int64())
    except pa.ArrowInvalid:
        raise WireError("is beyond BIGINT") from None


def moments(values: Sequence[int | None]) -> pa.Array:
    """Epoch milliseconds."""
    return in_time(_from_ms(numbers(values)))


def digit_moments(values: Sequence[bytes | None] | pa.Array) -> pa.Array:
    """Epoch milliseconds that were written as text."""
    return in_time(_from_ms(digits(values)))


def id_moments(entry_ids: Sequence[bytes]) -> pa.Array:
    """The times in entry ids, `<ms>-<seq>`. From 2001 to 2286 they have 13 digits."""
    ids = array(entry_ids, pa.binary())
    if pc.all(pc.equal(pc.binary_slice(ids, 13, 14), b"-"), min_count=0).as_py():
        return digit_moments(pc.binary_slice(ids, 0, 13))
    return digit_moments([one and one.partition(b"-")[0] for one in entry_ids])


def micro_moments(values: Sequence[int | None]) -> pa.Array:
    """Epoch microseconds."""
    return in_time(numbers(values).view(TIMESTAMP))


def _from_ms(values: pa.Array) -> pa.Array:
    try:
        return values.view(pa.timestamp("ms", tz="UTC")).cast(TIMESTAMP)
    except pa.ArrowInvalid:
        raise WireError("is a time beyond the year 9999") from None


def in_time(stamps: pa.Array) -> pa.Array:
    """Timestamps, if they are within what Spark calls one."""
    ends = pc.min_max(stamps.view(pa.int64()))
    first, last = ends["min"].as_py(), ends["max"].as_py()
    if first is not None and not FIRST_US <= first <= last <= LAST_US:
        raise WireError("is a time beyond the years 1 to 9999")
    return stamps


def constant(value: str, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, pa.string()), count)
