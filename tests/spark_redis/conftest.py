"""Streams to follow, and who follows them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.servers import DialectServer
from tests.spark_redis.events import Events
from tests.spark_redis.follower import Follow, Follower


@pytest.fixture
def events(dialect_server: DialectServer, queue_name: str) -> Events:
    return Events(dialect_server, queue_name)


@pytest.fixture
def other(dialect_server: DialectServer, queue_name: str) -> Events:
    return Events(dialect_server, f"{queue_name}-other")


@pytest.fixture
def follow(dialect_server: DialectServer, queue_name: str) -> Iterator[Follow]:
    """A query on the queue, or on those that are named."""
    with ExitStack() as stack:

        def start(queue: str = queue_name, **options: Any) -> Follower:
            return stack.enter_context(Follower(dialect_server.url, queue, **options))

        yield start
