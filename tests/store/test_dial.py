"""Connecting: every kind of address, clear words when it fails, and never a secret in them."""

from __future__ import annotations

import asyncio
import errno
import logging
import ssl
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from typing import Any

import pytest

from chasquimq.address import Address, Credentials, Endpoint, read_url
from chasquimq.config import ConnectOptions
from chasquimq.errors import AccessError, ConfigError, StoreError, StoreUnavailableError
from chasquimq.server import Server
from chasquimq.store import Dialer, Link
from chasquimq.store.resp import pack
from tests.servers import DialectServer
from tests.store.puppet import puppet
from tests.store.shelf import QUICK, Shelf

CANARY = "Kanarienvogel/@:"  # not a secret: it must show up nowhere
QUOTED = "Kanarienvogel%2F%40%3A"


async def ask(url: str, *command: str, **more: Any) -> Any:
    link = Link(Dialer(read_url(url), options=QUICK, **more))
    await link.open()
    try:
        return await link.ask(*command)
    finally:
        await link.close()


async def refusal(url: str, options: ConnectOptions = QUICK) -> StoreError:
    """The error of a connect that must fail; it shows no secret anywhere."""
    link = Link(Dialer(read_url(url), options=options))
    with pytest.raises(StoreError) as caught:
        await link.open()
    await link.close()
    told = "".join(traceback.format_exception(caught.value)) + repr(caught.value)
    assert "Kanarienvogel" not in told
    assert str(caught.value).startswith("CMQ-001: ")
    return caught.value


# -- where ---------------------------------------------------------------------------------------


async def test_a_tcp_port(dialect_server: DialectServer) -> None:
    assert await ask(dialect_server.url, "PING") == b"PONG"


async def test_a_unix_socket(dialect_server: DialectServer) -> None:
    with Server(dialect_server.server.binary, unix_socket=True) as server:
        assert server.url.startswith("unix://")
        assert await ask(server.url, "PING") == b"PONG"


async def test_a_database_of_ones_own(dialect_server: DialectServer, queue_name: str) -> None:
    await ask(f"{dialect_server.url}/3", "SET", queue_name, "x", "EX", "60")
    assert dialect_server.client(db=3).get(queue_name) == b"x"
    assert dialect_server.client(db=0).get(queue_name) is None


async def test_a_database_of_ones_own_over_a_unix_socket(dialect_server: DialectServer) -> None:
    with Server(dialect_server.server.binary, unix_socket=True) as server:
        assert b" db=3 " in await ask(f"{server.url}?db=3", "CLIENT", "INFO")


async def test_a_database_that_the_server_does_not_have(dialect_server: DialectServer) -> None:
    error = await refusal(f"{dialect_server.url}/99")
    assert "/99: ERR DB index is out of range" in str(error)


async def test_where_to_connect_is_asked_before_every_connect(
    dialect_server: DialectServer,
) -> None:
    real = read_url(dialect_server.url).endpoint
    answers = [Endpoint("127.0.0.1", 1), real]

    class Moving(Address, frozen=True):
        def resolve(self) -> Endpoint:
            return answers.pop(0)

    dialer = Dialer(Moving(Endpoint("nowhere.invalid", 1)), options=QUICK)
    with pytest.raises(StoreUnavailableError):
        await dialer.dial()
    (await dialer.dial()).close()
    assert answers == []


# -- who -----------------------------------------------------------------------------------------


async def test_a_password(dialect_server: DialectServer) -> None:
    with Server(dialect_server.server.binary, password=CANARY) as server:
        assert await ask(server.url, "PING") == b"PONG"


async def test_an_acl_user(dialect_server: DialectServer, new_user: Callable[..., str]) -> None:
    url = new_user("+@all", "~*")
    assert url.partition("://")[2].startswith((await ask(url, "ACL", "WHOAMI")).decode())


async def test_a_password_that_nobody_asked_for_does_no_harm(
    dialect_server: DialectServer,
) -> None:
    url = dialect_server.url.replace("redis://", f"redis://:{QUOTED}@")
    assert await ask(url, "PING") == b"PONG"


async def test_a_wrong_password_says_what_to_check(dialect_server: DialectServer) -> None:
    with Server(dialect_server.server.binary, password="pw") as server:
        error = await refusal(f"redis://:{QUOTED}@127.0.0.1:{server.port}")
    assert type(error) is AccessError
    assert f"logging in to redis://:***@127.0.0.1:{server.port}: WRONGPASS" in str(error)
    assert str(error).endswith("check the user, its password and its ACL rules")


