"""A Redis URL read into a value that never shows its secret, and where to connect now.

    redis://[user:password@]host[:port][/db]      plain TCP
    rediss://...                                  TLS, verified
    unix://[user:password@]/path/to.sock[?db=n]   unix socket
    redis+sentinel://[user:password@]host[:26379],host,.../name-of-the-master[/db]
    redis+cluster://[user:password@]host[:6379],host,...
    rediss+sentinel://..., rediss+cluster://...   both over TLS

`resolve()` is asked before every connect: a plain address answers with the same place each time,
the others with the server that is the right one now (`topology.py`).
"""

from __future__ import annotations

import logging
import os
import re
import ssl
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Literal, NamedTuple, TypedDict, TypeVar
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlencode, urlsplit

import msgspec

from chasquimq.config import refuse_unknown
from chasquimq.errors import AccessError, ArgumentError, ConfigError

T = TypeVar("T")

log = logging.getLogger("chasquimq.redis")

DEFAULT_URL = "redis://127.0.0.1:6379"
SENTINEL_PORT = 26379
_TLS_OPTIONS = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "insecure")
_SCHEME = re.compile(r"[a-zA-Z][\w+.-]*://")
_PLACE = re.compile(r"(\[[^\]]*\]|[^:/?#]*)(:\d*)?([/?#].*)?", re.DOTALL)
_PARTS = re.compile(r"([^/]*://)([^/?#]*)(.*)", re.DOTALL)
_SCHEMES = "must start with redis://, rediss://, unix://, redis+sentinel:// or redis+cluster://"
_HOST = re.compile(r"(?:\[([^\]]+)\]|([^:\[\]]+))(?::(\d{1,5}))?")
_MAX_DB_DIGITS = 9
_OPTION = re.compile(r"([?&#][^=&#]*=?)[^&#]*")
_SHOWN = ("?db=", *(f"{sign}{name}=" for sign in "?&" for name in _TLS_OPTIONS))
# By what OpenSSL calls its trouble: of time, and of names.
_CURES = {
    **dict.fromkeys((9, 10), "renew it, or look at the clocks"),
    **dict.fromkeys((62, 64), "connect to a name that stands in it"),
}
_YES, _NO = ("1", "true", "yes", "on"), ("0", "false", "no", "off")
_NO_PORT = -1
# `redis` may be the name of a host: what follows must not be a database alone, as in `redis:/0`.
_MAIMED = re.compile(r"(redis|rediss|unix)(\+\w+)?(:/|//)(?!\d*$)")
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


class Veiled(partial[T]):
    """A call whose arguments may hold a secret: they are shown to nobody who did not ask."""

    __repr__ = object.__repr__


