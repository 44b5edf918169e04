"""Which server to talk to now: the master that Sentinels name, or the node of a cluster that owns a
key. Asked before every connect, so that whoever reconnects follows a failover.

1. ask one place after another: those of the address, and for a cluster those it named before;
2. the first that answers decides. Nobody knows: the server is away for now, try again.

redis-py asks the questions: it brings TLS, logins and the arithmetic of slots. It is imported when
there is a question to ask, and is no need of those who give a plain address.
"""

from __future__ import annotations

import logging
import os
import ssl
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from chasquimq.errors import AccessError, ConfigError, StoreError, StoreUnavailableError

if TYPE_CHECKING:
    from chasquimq.address import Address, Credentials, Endpoint

log = logging.getLogger(__name__)

ASK_S = 1.0  # for one place to answer; the next one may know as well
_NEEDED = "an address of Sentinels or of a cluster needs redis-py: pip install 'chasquimq-py[ha]'"

# Nodes that a cluster told of, by the places of its address: those may be gone one day.
_known: dict[tuple[Endpoint, ...], tuple[Endpoint, ...]] = {}


def find_master(address: Address) -> Endpoint:
    """The master that a Sentinel names."""
    secret = os.environ.get(address.sentinel_password_env or "") or None
    if address.sentinel_password_env and secret is None:
        raise ConfigError(
            f"{address} wants the Sentinels' password from the environment variable "
            f"{address.sentinel_password_env}, which is empty or not set"
        )
    login = (address.sentinel_username, secret)
    command = ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", address.service)
    unknown = 0
    for place, reply in _answers(address, address.places, login, command):
        if reply is not None:
            return place._replace(host=_text(reply[0]), port=int(reply[1]))
        unknown += 1
    if unknown:
        raise StoreError(
            f"no Sentinel of {address} knows a master named {address.service!r}; "
            "SENTINEL MASTERS lists the names they know"
        )
    raise StoreUnavailableError(f"no Sentinel of {address} answers; are they running there?")


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
    places = tuple(dict.fromkeys((*_known.get(address.places, ()), *address.places)))
    for place, rows in _answers(address, places, login, ("CLUSTER", "SLOTS")):
        nodes = [_node(place, one) for row in rows for one in row[2:]]
        _known[address.places] = tuple(dict.fromkeys(nodes))
        return Slots(tuple((row[0], row[1], _node(place, row[2])) for row in rows))
    raise StoreUnavailableError(f"no node of {address} answers; are they running there?")


def _node(asked: Endpoint, told: Any) -> Endpoint:
    """One node, as `CLUSTER SLOTS` names it. Without a name it is the one that was asked."""
    host = _text(told[0] or b"")
    return asked._replace(host=asked.host if host in ("", "?") else host, port=int(told[1]))


def _answers(
    address: Address, places: tuple[Endpoint, ...], login: Credentials, command: tuple[str, ...]
) -> Iterator[tuple[Endpoint, Any]]:
    """What each place says, one after another; those that say nothing are left out."""
    redis = _library()
    for place in places:
        client = _client(address, place, login)
        try:
            yield place, client.execute_command(*command)
        except redis.AuthenticationError:
            raise AccessError(
                f"{place} of {address} refused the login; check user and password"
            ) from None
        except redis.exceptions.NoPermissionError:
            raise AccessError(f"{place} of {address} does not let us ask {command[0]}") from None
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


def _client(address: Address, place: Endpoint, login: Credentials) -> Any:
    redis = _library()
    tls: dict[str, Any] = {}
    if address.tls:
        tls = {
            "ssl": True,
            "ssl_ca_certs": address.ca_file,
            "ssl_certfile": address.cert_file,
            "ssl_keyfile": address.key_file,
        }
        if address.insecure:
            tls |= {"ssl_cert_reqs": "none", "ssl_check_hostname": False}
    return redis.Redis(
        host=place.host,
        port=place.port,
        username=login[0],
        password=login[1],
        socket_timeout=ASK_S,
        socket_connect_timeout=ASK_S,
        retry=redis.retry.Retry(redis.backoff.NoBackoff(), 0),
        # Raw replies: a list is what every version of the library hands through.
        protocol=2,
        **tls,
    )


def _raise_if_untrusted(error: BaseException | None, who: str) -> None:
    """A certificate that was refused is no outage: asking the next would hide it."""
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            raise AccessError(
                f"the certificate of {who} was refused ({error.verify_message}); "
                "give its authority by ?ssl_ca_certs=/path"
            ) from None
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