async def test_a_user_that_nobody_knows_says_what_to_check(dialect_server: DialectServer) -> None:
    error = await refusal(dialect_server.url.replace("redis://", f"redis://nobody:{QUOTED}@"))
    assert type(error) is AccessError and "redis://nobody:***@" in str(error)


async def test_a_missing_password_says_where_to_put_it(dialect_server: DialectServer) -> None:
    with Server(dialect_server.server.binary, password=CANARY) as server:
        for db in ("", "/3"):
            error = await refusal(f"redis://127.0.0.1:{server.port}{db}")
            assert type(error) is AccessError
            assert "wants a password: put it into the URL" in str(error)


async def test_a_server_that_has_no_auth_does_not_make_us_print_the_password(
    dialect_server: DialectServer,
) -> None:
    """Such a server answers an unknown command by repeating its arguments."""
    hidden = {"rename-command": ("AUTH", "")}
    with Server(dialect_server.server.binary, config=hidden) as server:
        error = await refusal(f"redis://u:{QUOTED}@127.0.0.1:{server.port}")
    assert "does not take AUTH" in str(error)


# -- nobody there ----------------------------------------------------------------------------------


async def test_a_wrong_port_is_named() -> None:
    error = await refusal(f"redis://:{QUOTED}@127.0.0.1:1/2")
    assert type(error) is StoreUnavailableError
    where = r"redis://:***@127.0.0.1:1/2"
    assert f"cannot reach Redis at {where} (" in str(error)
    assert str(error).endswith("is it running there?")


async def test_a_missing_socket_is_named() -> None:
    error = await refusal(f"unix://:{QUOTED}@/nowhere/redis.sock")
    assert "cannot reach Redis at unix://:***@/nowhere/redis.sock" in str(error)


async def test_a_host_that_nobody_knows_is_named() -> None:
    error = await refusal("redis://nowhere.invalid:6379")
    assert "cannot reach Redis at redis://nowhere.invalid:6379" in str(error)


@pytest.mark.parametrize(
    ("scheme", "question"),
    [
        ("redis", "is that the right address?"),
        ("rediss", "is that the right address, and does it speak TLS?"),
    ],
)
async def test_a_server_that_says_nothing_is_given_up_in_time(scheme: str, question: str) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with puppet(silent) as server:
        url = server.url.replace("redis://", f"{scheme}://")
        error = await refusal(url, ConnectOptions(timeout_ms=100))
    assert type(error) is StoreUnavailableError
    assert f"within 100 ms; {question}" in str(error)


