"""The small web server: what it serves, and what cannot hold it up."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from chasquimq.errors import ConfigError
from chasquimq.observe import web
from chasquimq.observe.endpoint import Endpoint, Report
from chasquimq.observe.web import read_place
from tests.observe.kit import Page, fetch

GOOD, BAD = Report(True, {"problems": []}), Report(False, {"problems": ["it is ill"], "n": 1})


def plain(accept: str) -> tuple[str, bytes]:
    return "text/plain; version=0.0.4; charset=utf-8", f"asked {accept}\n".encode()


@contextlib.contextmanager
def serving(place: str = "0", **pages: Any) -> Iterator[int]:
    usual = {"metrics": plain, "live": lambda: GOOD, "ready": lambda: GOOD}
    with Endpoint(place, **{**usual, **pages}) as here:
        yield here.port


# -- what it serves --------------------------------------------------------------------------------


def test_each_path_has_its_page() -> None:
    with serving(ready=lambda: BAD) as port:
        metrics = fetch(port, "/metrics?x=1", Accept="*/*")
        assert (metrics.status, metrics.body) == (200, b"asked */*\n")
        assert metrics.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        assert metrics.headers["Cache-Control"] == "no-store"
        assert fetch(port, "/livez").json == {"ok": True, "problems": []}
        assert fetch(port, "/healthz")[::2] == fetch(port, "/livez")[::2]
        page = fetch(port, "/readyz")
        assert (page.status, page.json) == (503, {"ok": False, "problems": ["it is ill"], "n": 1})
        assert page.headers["Content-Type"] == "application/json"
        assert fetch(port, "/").status == 200


@pytest.mark.parametrize(
    ("live", "ready", "status"), [(GOOD, GOOD, 200), (GOOD, BAD, 503), (BAD, GOOD, 503)]
)
def test_health_is_200_only_if_it_lives_and_is_ready(
    live: Report, ready: Report, status: int
) -> None:
    with serving(live=lambda: live, ready=lambda: ready) as port:
        page = fetch(port, "/health")
    assert page.status == status
    assert (page.json["live"], page.json["ready"]) == (live.ok, ready.ok)
    assert page.json["problems"] == ([] if status == 200 else ["it is ill"])


def test_head_is_get_without_a_body() -> None:
    with serving() as port, socket.create_connection(("127.0.0.1", port), 20) as client:
        client.sendall(b"HEAD /metrics HTTP/1.0\r\n\r\n")
        head, _, body = client.makefile("rb").read().partition(b"\r\n\r\n")
        whole = fetch(port, "/metrics").body
    assert head.startswith(b"HTTP/1.0 200 ")
    assert b"\r\nContent-Length: %d\r\n" % len(whole) in head
    assert body == b""


@pytest.mark.parametrize("path", ["/nope", "/metrics/", "/../etc/passwd", "*"])
def test_there_is_nothing_else(path: str) -> None:
    with serving() as port:
        assert fetch(port, path).status == 404


def test_without_metrics_there_is_no_such_page() -> None:
    with serving(metrics=None) as port:
        assert fetch(port, "/metrics").status == 404
        assert fetch(port, "/livez").status == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "BREW"])
def test_other_methods_are_refused_and_their_bodies_not_read(method: str) -> None:
    with serving() as port, socket.create_connection(("127.0.0.1", port), 20) as client:
        client.sendall(f"{method} /metrics HTTP/1.1\r\nContent-Length: 1000000\r\n\r\n".encode())
        answer = client.makefile("rb").read()
    assert answer.startswith(b"HTTP/1.0 405 ")
    assert b"\r\nAllow: GET, HEAD\r\n" in answer


def test_a_page_that_fails_is_500_and_logged_and_the_others_go_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fails(accept: str) -> tuple[str, bytes]:
        raise ZeroDivisionError("a defect")

    with serving(metrics=fails) as port:
        page = fetch(port, "/metrics")
        assert (page.status, b"defect" in page.body) == (500, False)
        assert fetch(port, "/livez").status == 200
    assert "cannot make the page /metrics" in caplog.text


# -- who cannot hold it up -------------------------------------------------------------------------


def test_a_page_that_takes_long_holds_up_no_other() -> None:
    go = threading.Event()

    def slow(accept: str) -> tuple[str, bytes]:
        go.wait(20)
        return plain(accept)

    with serving(metrics=slow) as port:
        pages: list[Page] = []
        waiting = threading.Thread(target=lambda: pages.append(fetch(port, "/metrics")))
        waiting.start()
        assert fetch(port, "/livez").status == 200
        assert not pages
        go.set()
        waiting.join()
    assert pages[0].status == 200


def test_clients_that_say_nothing_hold_up_nobody_and_are_cut_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(web, "HEAD_S", 0.3)
    with serving() as port, contextlib.ExitStack() as clients:
        silent = [
            clients.enter_context(socket.create_connection(("127.0.0.1", port), 20))
            for _ in range(5)
        ]
        silent[0].sendall(b"GET /metrics HTTP/1.1\r\nHalf-a-head")
        assert fetch(port, "/livez").status == 200
        assert [client.recv(1) for client in silent] == [b""] * 5


def test_a_client_that_trickles_is_cut_off_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "HEAD_S", 0.5)
    with serving() as port, socket.create_connection(("127.0.0.1", port), 20) as client:
        deadline = time.monotonic() + 20
        with pytest.raises(OSError):  # noqa: PT012
            client.sendall(b"GET /metrics HTTP/1.1\r\n")
            while time.monotonic() < deadline:
                client.sendall(b"X")
                client.settimeout(0.05)
                with contextlib.suppress(TimeoutError):
                    if client.recv(1) == b"":
                        raise ConnectionError("cut off")
    assert time.monotonic() < deadline


def test_only_so_many_pages_are_made_at_once_and_the_next_is_made_when_one_is_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(web, "MAX_PAGES", 1)
    go, asked = threading.Event(), threading.Event()

    def slow(accept: str) -> tuple[str, bytes]:
        asked.set()
        go.wait(20)
        return plain(accept)

    with serving(metrics=slow) as port:
        first = threading.Thread(target=fetch, args=(port, "/metrics"))
        first.start()
        assert asked.wait(20)
        busy = fetch(port, "/metrics")
        assert (busy.status, busy.body) == (503, b"busy; try again\n")
        go.set()
        first.join()
        deadline = time.monotonic() + 20
        while fetch(port, "/metrics").status != 200:
            assert time.monotonic() < deadline


def test_a_head_that_is_too_large_is_refused() -> None:
    with serving() as port:
        assert fetch(port, "/metrics", X="a" * 5_000).status == 200
        assert fetch(port, "/metrics", X="a" * 20_000).status == 431
        many = {f"X-{number}": "a" * 500 for number in range(60)}
        assert fetch(port, "/metrics", **many).status == 431
        assert fetch(port, "/" + "a" * 30_000).status == 414
        assert fetch(port, "/metrics").status == 200


def test_nonsense_ends_its_own_connection_only() -> None:
    with serving() as port:
        for rubbish in (b"\x16\x03\x01\x02\x00\x01\x00", b"\r\n\r\n", b"GET\r\n\r\n", b""):
            with socket.create_connection(("127.0.0.1", port), 20) as client:
                client.sendall(rubbish)
                client.shutdown(socket.SHUT_WR)
                client.makefile("rb").read()
        assert fetch(port, "/livez").status == 200


MARK = "<svg/onload=x>"


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        (f"GET /{MARK}?{MARK} HTTP/1.1", 404),
        (f"{MARK} /livez HTTP/1.1", 405),
        (f"GET /livez HTTP/1.1 {MARK}", 400),
        (f"GET /livez {MARK}", 400),
        (f"GET /livez HTTP/9.9{MARK}", 400),
        (MARK, 400),
        ("GET /livez HTTP/3.0", 505),
        ("GET /livez", 200),
        (f"GET /metrics HTTP/1.1\r\nHost: {MARK}\r\nX-{MARK}: {MARK}", 200),
        (f"GET /{MARK * 2_000} HTTP/1.1", 414),
        (f"GET /livez HTTP/1.1\r\nX: {MARK * 2_000}", 431),
        ("GET /livez HTTP/1.1" + f"\r\nX: {MARK}" * 150, 431),
        (f"POST /{MARK} HTTP/1.1\r\nContent-Length: 10000000\r\n\r\n{MARK * 60_000}", 405),
    ],
    ids=lambda value: str(value)[:30],
)
def test_no_answer_repeats_what_was_sent_or_may_be_taken_for_a_page(
    request_line: str, status: int
) -> None:
    with serving() as port, socket.create_connection(("127.0.0.1", port), 20) as client:
        with contextlib.suppress(OSError):  # it may have answered and hung up before the end
            client.sendall(f"{request_line}\r\n\r\n".encode())
        answer = b""
        with contextlib.suppress(ConnectionResetError):
            while part := client.recv(65_536):
                answer += part
    head, _, body = answer.partition(b"\r\n\r\n")
    if not answer and len(request_line) > 100_000:
        return  # cut off in the middle of what nobody wanted to read
    assert head.startswith(b"HTTP/1.0 %d " % status)
    assert b"svg" not in answer
    assert b"\r\nX-Content-Type-Options: nosniff" in head
    kind = head.partition(b"\r\nContent-Type: ")[2].partition(b"\r\n")[0]
    assert kind.startswith((b"text/plain", b"application/json"))
    assert body


# -- where it listens ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("place", "host", "port"),
    [
        ("9400", "127.0.0.1", 9400),
        (":9400", "", 9400),
        ("127.0.0.1:9400", "127.0.0.1", 9400),
        ("0.0.0.0:9400", "0.0.0.0", 9400),
        ("[::]:9400", "::", 9400),
        ("[::1]:0", "::1", 0),
        ("localhost:80", "localhost", 80),
    ],
)
def test_a_place_is_read(place: str, host: str, port: int) -> None:
    assert read_place(place) == (host, port)


@pytest.mark.parametrize(
    "place",
    ["", ":", "host", "host:", ":-1", ":70000", "::1:80", "a b:80", "http://h:80", ":٣", "x\n:1"],
)
def test_what_is_no_place_is_refused(place: str) -> None:
    with pytest.raises(ConfigError, match="such as 9400, :9400"):
        read_place(place)


def test_a_bare_port_is_for_this_machine_and_a_colon_for_all() -> None:
    def host(place: str) -> str:
        with Endpoint(place, metrics=None, live=lambda: GOOD, ready=lambda: GOOD) as here:
            assert here._server is not None
            assert fetch(here.port, "/livez").status == 200
            return str(here._server.socket.getsockname()[0])

    assert host("0") == "127.0.0.1"
    assert host(":0") in ("::", "0.0.0.0")


@pytest.mark.parametrize("form", ["{}", "127.0.0.1:{}", ":{}"])
def test_a_port_that_is_taken_is_an_error_that_says_so(form: str) -> None:
    with serving(":0") as port, pytest.raises(ConfigError, match=f":{port}: another program"):
        Endpoint(form.format(port), metrics=None, live=lambda: GOOD, ready=lambda: GOOD).start()


def test_a_host_that_is_not_ours_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"cannot serve metrics at 192\.0\.2\.1:0: "):
        Endpoint("192.0.2.1:0", metrics=None, live=lambda: GOOD, ready=lambda: GOOD).start()


def test_after_a_stop_the_place_is_free_and_no_thread_is_left() -> None:
    before = threading.active_count()
    with serving() as port:
        pass
    with serving(str(port)) as again:
        assert again == port
    assert threading.active_count() == before
    here = Endpoint("0", metrics=None, live=lambda: GOOD, ready=lambda: GOOD)
    here.stop()  # which was never started


def test_requests_are_not_logged_as_anything_to_look_at(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO), serving() as port:
        fetch(port, "/livez")
        fetch(port, "/nope")
    assert not caplog.records
