"""A server as a child process: its life, its data, its secrets, its end."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import redis

from chasquimq.errors import ConfigError, StoreError
from chasquimq.server import Binary, Server
from tests.servers import DIALECTS, binary_for

SECRET = 'a "strange" \\ pass\twörd'  # not a secret


@pytest.fixture(params=[DIALECTS[0], DIALECTS[2]], ids=lambda dialect: dialect.kind)
def binary(request: pytest.FixtureRequest) -> Binary:
    return binary_for(request.param)


def connect(server: Server) -> redis.Redis:
    return redis.Redis.from_url(server.url, socket_timeout=5)


def is_alive(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return status != "Z"
    except (FileNotFoundError, ProcessLookupError):  # the second: it ended between open and read
        return False


def eventually(check: Callable[[], bool], within: float = 10.0) -> bool:
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        if check():
            return True
        time.sleep(0.02)
    return False


def test_it_starts_answers_and_is_gone_afterwards(binary: Binary) -> None:
    with Server(binary) as server:
        assert connect(server).ping()
        pid, home = server.pid, server.folder.parent
        assert home.is_dir()
        assert server.is_running
    assert not is_alive(pid)
    assert not home.exists()
    assert not server.is_running


def test_a_given_folder_is_kept(binary: Binary, tmp_path: Path) -> None:
    with Server(binary, folder=tmp_path / "data", appendonly=True) as server:
        connect(server).set("a", 1)
    with Server(binary, folder=tmp_path / "data", appendonly=True) as server:
        assert connect(server).get("a") == b"1"


def test_a_killed_server_starts_again_with_its_address_and_data(binary: Binary) -> None:
    with Server(binary, appendonly=True) as server:
        client, url, pid = connect(server), server.url, server.pid
        for number in range(100):
            client.rpush("a", number)
        server.kill()
        assert not is_alive(pid)
        with pytest.raises(redis.ConnectionError):
            client.ping()
        server.start()
        assert server.url == url
        assert connect(server).llen("a") == 100


def test_one_that_ended_by_itself_can_be_started_again(binary: Binary) -> None:
    with Server(binary, appendonly=True) as server:
        connect(server).set("a", 1)
        os.kill(server.pid, signal.SIGKILL)
        assert eventually(lambda: not server.is_running)
        server.start()
        assert connect(server).get("a") == b"1"


def test_a_paused_server_is_silent_until_it_is_resumed(binary: Binary) -> None:
    with Server(binary) as server:
        client = redis.Redis.from_url(server.url, socket_timeout=0.2, retry=None)
        assert client.ping()
        for _ in range(2):
            server.pause()
            with pytest.raises(redis.TimeoutError):
                client.ping()
            server.resume()
            assert client.ping()
        server.pause()
        pid = server.pid
    assert not is_alive(pid)


def test_pausing_and_resuming_twice_is_as_good_as_once(binary: Binary) -> None:
    with Server(binary) as server:
        server.pause()
        server.pause()
        server.resume()
        server.resume()
        assert redis.Redis.from_url(server.url, socket_timeout=5, retry=None).ping()
        server.pause()
        pid = server.pid
    assert not is_alive(pid)


def test_it_listens_on_a_unix_socket(binary: Binary) -> None:
    with Server(binary, unix_socket=True, password=SECRET) as server:
        assert server.url.startswith("unix://")
        assert connect(server).ping()
        path = server.socket_path
        assert path is not None
        assert path.is_socket()
        assert connect(server).config_get("port") == {"port": "0"}
    assert not path.exists()


def test_the_password_is_on_no_command_line_and_in_no_text(binary: Binary) -> None:
    with Server(binary, password=SECRET) as server:
        assert connect(server).ping()
        with pytest.raises(redis.AuthenticationError):
            redis.Redis(port=server.port or 0, retry=None).ping()
        guard = int(Path(f"/proc/{server.pid}/stat").read_text().rpartition(")")[2].split()[1])
        for pid in (server.pid, guard):
            assert SECRET.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes()
        assert SECRET not in repr(server)
        home = server.folder.parent
        assert home.stat().st_mode & 0o777 == 0o700
        assert (home / "server.conf").stat().st_mode & 0o777 == 0o600


def test_settings_reach_the_server(binary: Binary) -> None:
    settings = {"maxmemory": "64mb", "save": ["900", "1"], "hz": 20}
    with Server(binary, config=settings) as server:
        got = connect(server).config_get("maxmemory", "save", "hz")
    assert got == {"maxmemory": str(64 << 20), "save": "900 1", "hz": "20"}


def test_a_port_that_is_taken_is_a_clear_error(binary: Binary) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        server = Server(binary, port=port, start_timeout=5)
        words = rf"did not start: port {port} is taken; .*[Aa]ddress already in use"
        with pytest.raises(StoreError, match=words):
            server.start()
    assert not server.is_running
    with server:  # and once it is free, it works
        assert connect(server).ping()


def test_a_stranger_that_answers_on_the_port_is_not_taken_for_ours(binary: Binary) -> None:
    with Server(binary) as first:
        with pytest.raises(StoreError, match="did not start"):
            Server(binary, port=first.port, start_timeout=5).start()
        assert connect(first).ping()


def test_a_race_for_a_free_port_is_run_again(
    binary: Binary, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Server(binary) as first:
        ports = iter([first.port, first.port, 31_999, 31_998, 31_997])
        monkeypatch.setattr("chasquimq.server.run._free_port", lambda: next(ports))
        with Server(binary) as second:
            assert second.port != first.port
            assert connect(second).ping()


def test_a_wrong_setting_is_told(binary: Binary) -> None:
    with pytest.raises(StoreError, match="no-such-setting"):
        Server(binary, config={"no-such-setting": "1"}).start()


def test_misuse_is_told(binary: Binary) -> None:
    with pytest.raises(ConfigError, match="a port or on a unix socket"):
        Server(binary, port=1234, unix_socket=True)
    server = Server(binary)
    for use in (lambda: server.url, lambda: server.pid, lambda: server.folder, server.pause):
        with pytest.raises(StoreError, match="start"):
            use()
    server.stop()  # stopping what does not run is nothing
    with server, pytest.raises(StoreError, match="already running"):
        server.start()


PROGRAM = """
import os, sys, threading, time
from pathlib import Path
from chasquimq.server import Binary, Server