@pytest.mark.parametrize("words", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b""])
async def test_a_server_of_another_kind_is_no_redis(words: bytes) -> None:
    async def other(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(words)

    async with puppet(other) as server:
        error = await refusal(server.url)
    assert type(error) is StoreUnavailableError and server.url in str(error)


async def test_a_full_server_is_away(own_server: DialectServer) -> None:
    client = own_server.client()
    client.config_set("maxclients", 1)
    error = await refusal(own_server.url)
    assert type(error) is StoreUnavailableError


# -- who, asked anew each time ---------------------------------------------------------------------

Provider = Callable[[str | None], Awaitable[Credentials] | Credentials]


class Vault:
    """Hands out what it holds at the moment, and notes who asked."""

    def __init__(self, username: str | None, password: str | None) -> None:
        self.held: Credentials = (username, password)
        self.asked: list[str | None] = []

    def now(self, place: str | None) -> Credentials:
        self.asked.append(place)
        return self.held

    async def soon(self, place: str | None) -> Credentials:
        await asyncio.sleep(0.001)
        return self.now(place)


@pytest.mark.parametrize("form", ["now", "soon"])
async def test_credentials_are_asked_for_before_every_login(
    own_server: DialectServer, queue_name: str, form: str
) -> None:
    client = own_server.client()
    client.execute_command("ACL", "SETUSER", "u", "on", ">first", "+@all", "~*")
    vault = Vault("u", "first")
    store = Shelf(own_server, queue_name).new_store(provider=getattr(vault, form))
    await store.open()
    place = f"127.0.0.1:{own_server.server.port}"
    assert vault.asked == [place]

    # The token rotates; the connection breaks; the next login uses the new one.
    client.execute_command("ACL", "SETUSER", "u", "resetpass", ">second")
    vault.held = ("u", "second")
    number = await store.link.ask("CLIENT", "ID")
    client.execute_command("CLIENT", "KILL", "ID", number)
    while not store.link.reconnects:
        await asyncio.sleep(0.001)
    assert await store.link.ask("ACL", "WHOAMI") == b"u"
    assert vault.asked == [place, place]
    await store.close()


async def test_credentials_for_a_socket_are_asked_for_without_a_place(
    dialect_server: DialectServer,
) -> None:
    vault = Vault(None, "pw")
    with Server(dialect_server.server.binary, unix_socket=True, password="pw") as server:
        url = f"unix://{server.socket_path}"
        assert await ask(url, "PING", provider=vault.soon) == b"PONG"
    assert vault.asked == [None]


async def test_a_provider_beats_the_url(dialect_server: DialectServer) -> None:
    with Server(dialect_server.server.binary, password="pw") as server:
        url = f"redis://:{QUOTED}@127.0.0.1:{server.port}"
        assert await ask(url, "PING", provider=Vault(None, "pw").now) == b"PONG"


async def test_a_provider_may_have_nothing_to_say(dialect_server: DialectServer) -> None:
    assert await ask(dialect_server.url, "PING", provider=Vault(None, None).now) == b"PONG"


@pytest.mark.parametrize("answer", [None, "hunter22", ("hunter22",), 5])
async def test_a_provider_that_returns_no_pair_is_told_what_to_return(
    dialect_server: DialectServer, answer: Any
) -> None:
    def provider(place: str | None) -> Any:
        return answer

    with pytest.raises(ConfigError, match=r"it must return \(username, password\)") as caught:
        await ask(dialect_server.url, "PING", provider=provider)
    assert "hunter22" not in str(caught.value)


async def test_a_provider_that_fails_when_reconnecting_is_asked_again(
    dialect_server: DialectServer, caplog: pytest.LogCaptureFixture
) -> None:
    answers: list[Any] = [(None, None), KeyError(CANARY), None, (None, None)]

    def provider(place: str | None) -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    link = Link(Dialer(read_url(dialect_server.url), provider, QUICK))
    pipe = await link.open()
    with caplog.at_level(logging.WARNING):
        pipe.close()
        assert await link.ask("PING") == b"PONG"
    await link.close()
    assert answers == []
    assert "reconnecting to" in caplog.text and "Kanarienvogel" not in caplog.text


@pytest.mark.parametrize("scheme", ["redis://", "redis+cluster://"])
async def test_a_provider_that_takes_too_long_is_given_up_in_time(
    dialect_server: DialectServer, scheme: str
) -> None:
    async def never(place: str | None) -> Credentials:
        await asyncio.sleep(60)
        raise AssertionError

    address = read_url(dialect_server.url.replace("redis://", scheme))
    dialer = Dialer(address, never, ConnectOptions(timeout_ms=50))
    with pytest.raises(StoreUnavailableError, match=r"provider of .* \(no answer within 50 ms"):
        await dialer.dial()


@pytest.mark.parametrize("scheme", ["redis://", "redis+cluster://"])
@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ConnectionRefusedError(errno.ECONNREFUSED, "nobody there"), "nobody there"),
        (TimeoutError(), "TimeoutError"),
        (ssl.SSLCertVerificationError(1, "self-signed"), "self-signed"),
        (OSError(f"GET https://vault.test/?token={CANARY}"), "OSError"),  # as libraries do
    ],
    ids=["refused", "timeout", "certificate", "library"],
)
async def test_trouble_of_a_provider_is_not_told_of_redis(
    dialect_server: DialectServer, scheme: str, error: OSError, told: str
) -> None:
    def provider(place: str | None) -> Credentials:
        raise error

    address = read_url(dialect_server.url.replace("redis://", scheme))
    with pytest.raises(StoreUnavailableError, match="credential_provider of") as caught:
        await Dialer(address, provider).dial()
    assert told in str(caught.value)
    assert CANARY not in str(caught.value)


async def soon(answer: Any) -> Any:
    return answer


def one_by_one(place: str | None) -> Iterator[str | None]:
    yield from (None, CANARY)


async def one_by_one_soon(place: str | None) -> AsyncIterator[str | None]:
    yield None
    yield CANARY


