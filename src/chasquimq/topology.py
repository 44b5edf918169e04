"""Which server to talk to now: the master that Sentinels name, or the node of a cluster that owns a
key. Asked before every connect, so that a reconnect follows a failover; `failover.py` asks the same
while connections are open.

1. Sentinels are asked all at once, until more than half have answered. They learn of a failover one
   after another, so who heard of the latest decides;
2. of a cluster's nodes, those of the address and those it named before, two decide: one that was
   cut off from the others answers, too. Each slot has who claims it with the latest epoch, which
   is how nodes themselves agree. Each time others are asked first;
3. one that answers oddly counts as one that does not answer;
4. nobody knows: the server is away for now, try again.

redis-py asks the questions: it brings TLS, logins and the arithmetic of slots. It is imported when
there is a question to ask, and is no need of those who give a plain address.
"""

from __future__ import annotations

import logging
import os
import random
import socket
import ssl
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from chasquimq import alert
from chasquimq.address import Endpoint, distrust, is_text
from chasquimq.errors import (
    AccessError,
    ChasquiError,
    ConfigError,
    StoreError,
    StoreUnavailableError,
)
from chasquimq.text import shown

if TYPE_CHECKING:
    from chasquimq.address import Address, Credentials

T = TypeVar("T")

log = logging.getLogger("chasquimq.redis")

ASK_S = 1.0  # for one place to answer; the next one may know as well
_NEEDED = "an address of Sentinels or of a cluster needs redis-py: pip install 'chasquimq-py[ha]'"

SLOTS = 16_384
VIEWS = 2  # of a cluster's nodes: one alone may have been left behind
AT_ONCE = 3  # are asked: one more than needed, so that one that is silent delays nobody
# Nodes that a cluster told of, by the places of its address: those may be gone one day. With the
# epoch of whoever told: one that knows less makes us forget nobody.
_known: dict[tuple[Endpoint, ...], tuple[int, tuple[Endpoint, ...]]] = {}


ODDLY = "answers what no such server answers; what is listening there?"
REMEMBERED_S = 10.0
# Who was the master after the latest failover that any Sentinel told of, and when it did. They
# learn of it one after another, and those that we ask next may not know yet.
_latest: dict[tuple[tuple[Endpoint, ...], str], tuple[Told, float]] = {}


class Told(NamedTuple):
    """What a Sentinel says: after how many failovers of this master, who is the master."""

    epoch: int
    master: Endpoint


def remember(address: Address, told: Told) -> None:
    known, since = _latest.get((address.places, address.service), (told, 0.0))
    now = time.monotonic()
    if told.epoch >= known.epoch or now - since > REMEMBERED_S:
        _latest[address.places, address.service] = told, now


def remembered(address: Address) -> list[Told]:
    told, since = _latest.get((address.places, address.service), (None, 0.0))
    # Without an epoch it may be old news.
    lately = time.monotonic() - since <= REMEMBERED_S
    return [told] if told is not None and told.epoch and lately else []


def login_to_sentinels(address: Address) -> Credentials:
    secret = os.environ.get(address.sentinel_password_env or "") or None
    if address.sentinel_password_env and secret is None:
        raise ConfigError(
            f"{address} wants the Sentinels' password from the environment variable "
            f"{address.sentinel_password_env}, which is empty or not set"
        )
    if secret is not None and not is_text(secret):
        raise ConfigError(
            f"the environment variable {address.sentinel_password_env} holds a lone surrogate"
        )
    return address.sentinel_username, secret


def login_to_nodes(address: Address) -> Credentials:
    return address.username, address.password.reveal() if address.password is not None else None


def find_master(address: Address) -> Endpoint:
    """The master, as the Sentinel says that heard of the latest failover."""
    ask = partial(_ask_sentinel, address, login_to_sentinels(address))
    places = address.places
    answers = _ask_all(
        f"no Sentinel of {address}",
        places,
        ask,
        lambda some: len(some) > len(places) // 2,
        at_once=len(places),
    )
    told = [answer for answer in answers if answer is not None]
    if told:
        latest = newest([*told, *remembered(address)])
        remember(address, latest)
        return latest.master
    raise StoreError(
        f"no Sentinel of {address} knows a master named {address.service!r}; "
        "SENTINEL MASTERS lists the names they know"
    )


