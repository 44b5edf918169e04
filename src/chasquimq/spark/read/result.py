"""Results of a queue, found by a walk over the keys of the database."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from chasquimq.spark.client import Client
from chasquimq.spark.read.names import names
from chasquimq.spark.read.scan import PAGE_BYTES, Page
from chasquimq.wire import Keys
from chasquimq.wire.fault import Fault, as_error, classify


def results(client: Client, keys: Keys, most: int) -> Iterator[Page]:
    """`(job id, value, ttl in ms or -1)`. What expires meanwhile and what is no string is left
    out, as it is for whoever asks for a result."""
    prefix = keys.result("")
    for some in names(client, keys, prefix):
        for chunk in _chunks(client, some, most):
            page = _page(client, prefix, chunk)
            if page:
                yield page


def _chunks(client: Client, found: list[bytes], most: int) -> Iterator[dict[bytes, int]]:
    """Keys and how long they live, as many as fit into a page."""
    asked = client.ask_each([(verb, name) for name in found for verb in ("STRLEN", "PTTL")])
    chunk: dict[bytes, int] = {}
    size = 0
    for name, length, ttl in zip(found, asked[::2], asked[1::2], strict=True):
        if not _there(length, ttl):
            continue
        if chunk and (len(chunk) == most or size + length > PAGE_BYTES):
            yield chunk
            chunk, size = {}, 0
        chunk[name] = ttl
        size += length
    if chunk:
        yield chunk


def _there(length: Any, ttl: Any) -> bool:
    """A string that has not expired."""
    for reply in (length, ttl):
        if isinstance(reply, Exception):
            if classify(reply) is Fault.REFUSED and str(reply).startswith("WRONGTYPE"):
                return False
            raise as_error(reply, "reading results")
    return bool(ttl != -2)


def _page(client: Client, prefix: bytes, chunk: dict[bytes, int]) -> Page:
    values = client.ask("MGET", *chunk)
    return [
        (name.removeprefix(prefix), value, ttl)
        for (name, ttl), value in zip(chunk.items(), values, strict=True)
        if value is not None
    ]
