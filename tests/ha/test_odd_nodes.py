"""A node or Sentinel that answers what no such server answers counts as one that does not answer;
and what a server says cannot play tricks on a terminal."""

from __future__ import annotations

import logging
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from chasquimq import Queue
from chasquimq.address import read_url
from chasquimq.errors import ChasquiError
from chasquimq.spark.client import Client
from tests.ha.kit import Cluster, Watched, cluster, watched
from tests.servers import DIALECTS, binary_for

MASTER = b"*2\r\n$9\r\n127.0.0.1\r\n$4\r\n6379\r\n"
# To `SENTINEL GET-MASTER-ADDR-BY-NAME` and to `CLUSTER SLOTS`, and to what is asked next.
ANSWERS = {
    "a number": (b":7\r\n", b":7\r\n"),
    "an empty list": (b"*0\r\n", b"*0\r\n"),
    "a list of numbers": (b"*2\r\n:1\r\n:2\r\n", b"*1\r\n:3\r\n"),
    "no text": (b"*2\r\n$2\r\n\xff\xfe\r\n$4\r\n6379\r\n", b"$2\r\n\xff\xfe\r\n"),
    "no port": (b"*2\r\n$9\r\n127.0.0.1\r\n$5\r\n99999\r\n", b"*0\r\n"),
    "a host that paints": (b"*2\r\n$6\r\n\x1b[31mx\r\n$4\r\n6379\r\n", b"*0\r\n"),
    "no config-epoch": (MASTER, b"*2\r\n$4\r\nname\r\n$3\r\nany\r\n"),
    "an epoch that is no number": (MASTER, b"*2\r\n$12\r\nconfig-epoch\r\n$3\r\nany\r\n"),
    "a list beyond memory": (b"*9223372036854775807\r\n", b":7\r\n"),
    "lists in lists": (b"*1\r\n" * 10_000, b":7\r\n"),
    "no protocol": (b"HTTP/1.1 400 Bad Request\r\n\r\n", b""),
    "an error that paints": (b"-ERR \x1b]0;owned\x07\r\n", b"-ERR \x1b[2J\r\n"),
    "an error that is no text": (b"-ERR \xff\xfe\r\n", b"-\xff\r\n"),
}


@contextmanager
def answering(first: bytes, second: bytes) -> Iterator[int]:
    """A server that knows two answers, by turns; its port."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            turn = 0
            while data := self.request.recv(65_536):
                for _ in range(data.count(b"*")):
                    self.request.sendall((first, second)[turn % 2])
                    turn += 1

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


@pytest.fixture(params=ANSWERS)
def odd(request: pytest.FixtureRequest) -> Iterator[int]:
    with answering(*ANSWERS[request.param]) as port:
        yield port


@pytest.fixture(scope="module")
def nodes() -> Iterator[Cluster]:
    with cluster(binary_for(DIALECTS[0])) as servers:
        yield servers


@pytest.fixture(scope="module")
def sentinels(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    with watched(binary_for(DIALECTS[0]), tmp_path_factory.mktemp("sentinels")) as servers:
        yield servers


async def test_a_cluster_is_found_beside_a_node_that_answers_oddly(
    odd: int, nodes: Cluster, queue_name: str
) -> None:
    url = nodes.url.replace("://", f"://127.0.0.1:{odd},")
    async with Queue(queue_name, redis_url=url) as queue:
        assert (await queue.add("a", 1)).id
    key = f"{{chasqui:{queue_name}}}:stream"
    with Client(read_url(url).of(key)) as spark:
        assert spark.ask("XLEN", key) == 1


async def test_a_master_is_found_beside_a_sentinel_that_answers_oddly(
    odd: int, sentinels: Watched, queue_name: str
) -> None:
    url = sentinels.url.replace("://", f"://127.0.0.1:{odd},")
    async with Queue(queue_name, redis_url=url) as queue:
        assert (await queue.add("a", 1)).id
    with Client(read_url(url)) as spark:
        assert spark.ask("XLEN", f"{{chasqui:{queue_name}}}:stream") == 1


async def test_an_address_of_nobody_else_is_an_error_of_ours(
    odd: int, queue_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    for url in (f"redis+sentinel://127.0.0.1:{odd}/m", f"redis+cluster://127.0.0.1:{odd}"):
        with caplog.at_level(logging.DEBUG), pytest.raises(ChasquiError) as caught:
            await Queue(queue_name, redis_url=url).add("a", 1)
        assert str(caught.value).isprintable()
    assert "\x1b" not in caplog.text