def newest(told: Sequence[Told]) -> Told:
    """Of the latest failover; among equals, whom most name."""
    named = Counter(one.master for one in told)
    return max(told, key=lambda one: (one.epoch, named[one.master]))


def _ask_all(
    nobody: str,
    places: Sequence[Endpoint],
    ask: Callable[[Endpoint], list[T]],
    enough: Callable[[list[T]], bool],
    *,
    at_once: int,
) -> list[T]:
    """What they say, of one at least. Who is down is not waited for, and who refuses us is told of,
    unless enough others answer."""
    answers: list[T] = []
    refusal: StoreError | ConfigError | None = None
    silence = ""
    asking = ThreadPoolExecutor(min(at_once, len(places)), thread_name_prefix="chasquimq-places")
    try:
        for each in as_completed([asking.submit(ask, place) for place in places]):
            try:
                answers += each.result()
            except StoreUnavailableError as error:
                silence = error.args[0]
                log.debug("%s", silence)
            except (StoreError, ConfigError) as error:
                refusal = error
            if enough(answers):
                return answers
    finally:
        asking.shutdown(wait=False, cancel_futures=True)
    if refusal is not None:
        raise refusal
    if not answers:
        raise StoreUnavailableError(f"{nobody} answers ({silence}); are they running there?")
    return answers


def _ask_sentinel(address: Address, login: Credentials, place: Endpoint) -> list[Told | None]:
    """Its answer; None: it does not know the name."""
    with _asking(address, place, login, "SENTINEL") as client:
        named = client.execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", address.service)
        if named is None:
            return [None]
        return [read_told(place, named, client.try_command("SENTINEL", "MASTER", address.service))]


def read_told(place: Endpoint, named: Any, facts: Any) -> Told:
    """`named`: the answer to `GET-MASTER-ADDR-BY-NAME`, `facts`: that to `MASTER`, None where it
    was not ours to ask. Raises anything for what no Sentinel answers."""
    host, port = named
    master = _endpoint(place, _text(host), port)
    if facts is None:
        return Told(0, master)
    told = dict(zip(facts[::2], facts[1::2], strict=True))
    return Told(int(told[b"config-epoch"]), master)


def find_node(address: Address, credentials: Credentials | None = None) -> Endpoint:
    """The master of the cluster that owns the address's key."""
    owner = read_slots(address, credentials).owner(address.key)
    if owner is None:
        raise StoreUnavailableError(f"no node of {address} serves {address.key} just now")
    return owner


class View(NamedTuple):
    """A cluster as one of its nodes sees it: (first slot, last, master, its epoch)."""

    whose: bytes
    rows: tuple[tuple[int, int, Endpoint, int], ...]
    nodes: tuple[Endpoint, ...]
    named: bool = True  # it calls each node by a host, and not by the one where it was asked

    @property
    def epoch(self) -> int:
        """Of the latest change that it has heard of."""
        return max((row[3] for row in self.rows), default=0)

    def owner(self, slot: int) -> tuple[int, Endpoint] | None:
        """Since which epoch who has this slot."""
        for first, last, node, epoch in self.rows:
            if first <= slot <= last:
                return epoch, node
        return None


class Slots(NamedTuple):
    """Who serves each slot of a cluster."""

    nodes: tuple[Endpoint | None, ...]

    @property
    def masters(self) -> list[Endpoint]:
        """Who looks for queues has to ask each."""
        return [node for node in dict.fromkeys(self.nodes) if node is not None]

    def owner(self, key: str) -> Endpoint | None:
        return self.nodes[slot_of(key)]


def slot_of(key: str) -> int:
    slot: int = _library().crc.key_slot(key.encode())
    return slot


def read_slots(address: Address, credentials: Credentials | None = None) -> Slots:
    ask = partial(_ask_node, address, credentials or login_to_nodes(address))
    places = known_nodes(address)
    views = _ask_all(f"no node of {address}", places, ask, _enough, at_once=AT_ONCE)
    learn(address, views)
    return merge(views)


def known_nodes(address: Address) -> list[Endpoint]:
    """Those of the address and those that they named, in any order."""
    _, named = _known.get(address.places, (0, ()))
    places = list(dict.fromkeys((*named, *address.places)))
    random.shuffle(places)
    return places


