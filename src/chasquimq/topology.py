"""Which server to talk to now: the master that Sentinels name, or the node of a cluster that owns a
key. Asked before every connect, so that whoever reconnects follows a failover.

1. Sentinels are asked all at once, until more than half have answered. They learn of a failover one
   after another, so who heard of the latest decides;
2. of a cluster's nodes, those of the address and those it named before, the first that answers
   decides. Each time another is asked first: one that was cut off from the others answers, too;
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
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from chasquimq.address import Endpoint, distrust
from chasquimq.errors import AccessError, ConfigError, StoreError, StoreUnavailableError

if TYPE_CHECKING:
    from chasquimq.address import Address, Credentials

log = logging.getLogger(__name__)

ASK_S = 1.0  # for one place to answer; the next one may know as well
_NEEDED = "an address of Sentinels or of a cluster needs redis-py: pip install 'chasquimq-py[ha]'"

# Nodes that a cluster told of, by the places of its address: those may be gone one day.
_known: dict[tuple[Endpoint, ...], tuple[Endpoint, ...]] = {}


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
    answers = _ask_sentinels(address, (address.sentinel_username, secret))
    told = [answer for answer in answers if answer is not None]
    if told:
        named = Counter(one.master for one in told)
        return max(told, key=lambda one: (one.epoch, named[one.master])).master
    if answers:
        raise StoreError(
            f"no Sentinel of {address} knows a master named {address.service!r}; "
            "SENTINEL MASTERS lists the names they know"
        )
    raise StoreUnavailableError(f"no Sentinel of {address} answers; are they running there?")


def _ask_sentinels(address: Address, login: Credentials) -> list[Told | None]:
    """What they say, None: who does not know the name. One that is down is not waited for, and one
    that refuses us is told of, unless more than half answer."""
    answers: list[Told | None] = []
    refusal: AccessError | None = None
    enough = len(address.places) // 2 + 1
    asking = ThreadPoolExecutor(len(address.places), thread_name_prefix="chasquimq-sentinels")
    try:
        ask = partial(_ask_sentinel, address, login)
        for each in as_completed([asking.submit(ask, place) for place in address.places]):
            try:
                answers += each.result()
            except AccessError as error:
                refusal = error
            if len(answers) == enough:
                return answers
    finally:
        asking.shutdown(wait=False, cancel_futures=True)
    if refusal is not None:
        raise refusal
    return answers


def _ask_sentinel(address: Address, login: Credentials, place: Endpoint) -> list[Told | None]:
    """Its answer, or none."""
    answers: list[Told | None] = []
    with _asking(address, place, login, "SENTINEL") as client:
        named = client.execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", address.service)
        if named is None:
            answers = [None]
        else:
            master = place._replace(host=_text(named[0]), port=int(named[1]))
            answers = [Told(_epoch(client, address.service), master)]
    return answers


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


class Slots(NamedTuple):
    """Who serves which keys of a cluster, as one of its nodes sees it: (first, last, master)."""

    rows: tuple[tuple[int, int, Endpoint], ...]

    @property
    def masters(self) -> list[Endpoint]:
        """Who looks for queues has to ask each."""
        return list(dict.fromkeys(row[2] for row in self.rows))

    def owner(self, key: str) -> Endpoint | None:
        slot = _library().crc.key_slot(key.encode())
        return next((node for first, last, node in self.rows if first <= slot <= last), None)


def read_slots(address: Address, credentials: Credentials | None = None) -> Slots:
    """As the first node says that answers."""
    login: Credentials = credentials or (
        address.username,
        address.password.reveal() if address.password is not None else None,
    )
    places = list(dict.fromkeys((*_known.get(address.places, ()), *address.places)))
    random.shuffle(places)
    for place in places:
        rows = None
        with _asking(address, place, login, "CLUSTER") as client:
            rows = client.execute_command("CLUSTER", "SLOTS")
        if rows is not None:
            nodes = [_node(place, one) for row in rows for one in row[2:]]
            _known[address.places] = tuple(dict.fromkeys(nodes))
            return Slots(tuple((row[0], row[1], _node(place, row[2])) for row in rows))
    raise StoreUnavailableError(f"no node of {address} answers; are they running there?")


def _node(asked: Endpoint, told: Any) -> Endpoint:
    """One node, as `CLUSTER SLOTS` names it. Without a name it is the one that was asked."""
    host = _text(told[0] or b"")
    return asked._replace(host=asked.host if host in ("", "?") else host, port=int(told[1]))


@contextmanager
def _asking(address: Address, place: Endpoint, login: Credentials, command: str) -> Iterator[Any]:
    """A client for one place. What it does not answer is not raised: others may."""
    redis = _library()
    client = _client(address, place, login)
    try:
        yield client
    except redis.AuthenticationError:
        raise AccessError(
            f"{place} of {address} refused the login; check user and password"
        ) from None
    except redis.exceptions.NoPermissionError:
        raise AccessError(f"{place} of {address} does not let us ask {command}") from None
    except redis.ResponseError as error:
        if "cluster support disabled" in str(error):
            raise ConfigError(
                f"{place} of {address} is no cluster; write redis:// instead of redis+cluster://"
            ) from None
        log.warning("%s of %s: %s", place, address, error)
    except (redis.RedisError, OSError) as error:
        _raise_if_untrusted(error, f"{place} of {address}")
        log.debug("%s of %s: %s", place, address, error)
    finally:
        client.close()


class _Line:
    """One connection, not a pool's: that takes what TLS sends unasked for an answer too many."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
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
