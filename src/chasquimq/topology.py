"""Which server to talk to now: the master that Sentinels name, or the node of a cluster that owns a
key. Asked before every connect, so that whoever reconnects follows a failover.

1. Sentinels are asked all at once, until more than half have answered. They learn of a failover one
   after another, so who heard of the latest decides;
2. of a cluster's nodes, those of the address and those it named before, two decide: one that was
   cut off from the others answers, too. Each slot has who claims it with the latest epoch, which
   is how nodes themselves agree. Each time others are asked first;
3. nobody knows: the server is away for now, try again.

redis-py asks the questions: it brings TLS, logins and the arithmetic of slots. It is imported when
there is a question to ask, and is no need of those who give a plain address.
"""

from __future__ import annotations

import logging
import os
import random
import ssl
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from chasquimq.address import Endpoint, distrust
from chasquimq.errors import AccessError, ConfigError, StoreError, StoreUnavailableError

if TYPE_CHECKING:
    from chasquimq.address import Address, Credentials

T = TypeVar("T")

log = logging.getLogger(__name__)

ASK_S = 1.0  # for one place to answer; the next one may know as well
_NEEDED = "an address of Sentinels or of a cluster needs redis-py: pip install 'chasquimq-py[ha]'"

SLOTS = 16_384
VIEWS = 2  # of a cluster's nodes: one alone may have been left behind
AT_ONCE = 3  # are asked: one more than needed, so that one that is silent delays nobody
# Nodes that a cluster told of, by the places of its address: those may be gone one day. With the
# epoch of whoever told: one that knows less makes us forget nobody.
_known: dict[tuple[Endpoint, ...], tuple[int, tuple[Endpoint, ...]]] = {}


class Told(NamedTuple):
    """What a Sentinel says: after how many failovers of this master, who is the master."""

    epoch: int
    master: Endpoint


def find_master(address: Address) -> Endpoint:
    """The master, as the Sentinel says that heard of the latest failover."""
    secret = os.environ.get(address.sentinel_password_env or "") or None
    if address.sentinel_password_env and secret is None:
        raise ConfigError(
            f"{address} wants the Sentinels' password from the environment variable "
            f"{address.sentinel_password_env}, which is empty or not set"
        )
    ask = partial(_ask_sentinel, address, (address.sentinel_username, secret))
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
        named = Counter(one.master for one in told)
        return max(told, key=lambda one: (one.epoch, named[one.master])).master
    raise StoreError(
        f"no Sentinel of {address} knows a master named {address.service!r}; "
        "SENTINEL MASTERS lists the names they know"
    )


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
        master = place._replace(host=_text(named[0]), port=int(named[1]))
        return [Told(_epoch(client, address.service), master)]


def _epoch(client: Any, service: str) -> int:
    try:
        facts = client.execute_command("SENTINEL", "MASTER", service)
    except _library().ResponseError:  # it may not be ours to ask
        return 0
    told = dict(zip(facts[::2], facts[1::2], strict=True))
    return int(told[b"config-epoch"])


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

    @property
    def epoch(self) -> int:
        """Of the latest change that it has heard of."""
        return max((row[3] for row in self.rows), default=0)


class Slots(NamedTuple):
    """Who serves each slot of a cluster."""

    nodes: tuple[Endpoint | None, ...]

    @property
    def masters(self) -> list[Endpoint]:
        """Who looks for queues has to ask each."""
        return [node for node in dict.fromkeys(self.nodes) if node is not None]

    def owner(self, key: str) -> Endpoint | None:
        slot: int = _library().crc.key_slot(key.encode())
        return self.nodes[slot]


def read_slots(address: Address, credentials: Credentials | None = None) -> Slots:
    login: Credentials = credentials or (
        address.username,
        address.password.reveal() if address.password is not None else None,
    )
    epoch, named = _known.get(address.places, (0, ()))
    places = list(dict.fromkeys((*named, *address.places)))
    random.shuffle(places)
    ask = partial(_ask_node, address, login)
    views = _ask_all(f"no node of {address}", places, ask, _enough, at_once=AT_ONCE)
    newest = max(one.epoch for one in views)
    if newest >= epoch:
        heard = (node for one in views if one.epoch == newest for node in one.nodes)
        _known[address.places] = newest, tuple(dict.fromkeys(heard))
    return merge(views)


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
        told = client.execute_command("CLUSTER", "SLOTS")
        whose, epochs = _epochs(client)
        rows = (
            (first, last, _node(place, master), epochs.get(bytes(master[2]), 0))
            for first, last, master, *_ in told
        )
        nodes = (_node(place, one) for row in told for one in row[2:])
        return [View(whose or str(place).encode(), tuple(rows), tuple(nodes))]


def _epochs(client: Any) -> tuple[bytes, dict[bytes, int]]:
    """Who it is that answers, and with which epoch each node has its slots."""
    try:
        table: bytes = client.execute_command("CLUSTER", "NODES")
    except _library().ResponseError:  # it may not be ours to ask
        return b"", {}
    lines = [line.split() for line in table.splitlines()]
    whose = next((line[0] for line in lines if b"myself" in line[2]), b"")
    return whose, {line[0]: int(line[6]) for line in lines}


def _node(asked: Endpoint, told: Any) -> Endpoint:
    """One node, as `CLUSTER SLOTS` names it. Without a name it is where the one is that was asked;
    one that is to be called by a name and has told none has its address behind that."""
    host = _text(told[0] or b"")
    if host == "?":
        more = told[3] if len(told) > 3 else []
        host = _text(dict(zip(more[::2], more[1::2], strict=False)).get(b"ip", b""))
    return asked._replace(host=host or asked.host, port=int(told[1]))


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
        log.warning("%s: %s", who, error)
        raise StoreUnavailableError(f"{place}: {error}") from None
    except (redis.RedisError, OSError) as error:
        _raise_if_untrusted(error, who)
        raise StoreUnavailableError(f"{place}: {error}") from None
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


def _client(address: Address, place: Endpoint, login: Credentials) -> _Line:
    redis = _library()
    kind, tls = redis.Connection, dict[str, Any]()
    if address.tls:
        kind = redis.SSLConnection
        tls = {
            "ssl_ca_certs": address.ca_file,
            "ssl_certfile": address.cert_file,
            "ssl_keyfile": address.key_file,
        }
        if address.insecure:
            tls |= {"ssl_cert_reqs": "none", "ssl_check_hostname": False}
    connection = kind(
        host=place.host,
        port=place.port,
        username=login[0],
        password=login[1],
        socket_timeout=ASK_S,
        socket_connect_timeout=ASK_S,
        retry=redis.retry.Retry(redis.backoff.NoBackoff(), 0),
        # Raw replies: a list is what every version of the library hands through.
        protocol=2,
        driver_info=None,  # it would introduce itself by a command that users need not have
        **tls,
    )
    return _Line(connection)


def _raise_if_untrusted(error: BaseException | None, who: str) -> None:
    """A certificate that was refused is no outage: asking the next would hide it."""
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            raise distrust(who, error) from None
        error = error.__cause__ or error.__context__


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