Kind = Literal["server", "sentinel", "cluster"]


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
    kind: Kind = "server"
    places: tuple[Endpoint, ...] = ()  # whom to ask where the server is; `endpoint` is the first
    service: str = ""  # the name that Sentinels have for the master
    sentinel_username: str | None = None
    sentinel_password_env: str | None = None  # a name, so that no URL holds the secret
    key: str = ""  # of a cluster: where this key lives

    def of(self, key: str) -> Address:
        """The same, for one that talks about this key and those that share its slot."""
        return msgspec.structs.replace(self, key=key) if self.kind == "cluster" else self

    def resolve(self, credentials: Credentials | None = None) -> Endpoint:
        """Where to connect now. It may ask around, and then takes a while. `credentials`: what to
        log in with while asking, instead of the address's own."""
        if self.kind == "server":
            return self.endpoint
        from chasquimq import topology

        if self.kind == "sentinel":
            return topology.find_master(self)
        return topology.find_node(self, credentials)

    def nodes(self) -> list[Address]:
        """The servers that hold queues: one, or the masters of a cluster, each by itself."""
        if self.kind != "cluster":
            return [self]
        from chasquimq import topology

        return [self.node(endpoint) for endpoint in topology.read_slots(self).masters]

    def node(self, endpoint: Endpoint) -> Address:
        """This one server of a cluster, and no other."""
        return msgspec.structs.replace(self, endpoint=endpoint, kind="server", places=(), key="")

    def ssl_context(self) -> ssl.SSLContext | None:
        """What to speak TLS with now. Asked before every connect: files that were renewed are read
        again. While they cannot be, as when one of them is half written, or the key is not yet that
        of the certificate, what they held before serves on."""
        if not self.tls:
            return None
        files = (self.ca_file, self.cert_file, self.key_file)
        seen, kept = _seen(files), _kept.get((*files, self.insecure))
        if kept is not None and kept.seen == seen:
            kept.warned = False
            return kept.context
        try:
            # Who asks for the phrase of a key asks once: nobody is there when it is renewed.
            context = self._new_context(None if kept is None else "")
        except (OSError, ValueError) as error:
            trouble = f"cannot load the TLS files for {self}: {error}"
        else:
            _kept[*files, self.insecure] = _Kept(context, seen)
            return context
        if kept is None:
            raise ConfigError(trouble)
        if not kept.warned:
            kept.warned = True
            log.warning("%s; what they held before serves on, and they are tried again", trouble)
        return kept.context

    def _new_context(self, phrase: str | None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.ca_file)
        if self.cert_file is not None:
            context.load_cert_chain(self.cert_file, self.key_file, phrase)
        if self.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context

    def __str__(self) -> str:
        """The URL without its secret, fit for messages and logs. A user without a password may be
        a password that lacks its colon."""
        if self.password is not None:
            return self._url(f"{self.username or ''}:***@")
        return self._url("***@" if self.username else "")

    def without_secret(self, username: str | None) -> str:
        """The whole URL, options and all, without a password: to be read again by `read_url`."""
        who = f"{quote(username, safe='')}@" if username else ""
        told = {
            "ssl_ca_certs": self.ca_file,
            "ssl_certfile": self.cert_file,
            "ssl_keyfile": self.key_file,
            "insecure": "true" if self.insecure else None,
            "sentinel_username": self.sentinel_username,
            "sentinel_password_env": self.sentinel_password_env,
        }
        options = urlencode({name: value for name, value in told.items() if value is not None})
        return self._url(who) + (f"?{options}" if options else "")

    def _url(self, who: str) -> str:
        if self.endpoint.path is not None:
            db = f"?db={self.db}" if self.db else ""
            return f"unix://{who}{quote(self.endpoint.path)}{db}"
        scheme = "rediss" if self.tls else "redis"
        if self.kind != "server":
            scheme += f"+{self.kind}"
        places = ",".join(map(str, self.places or (self.endpoint,)))
        name = f"/{quote(self.service, safe='')}" if self.service else ""
        return f"{scheme}://{who}{places}{name}" + (f"/{self.db}" if self.db else "")

    def __repr__(self) -> str:
        return f"Address({self})"


def read_url(url: str, *, tls: bool = False, secret_elsewhere: bool = False) -> Address:
    """Read a URL; `tls=True` asks for TLS whatever the scheme says. `secret_elsewhere`: somebody
    else knows the password, so that the URL may name a user alone."""
    given: object = url
    if not isinstance(given, str):
        kind = "None" if given is None else type(given).__name__  # bytes may hold a password
        raise ArgumentError(
            f"redis_url is a str such as 'redis://127.0.0.1:6379/0', got {kind}; leave it out for "
            f"{DEFAULT_URL}"
        )
    if not is_text(url):
        raise _bad(url, "holds a lone surrogate (half of a character); write it in UTF-8")
    if not _SCHEME.match(url):
        if _MAIMED.match(url):
            raise _bad(url, _SCHEMES)
        url = f"redis://{url}"
    parts = _split(url)
    if parts is None:
        raise _bad(url, _UNREADABLE)
    # A raw `/`, `?` or `#` in a password puts the rest of it where paths and options belong.
    # No message may show those, and nobody wants to connect to what stands before them.
    if "@" in f"{parts.path}{parts.query}{parts.fragment}":
        raise _bad(url, _UNREADABLE)
    scheme, _, kind = parts.scheme.partition("+")
    if scheme not in ("redis", "rediss") and parts.scheme != "unix":
        raise _bad(url, _SCHEMES)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    tls = tls or scheme == "rediss"
    if not secret_elsewhere and _is_lone(parts):
        where = "/path/to.sock" if scheme == "unix" else "host"
        good = f"{parts.scheme}://:password@{where}, or {parts.scheme}://user:password@{where}"
        raise _bad(
            url, f"has a user without a password, or a password without a colon; write {good}"
        )
    if kind in ("sentinel", "cluster"):
        return _read_places(url, parts, options, kind, tls=tls)
    if kind:
        raise _bad(url, _SCHEMES)
    port = _port(parts)
    if port == _NO_PORT:
        raise _bad(url, _UNREADABLE)
    username, password = _login(parts.username, parts.password)
    if parts.scheme == "unix":
        if parts.hostname or not parts.path:
            raise _bad(url, "names no socket; write three slashes, as in unix:///path/to.sock")
        refuse_unknown(options, ("db",), f"the address {hide(url)}")
        if tls:
            raise _bad(url, "is a unix socket, which has no TLS; leave out tls=True")
        endpoint = Endpoint("", 0, unquote(parts.path))
        return Address(endpoint, _db(options.get("db", ""), url), username, password)
    if "db" in options:
        raise _bad(url, f"names its database by ?db=; write …:{port or 6379}/{options['db']}")
    refuse_unknown(options, _TLS_OPTIONS, f"the address {hide(url)}")
    return Address(
        Endpoint(_host(parts.hostname or "127.0.0.1", url), port or 6379),
        _db(parts.path.strip("/"), url),
        username,
        password,
        tls=tls,
        **_tls_files(options, url, tls=tls),
    )