ODD: dict[str, tuple[Callable[[str | None], Any], str]] = {
    "None": (lambda place: None, "returned None"),
    "late None": (lambda place: soon(None), "returned None"),
    "text": (lambda place: CANARY, "type str"),
    "two letters": (lambda place: "Ka", "type str"),
    "bytes": (lambda place: CANARY.encode(), "type bytes"),
    "number": (lambda place: 31_415_926, "type int"),
    "three": (lambda place: (None, CANARY, 3), "a tuple of 3"),
    "one": (lambda place: [CANARY], "a list of 1"),
    "none": (lambda place: (), "a tuple of 0"),
    "map": (lambda place: {CANARY: 1, "b": 2}, "type dict"),
    "set": (lambda place: {CANARY, "b"}, "type set"),
    "pair of bytes": (lambda place: (None, CANARY.encode()), "a pair with a value of type bytes"),
    "pair of numbers": (lambda place: ("u", 31_415_926), "a pair with a value of type int"),
    "a truth": (lambda place: (True, CANARY), "a pair with a value of type bool"),
    "pair of pairs": (lambda place: ((CANARY, "b"), None), "a pair with a value of type tuple"),
    "user alone": (lambda place: (CANARY, None), "a user without a password"),
    "half": (lambda place: (None, f"{CANARY}\ud800"), "a lone surrogate"),
    "generator": (one_by_one, "type generator"),
    "soon": (one_by_one_soon, "type async_generator"),
    "a call": (lambda place: lambda: (None, CANARY), "type function"),
    "await": (lambda place: soon(iter((None, CANARY))), "type tuple_iterator"),
}


@pytest.mark.parametrize("scheme", ["redis://", "redis+cluster://"])
@pytest.mark.parametrize("kind", ODD)
async def test_an_odd_answer_of_a_provider_names_it_and_what_is_wanted(
    dialect_server: DialectServer, scheme: str, kind: str
) -> None:
    provider, told = ODD[kind]
    address = read_url(dialect_server.url.replace("redis://", scheme))
    here = Dialer(address, provider, QUICK)
    there = here.elsewhere(asyncio.get_running_loop(), 5_000)
    for dialer in (here, there):
        with pytest.raises(ConfigError) as caught:
            await dialer.dial()
        said = str(caught.value)
        assert told in said and said.endswith(
            "it must return (username, password), each a str or None"
        )
        name = f"{provider.__module__}.{provider.__qualname__}"
        assert f"credential_provider {name} returned" in said
        shown = "".join(traceback.format_exception(caught.value))
        assert "Kanarienvogel" not in shown and "31415926" not in shown


async def test_providers_of_other_kinds_are_named_without_what_they_hold(
    dialect_server: DialectServer,
) -> None:
    def odd(secret: str, place: str | None) -> Any:
        return secret

    class Odd:
        def __call__(self, place: str | None) -> Any:
            return CANARY

    for provider, name in ((partial(odd, CANARY), "functools.partial"), (Odd(), "Odd")):
        dialer = Dialer(read_url(dialect_server.url), provider, QUICK)
        with pytest.raises(ConfigError, match=f"{name} returned a value of type str") as caught:
            await dialer.dial()
        assert "Kanarienvogel" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("answer", [("", None), ["", None], (None, "")])
async def test_what_says_nothing_will_do(dialect_server: DialectServer, answer: Any) -> None:
    assert await ask(dialect_server.url, "PING", provider=lambda place: answer) == b"PONG"


async def test_odd_answers_never_end_reconnecting(
    dialect_server: DialectServer, caplog: pytest.LogCaptureFixture
) -> None:
    answers = [provider for provider, _ in ODD.values()]
    good = len(answers)

    def provider(place: str | None) -> Any:
        nonlocal good
        if good == len(answers):
            good = 0
            return None, None
        good += 1
        return answers[good - 1](place)

    link = Link(Dialer(read_url(dialect_server.url), provider, QUICK))
    pipe = await link.open()
    pipe.close()
    assert await link.ask("PING") == b"PONG"
    await link.close()
    lines = [line for line in caplog.messages if "it must return (username, password)" in line]
    assert len(lines) == len(ODD) and "Kanarienvogel" not in caplog.text


async def test_a_dialer_for_another_thread_asks_for_credentials_at_home(
    dialect_server: DialectServer,
) -> None:
    """A provider may use what belongs to its own event loop."""
    home = asyncio.get_running_loop()
    asked_in: list[asyncio.AbstractEventLoop] = []

    async def provider(place: str | None) -> Credentials:
        asked_in.append(asyncio.get_running_loop())
        return None, None

    options = ConnectOptions(timeout_ms=60_000, reply_ms=20_000, max_retry_ms=700)
    there = Dialer(read_url(dialect_server.url), provider, options).elsewhere(home, 10_000)
    assert (there.options.timeout_ms, there.options.reply_ms) == (10_000, 10_000)
    assert there.options.max_retry_ms == 700

    async def in_another_thread() -> list[Any]:
        pipe = await there.dial()
        try:
            return await pipe.ask(pack("PING"))
        finally:
            pipe.close()

    assert await asyncio.to_thread(asyncio.run, in_another_thread()) == [b"PONG"]
    assert asked_in == [home]
