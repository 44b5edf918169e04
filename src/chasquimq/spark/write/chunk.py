"""Rows in chunks that one script call carries: bounded by rows and bytes, each with a digest. Pure.

The same rows give the same chunks, however they were batched: a retry compares chunk by chunk. A
digest ends with the number of rows, so that a retry can cut as was cut before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import NamedTuple

from chasquimq.spark.options import SinkOptions
from chasquimq.spark.write.rows import Rows

DIGEST_BYTES, COUNT_BYTES = 16, 2
NARROW, WIDE = 2, 4


class Chunk(NamedTuple):
    """`args` are as `lua/part_spark_row.lua` takes rows, so many for each as `width` says:

    2    envelope, name                   all of them at once
    4    envelope, name, due, own id      some are to run later
    """

    number: int
    rows: int
    width: int
    args: list[bytes]
    digest: bytes


def most_rows(options: SinkOptions) -> int:
    """A chunk comes in as a whole, so room for one must come while workers still have jobs; and at
    a low rate a large one would be a flood, and then a long silence."""
    most = min(options.chunk_rows, max(1, options.max_stream_len // 4))
    if options.rows_per_second is not None:
        # Half of what may come in at once (see lua/part_spark_rate.lua): one that is late by the
        # time of a chunk is no slower for it.
        most = min(most, max(1, int(min(options.rows_per_second, 1_000) / 8)))
    return most


def rate(options: SinkOptions) -> str:
    """Rows per second, as scripts take it."""
    return f"{options.rows_per_second or 0:.17g}"


def sizes(marker: bytes) -> list[int]:
    """How many rows the chunks have whose digests these are."""
    ends = range(DIGEST_BYTES, len(marker) + 1, DIGEST_BYTES)
    return [int.from_bytes(marker[end - COUNT_BYTES : end], "big") for end in ends]


def chunks(
    batches: Iterable[Rows],
    most_rows: int,
    most_bytes: int,
    *,
    wide: bool = False,
    known: Sequence[int] = (),
) -> Iterator[Chunk]:
    """A row larger than `most_bytes` is a chunk of its own. `wide`: all of them have four.

    `known`: the first chunks have so many rows, whatever the limits are.
    """
    number = 0
    held: list[bytes] = []
    for rows in batches:
        held += _flat(rows)
        at = 0
        while at < len(held):
            most = known[number] if number < len(known) else most_rows
            part, full = held[at : at + most * WIDE], False
            if number >= len(known):
                part, full = _fitting(part, most_bytes)
            if not full and len(part) < most * WIDE:
                break  # the next batch may have more for it
            at += len(part)
            yield _chunk(number, part, wide)
            number += 1
        del held[:at]
    if held:
        yield _chunk(number, held, wide)


def _flat(rows: Rows) -> list[bytes]:
    flat = [b""] * (len(rows.bodies) * WIDE)
    for place, column in enumerate(rows):
        if column is not None:
            flat[place::WIDE] = column
    return flat


def _fitting(args: list[bytes], most_bytes: int) -> tuple[list[bytes], bool]:
    """Those of the first rows that fit, of one row at the least; and whether no other would."""
    if sum(map(len, args)) <= most_bytes:
        return args, False
    size = sum(map(len, args[:WIDE]))
    for at in range(WIDE, len(args), WIDE):
        size += sum(map(len, args[at : at + WIDE]))
        if size > most_bytes:
            return args[:at], True
    return args, True


def _chunk(number: int, args: list[bytes], wide: bool) -> Chunk:
    rows, width = len(args) // WIDE, WIDE
    if not wide and not any(args[2::WIDE]):
        narrow = [b""] * (rows * NARROW)
        narrow[::NARROW], narrow[1::NARROW] = args[::WIDE], args[1::WIDE]
        args, width = narrow, NARROW
    return Chunk(number, rows, width, args, digest(args, rows))


def digest(args: list[bytes], rows: int) -> bytes:
    # Lengths come first, so that no two lists look alike when joined.
    lengths = str([*map(len, args)]).encode()
    of_args = blake2b(lengths + b"".join(args), digest_size=DIGEST_BYTES - COUNT_BYTES).digest()
    return of_args + rows.to_bytes(COUNT_BYTES, "big")