# Python's own errors quote what they could not read, which may be a password. An error of ours that
# is raised while one of them is handled keeps it as its context, `from None` or not.


def _split(url: str) -> SplitResult | None:
    """Newer Pythons refuse brackets beside a comma: several places are kept from them."""
    front, places, rest = _PARTS.fullmatch(url).groups()  # type: ignore[union-attr] # it has "://"
    try:
        if "+" not in front or "," not in places:
            return urlsplit(url)
        return urlsplit(f"{front}places{rest}")._replace(netloc=places)
    except ValueError:
        return None


def _port(parts: SplitResult) -> int | None:
    try:
        return parts.port
    except ValueError:
        return _NO_PORT


def _read_places(
    url: str, parts: SplitResult, options: dict[str, str], kind: str, *, tls: bool
) -> Address:
    """Of Sentinels or of a cluster: several hosts, and what is found through them."""
    who, _, hosts = parts.netloc.rpartition("@")
    user, _, secret = who.partition(":")
    username, password = _login(user, secret)
    usual = SENTINEL_PORT if kind == "sentinel" else 6379
    places = tuple(_place(host, usual, url) for host in hosts.split(","))
    service, _, db = parts.path.strip("/").partition("/")
    known: tuple[str, ...] = _TLS_OPTIONS
    if kind == "sentinel":
        known = (*_TLS_OPTIONS, "sentinel_username", "sentinel_password_env")
        if not service:
            raise _bad(url, "names no master; write redis+sentinel://host:26379/mymaster")
    elif parts.path.strip("/") not in ("", "0"):
        raise _bad(url, "ends in a path; a cluster has one database, and no name")
    else:
        service = ""
    refuse_unknown(options, known, f"the address {hide(url)}")
    return Address(
        places[0],
        _db(db, url),
        username,
        password,
        tls=tls,
        kind="sentinel" if kind == "sentinel" else "cluster",
        places=places,
        service=unquote(service),
        sentinel_username=options.get("sentinel_username"),
        sentinel_password_env=options.get("sentinel_password_env"),
        **_tls_files(options, url, tls=tls),
    )


def _place(host: str, usual: int, url: str) -> Endpoint:
    found = _HOST.fullmatch(host)
    if found is None or not 0 < int(found[3] or usual) < 65536:
        raise _bad(url, "names a place that is no host:port; write them with commas between")
    return Endpoint(_host(found[1] or found[2], url), int(found[3] or usual))


def _host(host: str, url: str) -> str:
    """A name, or an address; colons are in those of IPv6 alone, and brackets nowhere."""
    if not host.isprintable() or any(sign in host for sign in "[] "):
        raise _bad(url, _UNREADABLE)
    if ":" in host:
        from ipaddress import IPv6Address  # seldom, and not worth its time at every start

        try:
            IPv6Address(host)
        except ValueError:
            raise _bad(url, _UNREADABLE) from None
    elif not _may_be_asked_for(host):
        raise _bad(url, "names a host that no server can have: its parts have 1 to 63 characters")
    return host


