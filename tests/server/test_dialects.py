"""The servers that the tests themselves run on."""

from __future__ import annotations

from tests.servers import DialectServer


def test_a_shared_server_answers(dialect_server: DialectServer, queue_name: str) -> None:
    client = dialect_server.client()
    assert client.set(queue_name, 1, ex=60)
    assert client.get(queue_name) == b"1"


def test_only_redis_speaks_the_native_dialect(dialect_server: DialectServer) -> None:
    knows = dialect_server.client().execute_command(
        "COMMAND LIST", "FILTERBY", "PATTERN", "xcfgset"
    )
    assert bool(knows) == dialect_server.name.startswith("redis")


def test_a_private_server_survives_a_kill_with_its_data(own_server: DialectServer) -> None:
    client = own_server.client()
    client.set("a", 1)
    own_server.server.kill()
    own_server.server.start()
    assert client.get("a") == b"1"
