"""A Redis URL read into a value that never shows its secret, and where to connect now.

    redis://[user:password@]host[:port][/db]      plain TCP
    rediss://...                                  TLS, verified
    unix://[user:password@]/path/to.sock[?db=n]   unix socket

`resolve()` is asked before every connect. Here it answers with the same place each time; a
resolver that follows failovers only has to answer with another one.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

from chasquimq.config import refuse_unknown
from chasquimq.errors import ConfigError

DEFAULT_URL = "redis://127.0.0.1:6379"
_TLS_OPTIONS = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "insecure")
_SCHEME = re.compile(r"[a-zA-Z][\w+.-]*://")
_PLACE = re.compile(r"(\[[^\]]*\]|[^:/?#]*)(:\d*)?([/?#].*)?", re.DOTALL)
_UNREADABLE = "cannot be read; percent-encode special characters in it"

# Asked before every AUTH with "host:port" (None for a unix socket), so tokens may rotate.
Credentials = tuple[str | None, str | None]
CredentialProvider = Callable[[str | None], Awaitable[Credentials] | Credentials]


class Endpoint(NamedTuple):
    """One place to connect to: a host and port, or the path of a unix socket."""

    host: str
    port: int
    path: str | None = None

    def __str__(self) -> str:
        if self.path is not None:
            return self.path
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Secret:
    """A text that shows itself to nobody who did not ask by name."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return "Secret(***)"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)


class Resolver(Protocol):
    def __call__(self) -> Endpoint: ...


class Address(msgspec.Struct, frozen=True):
    endpoint: Endpoint
    db: int = 0
    username: str | None = None
    password: Secret | None = None
    tls: bool = False
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    insecure: bool = False

    def resolve(self) -> Endpoint:
        return self.endpoint

    def ssl_context(self) -> ssl.SSLContext | None:
        if not self.tls:
            return None
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
            if self.cert_file is not None:
                context.load_cert_chain(self.cert_file, self.key_file)
        except OSError as error:
            raise ConfigError(f"cannot load the TLS files for {self}: {error}") from None
        if self.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context

    def __str__(self) -> str:
        """The URL without its secret, fit for messages and logs."""
        secret = ":***" if self.password is not None else ""
        who = f"{self.username or ''}{secret}@" if self.username or secret else ""
        if self.endpoint.path is not None:
            return f"unix://{who}{self.endpoint}" + (f"?db={self.db}" if self.db else "")
        scheme = "rediss" if self.tls else "redis"
        return f"{scheme}://{who}{self.endpoint}" + (f"/{self.db}" if self.db else "")

    def __repr__(self) -> str:
        return f"Address({self})"


def read_url(url: str, *, tls: bool = False) -> Address:
    """Read a URL; `tls=True` asks for TLS whatever the scheme says."""
    if not _SCHEME.match(url):
        url = f"redis://{url}"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise _bad(url, _UNREADABLE) from None
    # A raw `/`, `?` or `#` in a password puts the rest of it where paths and options belong.
    # No message may show those, and nobody wants to connect to what stands before them.
    if "@" in f"{parts.path}{parts.query}{parts.fragment}":
        raise _bad(url, _UNREADABLE)
    if parts.scheme not in ("redis", "rediss", "unix"):
        raise _bad(url, "must start with redis://, rediss:// or unix://")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    username = unquote(parts.username) if parts.username else None
    password = Secret(unquote(parts.password)) if parts.password else None
    if parts.scheme == "unix":
        if parts.hostname or not parts.path:
            raise _bad(url, "names no socket; write three slashes, as in unix:///path/to.sock")
        refuse_unknown(options, ("db",), f"the address {hide(url)}")
        endpoint = Endpoint("", 0, unquote(parts.path))
        return Address(endpoint, _db(options.get("db", ""), url), username, password)
    if "db" in options:
        raise _bad(url, f"names its database by ?db=; write …:{port or 6379}/{options['db']}")
    refuse_unknown(options, _TLS_OPTIONS, f"the address {hide(url)}")
    return Address(
        Endpoint(parts.hostname or "127.0.0.1", port or 6379),
        _db(parts.path.strip("/"), url),
        username,
        password,
        tls=tls or parts.scheme == "rediss",
        ca_file=options.get("ssl_ca_certs"),
        cert_file=options.get("ssl_certfile"),
        key_file=options.get("ssl_keyfile"),
        insecure=options.get("insecure", "").lower() in ("1", "true", "yes"),
    )


def hide(url: str) -> str:
    """The URL with everything before its last `@` hidden: a raw password may hold `/` or `@`.

    Without an `@`, one that is no plain host and port is hidden whole: what stands where the
    port belongs may be a password.
    """
    scheme = _SCHEME.match(url)
    front = scheme[0] if scheme else ""
    _, at, place = url.removeprefix(front).rpartition("@")
    if at:
        return f"{front}***@{place}"
    return url if _PLACE.fullmatch(place) else f"{front}***"


def _bad(url: str, why: str) -> ConfigError:
    return ConfigError(f"redis_url {hide(url)!r} {why}")


def _db(text: str, url: str) -> int:
    if text and not (text.isascii() and text.isdigit()):
        raise _bad(url, "must end in a database number, as in redis://host:6379/0")
    return int(text or 0)