def _may_be_asked_for(host: str) -> bool:
    if host.isascii():
        return all(0 < len(label) < 64 for label in host.removesuffix(".").split("."))
    try:
        return bool(host.encode("idna"))  # seldom, and slow to load
    except UnicodeError:
        return False


def _is_lone(parts: SplitResult) -> bool:
    """Whether somebody is named, and no password."""
    user, _, secret = parts.netloc.rpartition("@")[0].partition(":")
    return bool(user) and not secret


def _login(username: str | None, password: str | None) -> tuple[str | None, Secret | None]:
    user = unquote(username) if username else None
    return user, Secret(unquote(password)) if password else None


class _Files(TypedDict):
    ca_file: str | None
    cert_file: str | None
    key_file: str | None
    insecure: bool


def _tls_files(options: dict[str, str], url: str, *, tls: bool) -> _Files:
    named = [name for name in _TLS_OPTIONS if name in options]
    if named and not tls:
        scheme = url.partition("://")[0].lower().replace("redis", "rediss", 1)
        raise _bad(url, f"asks by {named[0]} for TLS, and is plain TCP; write {scheme}://")
    for name in named:
        if not options[name]:
            raise _bad(url, f"has nothing behind {name}=")
    if "ssl_keyfile" in options and "ssl_certfile" not in options:
        raise _bad(url, "has a key and no certificate; add ssl_certfile=/path")
    insecure = options.get("insecure", "no").lower()
    if insecure not in _YES + _NO:
        raise _bad(url, "must say insecure=true, or leave it out")
    return {
        "ca_file": options.get("ssl_ca_certs"),
        "cert_file": options.get("ssl_certfile"),
        "key_file": options.get("ssl_keyfile"),
        "insecure": insecure in _YES,
    }


class _Kept:
    """A context, its files as they were before it was made, and whether it was told that what they
    are now cannot be loaded."""

    __slots__ = ("context", "seen", "warned")

    def __init__(self, context: ssl.SSLContext, seen: object) -> None:
        self.context = context
        self.seen = seen
        self.warned = False


# Of this process, by files and `insecure`. A child makes its own: as it was forked, another thread
# may have been at work with ours.
_kept: dict[tuple[str | None, str | None, str | None, bool], _Kept] = {}
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_kept.clear)


def _seen(files: tuple[str | None, ...]) -> list[tuple[int, ...] | None]:
    """What changes whenever a file does, in its place or behind a link to it."""
    if files[0] is None:  # the system's authorities
        system = ssl.get_default_verify_paths()
        files = (system.cafile, system.capath, *files)
    return [_stamp(file) for file in files if file is not None]


def _stamp(file: str) -> tuple[int, ...] | None:
    try:
        stat = os.stat(file)
    except (OSError, ValueError):  # the second: no path at all
        return None
    return stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns


def distrust(who: object, error: ssl.SSLCertVerificationError) -> AccessError:
    """That a certificate was refused, why, and what helps."""
    fix = _CURES.get(error.verify_code, "give its authority by ?ssl_ca_certs=/path")
    return AccessError(f"the certificate of {who} was refused ({error.verify_message}); {fix}")


def hide(url: str) -> str:
    """The URL with everything before its last `@` hidden: a raw password may hold `/` or `@`.

    Without an `@`, one that is no plain host and port is hidden whole: what stands where the
    port belongs may be a password. So may be the value of an option that we do not know.
    """
    scheme = _SCHEME.match(url)
    front = scheme[0] if scheme else ""
    _, at, place = url.removeprefix(front).rpartition("@")
    if not at and not _PLACE.fullmatch(place):
        return f"{front}***"
    return f"{front}{'***@' if at else ''}{_OPTION.sub(_hidden, place)}"


def _hidden(option: re.Match[str]) -> str:
    name = option[1]
    return option[0] if name in _SHOWN else f"{name if name.endswith('=') else name[0]}***"


def _bad(url: str, why: str) -> ConfigError:
    return ConfigError(f"redis_url {hide(url)!r} {why}")


def is_text(url: str) -> bool:
    try:
        url.encode()
    except UnicodeEncodeError:
        return False
    return True


def _db(text: str, url: str) -> int:
    # Python refuses to read very long numbers, with an error of its own.
    if text and not (text.isascii() and text.isdigit() and len(text) <= _MAX_DB_DIGITS):
        raise _bad(url, "must end in a database number, as in redis://host:6379/0")
    return int(text or 0)