def learn(address: Address, views: Sequence[View]) -> None:
    """Remember the nodes that those name who know most."""
    epoch, _ = _known.get(address.places, (0, ()))
    latest = max(one.epoch for one in views)
    if latest >= epoch:
        heard = (node for one in views if one.epoch == latest for node in one.nodes)
        _known[address.places] = latest, tuple(dict.fromkeys(heard))


def _enough(views: list[View]) -> bool:
    """One node may have been asked by two of its names; one without slots knows nothing."""
    return len({one.whose for one in views if one.rows}) >= VIEWS


def merge(views: Sequence[View]) -> Slots:
    """Who claims a slot with the latest epoch has it; among equals, whom most name."""
    claims = Counter(row for one in views for row in one.rows)
    nodes: list[Endpoint | None] = [None] * SLOTS
    for first, last, node, _ in sorted(claims, key=lambda row: (row[3], claims[row])):
        nodes[first : last + 1] = [node] * (last + 1 - first)
    return Slots(tuple(nodes))


def _ask_node(address: Address, login: Credentials, place: Endpoint) -> list[View]:
    with _asking(address, place, login, "CLUSTER") as client:
        slots = client.execute_command("CLUSTER", "SLOTS")
        return [read_view(place, slots, client.try_command("CLUSTER", "NODES"))]


def read_view(place: Endpoint, slots: Any, table: Any) -> View:
    """`slots`: the answer to `CLUSTER SLOTS`, `table`: that to `CLUSTER NODES`, None where it was
    not ours to ask. Raises anything at what no node answers."""
    whose, epochs = (b"", {}) if table is None else _epochs(table)
    rows = []
    for first, last, master, *_ in slots:
        if not 0 <= first <= last < SLOTS:
            raise ValueError("no range of slots")
        rows.append((first, last, _node(place, master), epochs.get(bytes(master[2]), 0)))
    nodes = (_node(place, one) for row in slots for one in row[2:])
    named = all(_host(row[2]) for row in slots)
    return View(whose or str(place).encode(), tuple(rows), tuple(nodes), named)


def _epochs(table: bytes) -> tuple[bytes, dict[bytes, int]]:
    """Who it is that answers, and with which epoch each node has its slots."""
    lines = [line.split() for line in table.splitlines()]
    whose = next((line[0] for line in lines if b"myself" in line[2]), b"")
    return whose, {line[0]: int(line[6]) for line in lines}


def _node(asked: Endpoint, told: Any) -> Endpoint:
    """One node, as `CLUSTER SLOTS` names it. Without a name it is where the one is that was asked;
    one that is to be called by a name and has told none has its address behind that."""
    return _endpoint(asked, _host(told) or asked.host, told[1])


def _host(told: Any) -> str:
    host = _text(told[0] or b"")
    if host == "?":
        more = told[3] if len(told) > 3 else []
        host = _text(dict(zip(more[::2], more[1::2], strict=False)).get(b"ip", b""))
    return host


def _endpoint(asked: Endpoint, host: str, port: Any) -> Endpoint:
    """It will be in logs, and it comes from a server."""
    if not host or not host.isprintable() or " " in host or not 0 < int(port) < 65_536:
        raise ValueError("no place to connect to")
    return asked._replace(host=host, port=int(port))


@contextmanager
def _asking(address: Address, place: Endpoint, login: Credentials, command: str) -> Iterator[_Line]:
    """A line to one place. That it does not answer is told as StoreUnavailableError."""
    redis = _library()
    line = _client(address, place, login)
    who = f"{place} of {address}"
    try:
        try:
            line.connect()
        except redis.ResponseError:
            # Not in the server's words: one that has no AUTH repeats its arguments.
            raise StoreError(f"{who} does not take AUTH; is it behind a proxy?") from None
        yield line
    except redis.AuthenticationError:
        raise AccessError(f"{who} refused the login; check user and password") from None
    except redis.exceptions.NoPermissionError:
        raise AccessError(f"{who} does not let us ask {command}") from None
    except redis.ResponseError as error:
        if "cluster support disabled" in str(error):
            raise ConfigError(
                f"{who} is no cluster; write redis:// instead of redis+cluster://"
            ) from None
        log.warning("%s: %s", who, shown(str(error)))
        raise StoreUnavailableError(f"{place}: {shown(str(error))}") from None
    except (redis.RedisError, OSError) as error:
        _raise_if_untrusted(address, error, who)
        learned = alert.listen(address, place, who) if _hung_up(error) else None
        if learned is not None:
            raise learned from None
        raise StoreUnavailableError(f"{place}: {shown(str(error))}") from None
    except ChasquiError:
        raise
    except Exception as error:  # reading what nobody expects may raise anything
        log.warning("%s %s (%s)", who, ODDLY, type(error).__name__)
        raise StoreUnavailableError(f"{place} {ODDLY}") from None
    finally:
        line.close()


