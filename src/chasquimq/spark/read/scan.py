"""Pages of rows, as Redis gives them. One page is all that an executor holds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from chasquimq.spark.client import Client


def entries(client: Client, key: bytes, after: str, upto: str, count: int) -> Iterator[list[Any]]:
    """The entries of `(after, upto]`, in order."""
    while True:
        page = client.ask("XRANGE", key, f"({after}", upto, "COUNT", count)
        if page:
            yield page
        if len(page) < count:
            return
        after = page[-1][0].decode()
