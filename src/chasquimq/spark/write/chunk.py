"""Rows in chunks that one script call carries: bounded by rows and by bytes, and each with a digest
of what its rows say. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import NamedTuple

from chasquimq.spark.write.rows import Row

DIGEST_BYTES = 16


class Chunk(NamedTuple):
    number: int
    rows: list[Row]
    digest: bytes


def chunks(rows: Iterable[Row], most_rows: int, most_bytes: int) -> Iterator[Chunk]:
    """The same rows give the same chunks. A row larger than `most_bytes` is a chunk of its own."""
    number, size = 0, 0
    held: list[Row] = []
    for row in rows:
        weight = len(row.body) + len(row.name)
        if held and (len(held) == most_rows or size + weight > most_bytes):
            yield Chunk(number, held, digest(held))
            number, size, held = number + 1, 0, []
        held.append(row)
        size += weight
    if held:
        yield Chunk(number, held, digest(held))


def digest(rows: list[Row]) -> bytes:
    hashed = blake2b(digest_size=DIGEST_BYTES)
    # Lengths come first, so that no two lists of rows look alike when joined.
    hashed.update(b",".join([b"%d" % len(row.said) for row in rows]) + b";")
    hashed.update(b"".join([row.said for row in rows]))
    return hashed.digest()
