"""Probes are answered while slow and silent clients hold many connections."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from chasquimq.observe import web
from chasquimq.observe.endpoint import Endpoint, Report
from chasquimq.observe.probe import Depths
from chasquimq.observe.prometheus import exposition
from chasquimq.observe.record import Snapshot
from tests.observe.kit import fetch

GOOD = Report(True, {"problems": []})
PROBES = ("/livez", "/healthz", "/readyz", "/health")
LARGE = b"x" * 8 * 2**20  # more than the kernel takes from a sender whose reader sleeps


def small(accept: str) -> tuple[str, bytes]:
    return "text/plain", b"up 1\n"


def large(accept: str) -> tuple[str, bytes]:
    return "text/plain", LARGE


@contextlib.contextmanager
def serving(**pages: Any) -> Iterator[int]:
    usual = {"metrics": small, "live": lambda: GOOD, "ready": lambda: GOOD}
    with Endpoint("0", **{**usual, **pages}) as here:
        yield here.port


@contextlib.contextmanager
def crowd(port: int, count: int, sent: bytes = b"") -> Iterator[list[socket.socket]]:
    """Clients that are connected, have sent this, and read nothing."""
    with contextlib.ExitStack() as clients:
        several = []
        for _ in range(count):
            client = clients.enter_context(socket.create_connection(("127.0.0.1", port), 20))
            with contextlib.suppress(OSError):
                client.sendall(sent)
            several.append(client)
        yield several


def all_answered(port: int, times: int = 10) -> None:
    statuses = []
    for path in PROBES * times:
        try:
            statuses.append(fetch(port, path).status)
        except OSError as error:
            statuses.append(repr(error))
    assert statuses == [200] * len(statuses)


@pytest.mark.parametrize("count", [64, 500])
@pytest.mark.parametrize("sent", [b"", b"GET /livez HTTP/1.1\r\nHalf"], ids=["silent", "half"])
def test_probes_are_answered_beside_connections_without_a_request(count: int, sent: bytes) -> None:
    with serving() as port, crowd(port, count, sent):
        all_answered(port)
        assert fetch(port, "/metrics").status == 200


def test_probes_are_answered_beside_clients_that_send_a_byte_at_a_time() -> None:
    over = threading.Event()

    def trickle(port: int) -> None:
        """64 connections; one that is cut off is replaced."""
        with contextlib.ExitStack() as clients:

            def connect() -> socket.socket:
                return clients.enter_context(socket.create_connection(("127.0.0.1", port), 20))

            several = [connect() for _ in range(64)]
            while not over.wait(0.02):
                for place, client in enumerate(several):
                    try:
                        client.sendall(b"G")
                    except OSError:
                        client.close()
                        several[place] = connect()

    with serving() as port:
        trickling = threading.Thread(target=trickle, args=(port,))
        trickling.start()
        try:
            all_answered(port)
        finally:
            over.set()
            trickling.join()


def test_probes_are_answered_beside_clients_that_do_not_read_their_metrics() -> None:
    with serving(metrics=large) as port, crowd(port, 64, b"GET /metrics HTTP/1.1\r\n\r\n"):
        all_answered(port)
        assert fetch(port, "/metrics").body == LARGE


def test_probes_are_answered_while_every_page_of_metrics_takes_long() -> None:
    go = threading.Event()

    def slow(accept: str) -> tuple[str, bytes]:
        go.wait(20)
        return small(accept)

    with serving(metrics=slow) as port, crowd(port, 64, b"GET /metrics HTTP/1.1\r\n\r\n"):
        all_answered(port)
        page = fetch(port, "/metrics")
        assert (page.status, page.body) == (503, b"busy; try again\n")
        go.set()


def test_the_oldest_connection_without_a_request_makes_room_for_a_new_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(web, "HEAD_S", 60.0)
    monkeypatch.setattr(web, "MAX_READING", 3)
    with serving() as port, crowd(port, 4, b"GET /livez HTTP/1.1\r\n") as clients:
        oldest, *others = clients
        assert oldest.recv(1) == b""
        for client in others:
            client.sendall(b"\r\n")
            assert client.makefile("rb").read().startswith(b"HTTP/1.0 200 ")


def test_the_oldest_client_that_does_not_read_makes_room_for_a_new_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(web, "REQUEST_S", 60.0)
    monkeypatch.setattr(web, "MAX_WRITING", 2)
    with serving(metrics=large) as port, crowd(port, 4, b"GET /metrics HTTP/1.1\r\n\r\n"):
        assert fetch(port, "/metrics").body == LARGE
        all_answered(port, times=1)


def test_pages_are_encoded_one_at_a_time() -> None:
    """Many together would share the interpreter with whoever answers probes."""
    encoding, most = 0, 0

    def rows() -> Iterator[Depths]:
        nonlocal encoding, most
        encoding += 1
        most = max(most, encoding)
        time.sleep(0.02)
        encoding -= 1
        yield from ()

    with serving(metrics=lambda accept: exposition(Snapshot(), rows(), accept)) as port:
        with ThreadPoolExecutor(12) as scrapers:
            pages = list(scrapers.map(lambda _: fetch(port, "/metrics"), range(12)))
        assert {page.status for page in pages} == {200}
    assert most == 1