binary = Binary(Path(sys.argv[1]), sys.argv[2], (0, 0, 0), "given")
server = Server(binary)
thread = threading.Thread(target=server.start)  # one that ends: the server must outlive it
thread.start()
thread.join()
forked = os.fork()  # a fork that keeps our end of the pipe open, as multiprocessing does
if forked:
    server.pause() if sys.argv[3] == "paused" else None
    print(server.pid, server.folder, forked, flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("state", ["running", "paused"])
def test_no_orphan_when_the_program_is_killed(binary: Binary, state: str) -> None:
    command = [sys.executable, "-c", PROGRAM, str(binary.path), binary.kind, state]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        pid, folder, forked = program.stdout.readline().split()
        try:
            time.sleep(0.3)
            assert is_alive(int(pid)), "the thread that started it has ended, it has not"
            program.kill()
            program.wait()
            assert eventually(lambda: not is_alive(int(pid)))
            assert eventually(lambda: not Path(folder).exists())
        finally:
            os.kill(int(forked), signal.SIGKILL)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child of this")
@pytest.mark.expected_skip("only Linux")
def test_no_orphan_when_the_guard_is_killed(binary: Binary) -> None:
    with Server(binary) as server:
        pid = server.pid
        guard = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(guard, signal.SIGKILL)
        assert eventually(lambda: not is_alive(pid))
        assert eventually(lambda: not server.is_running)


def test_ctrl_c_is_for_the_program_not_for_the_server(binary: Binary) -> None:
    with Server(binary) as server:
        assert os.getpgid(server.pid) != os.getpgid(0)
