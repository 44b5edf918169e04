from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Callable, Iterator

import pytest

from tests.servers import DialectServer
from tests.store.shelf import Shelf


@pytest.fixture
async def shelf(dialect_server: DialectServer, queue_name: str) -> AsyncIterator[Shelf]:
    """A queue of one's own on a shared server, once per dialect."""
    shelf = await Shelf(dialect_server, queue_name).open()
    yield shelf
    await shelf.close()


@pytest.fixture
async def own_shelf(own_server: DialectServer, queue_name: str) -> AsyncIterator[Shelf]:
    """The same on a server of one's own, to configure, flush and kill."""
    shelf = await Shelf(own_server, queue_name).open()
    yield shelf
    await shelf.close()


@pytest.fixture
def new_user(dialect_server: DialectServer) -> Iterator[Callable[..., str]]:
    """Makes an ACL user with the given rules; answers the URL to connect as that user."""
    client, made = dialect_server.client(), []

    def make(*rules: str) -> str:
        name = f"user-{uuid.uuid4().hex[:8]}"
        client.execute_command("ACL", "SETUSER", name, "on", ">pw", *rules)
        made.append(name)
        return dialect_server.url.replace("redis://", f"redis://{name}:pw@")

    yield make
    if made:
        client.execute_command("ACL", "DELUSER", *made)
