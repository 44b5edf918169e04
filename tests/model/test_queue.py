"""Every server against the book, step by step: the short form of `make model`."""

from __future__ import annotations

from tests.model.run import EXAMPLES, STEPS, explore
from tests.servers import DIALECTS, Servers


def test_every_server_holds_what_the_book_says(servers: Servers, queue_name: str) -> None:
    chosen = [servers.shared(dialect) for dialect in DIALECTS]
    explore(chosen, queue_name, EXAMPLES, STEPS)