class _Line:
    """One connection, not a pool's: that takes what TLS sends unasked for an answer too many."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self.connect = connection.connect
        self.close = connection.disconnect

    def execute_command(self, *words: str) -> Any:
        self._connection.send_command(*words)
        return self._connection.read_response()

    def try_command(self, *words: str) -> Any:
        """None where it is refused: it may not be ours to ask."""
        try:
            return self.execute_command(*words)
        except refusals():
            return None


def _client(address: Address, place: Endpoint, login: Credentials) -> _Line:
    redis = _library()
    no_retries = redis.retry.Retry(redis.backoff.NoBackoff(), 0)
    connection = redis.Connection(retry=no_retries, **_options(place, login))
    context = address.ssl_context()
    if context is not None:  # ours, which knows what to do with files that are being renewed
        plain = connection._connect
        connection._connect = lambda: _encrypted(plain(), context, place)
    return _Line(connection)


def async_connection(address: Address, place: Endpoint, login: Credentials) -> Any:
    """The same for event loops. It has no limit of its own for answers: the caller sets one."""
    redis = _library()
    from redis import asyncio as redis_asyncio
    from redis.asyncio.retry import Retry

    kind, options = redis_asyncio.Connection, _options(place, login) | {"socket_timeout": None}
    if address.tls:
        kind = redis_asyncio.SSLConnection
        options |= {
            "ssl_ca_certs": address.ca_file,
            "ssl_certfile": address.cert_file,
            "ssl_keyfile": address.key_file,
        }
        if address.insecure:
            options |= {"ssl_cert_reqs": "none", "ssl_check_hostname": False}
    return kind(retry=Retry(redis.backoff.NoBackoff(), 0), **options)


def _options(place: Endpoint, login: Credentials) -> dict[str, Any]:
    return {
        "host": place.host,
        "port": place.port,
        "username": login[0],
        "password": login[1],
        "socket_timeout": ASK_S,
        "socket_connect_timeout": ASK_S,
        # Raw replies: a list is what every version of the library hands through.
        "protocol": 2,
        "driver_info": None,  # it would introduce itself by a command that users need not have
    }


def refusals() -> type[Exception]:
    """What redis-py raises for a command that a server refuses."""
    refused: type[Exception] = _library().ResponseError
    return refused


def _encrypted(raw: socket.socket, context: ssl.SSLContext, place: Endpoint) -> ssl.SSLSocket:
    try:
        return context.wrap_socket(raw, server_hostname=place.host)
    except BaseException:
        raw.close()
        raise


def _raise_if_untrusted(address: Address, error: BaseException | None, who: str) -> None:
    """A certificate that was refused, theirs or ours, is no outage: asking the next would hide
    it."""
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            raise distrust(who, error) from None
        refused = alert.turned_away(address, who, error)
        if refused is not None:
            raise refused from None
        error = error.__cause__ or error.__context__


def _hung_up(error: BaseException | None) -> bool:
    """On our greeting, in whatever way; or what it said was nothing of Redis."""
    redis, broke = _library(), (ConnectionResetError, BrokenPipeError, ssl.SSLEOFError)
    if isinstance(error, redis.InvalidResponse) or "closed by server" in str(error):
        return True
    while error is not None and not isinstance(error, broke):
        error = error.__cause__ or error.__context__
    return error is not None


def _library() -> Any:
    try:
        import redis.backoff
        import redis.crc
        import redis.retry
    except ModuleNotFoundError:
        raise ConfigError(_NEEDED) from None
    return redis


def _text(word: bytes | str) -> str:
    return word.decode() if isinstance(word, bytes) else word
