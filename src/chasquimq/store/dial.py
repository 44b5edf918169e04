"""Open one authenticated connection.

1. ask where to connect now (`resolve`), connect, over TLS where the address says so;
2. ask for credentials (they may rotate) and AUTH; SELECT the database.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import ssl
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, WeakSet

import msgspec

from chasquimq import alert
from chasquimq.address import (
    Address,
    CredentialProvider,
    Credentials,
    Endpoint,
    distrust,
    is_text,
)
from chasquimq.config import ConnectOptions
from chasquimq.errors import (
    AccessError,
    ArgumentError,
    ConfigError,
    StoreError,
    StoreUnavailableError,
)
from chasquimq.store.pipe import Pipe
from chasquimq.store.resp import pack
from chasquimq.wire.fault import Fault, as_error, classify

if TYPE_CHECKING:
    from chasquimq.failover import Followed

log = logging.getLogger("chasquimq.redis")

_PROVIDER = (
    "credential_provider is a function that is called with 'host:port' (None for a unix socket) "
    "and returns (username, password)"
)


class Dialer:
    def __init__(
        self,
        address: Address,
        provider: CredentialProvider | None = None,
        options: ConnectOptions | None = None,
    ) -> None:
        if provider is not None:
            _check_provider(provider)
        self.address = address
        self.options = options or ConnectOptions()
        self._provider = provider
        self._was_there = False  # a server that answers
        address.ssl_context()  # raises where its files cannot be loaded
        # By their event loop: other threads have loops of their own, and dial while we look.
        self._pipes: WeakKeyDictionary[asyncio.AbstractEventLoop, WeakSet[Pipe]] = (
            WeakKeyDictionary()
        )
        if address.insecure:
            log.warning("TLS certificates are not verified for %s (insecure=true)", address)

    @property
    def _ssl(self) -> ssl.SSLContext | None:
        return self.address.ssl_context()

    def elsewhere(self, home: asyncio.AbstractEventLoop, limit_ms: int) -> Dialer:
        """The same place, for a loop in another thread that cannot wait longer than this for
        anything, and half as long between two tries to connect. Credentials are still asked for
        at home: a provider may belong to its loop."""
        pause_ms = max(limit_ms // 2, 1)
        limits = {"timeout_ms": limit_ms, "reply_ms": limit_ms}
        limits |= {"retry_ms": pause_ms, "max_retry_ms": pause_ms}
        short = {name: min(ms, getattr(self.options, name)) for name, ms in limits.items()}
        options = msgspec.structs.replace(self.options, **short)
        return Dialer(self.address, self._provider and _asked_at(home, self._provider), options)

    async def dial(self, extra_reply_ms: int = 0) -> Pipe:
        """`extra_reply_ms`: how long this connection's commands may block on purpose."""
        endpoint = await self._endpoint()
        reply_s = (self.options.reply_ms + extra_reply_ms) / 1000
        limit_s = self.options.timeout_ms / 1000
        pipe: Pipe | None = None
        try:
            async with asyncio.timeout(limit_s) as limit:
                attempt = Attempt(limit)
                self._follow(endpoint, attempt)
                try:
                    pipe = await self._connect(endpoint, reply_s)
                finally:
                    attempt.closed = True
                try:
                    if self._provider is not None:
                        limit.reschedule(None)  # it has a limit of its own, and words for it
                    credentials = await self._credentials(endpoint)
                    if self._provider is not None:
                        limit.reschedule(asyncio.get_running_loop().time() + limit_s)
                    await self._greet(pipe, endpoint, credentials)
                except BaseException:
                    pipe.close()
                    raise
        except ssl.SSLCertVerificationError as error:
            raise distrust(self.address, error) from None
        except TimeoutError:
            # A server without TLS waits for the end of a line that a greeting of TLS has not got.
            spoken = ", and does it speak TLS" if self.address.tls else ""
            raise StoreUnavailableError(
                f"no answer from Redis at {self.address} "
                f"within {self.options.timeout_ms} ms; is that the right address{spoken}?"
            ) from None
        except OSError as error:
            raise await self._unreached(endpoint, pipe, error) from None
        self._was_there = True
        return pipe

    def of(self, key: bytes) -> Dialer:
        """The same place, for what concerns this key; of a cluster that is one of its nodes."""
        if self.address.kind != "cluster":
            return self
        return Dialer(self.address.of(key.decode()), self._provider, self.options)

    async def _endpoint(self) -> Endpoint:
        """Where to connect now. Who has to ask around does so in a thread: it takes a while."""
        if self.address.kind == "server":
            return self.address.resolve()
        credentials = None
        if self._provider is not None and self.address.kind == "cluster":
            credentials = await self._credentials(self.address.endpoint)
        return await asyncio.to_thread(self.address.resolve, credentials)

    async def _connect(self, endpoint: Endpoint, reply_s: float) -> Pipe:
        loop = asyncio.get_running_loop()

        def protocol() -> Pipe:
            pipe = Pipe(self.options.buffer_bytes, reply_s)
            pipe.on_silent = partial(self._doubt, loop)
            self._follow(endpoint, pipe)
            self._pipes.setdefault(loop, WeakSet()).add(pipe)
            return pipe

        if endpoint.path is not None:
            return (await loop.create_unix_connection(protocol, endpoint.path))[1]
        context = self._ssl
        name = endpoint.host if context is not None else None
        return (
            await loop.create_connection(
                protocol, endpoint.host, endpoint.port, ssl=context, server_hostname=name
            )
        )[1]

    def _follow(self, endpoint: Endpoint, connection: Followed) -> None:
        """Have it hang up when another server becomes the right one."""
        if self.address.kind != "server":
            from chasquimq.failover import follow  # seldom, and not worth its time at every start

            provider = self._provider and _asked_at(asyncio.get_running_loop(), self._provider)
            follow(self.address, endpoint, connection, provider)

    def _doubt(self, loop: asyncio.AbstractEventLoop) -> None:
        """A server gave no answer. Connections on which nothing is asked are made anew: else each
        would wait as long, one after another, once something is asked on it."""
        for pipe in list(self._pipes[loop]):
            if pipe.idle:
                pipe.close()

    async def _greet(self, pipe: Pipe, endpoint: Endpoint, credentials: Credentials) -> None:
        username, password = credentials
        if password is not None:
            who = (username, password) if username else (password,)
            reply = (await pipe.ask(pack("AUTH", *who)))[0]
            if isinstance(reply, Exception) and "without any password" not in str(reply):
                if classify(reply) in (Fault.REFUSED, Fault.DIALECT):
                    # Not in the server's words: one that has no AUTH repeats its arguments.
                    raise StoreError(f"{self.address} does not take AUTH; is it behind a proxy?")
                raise as_error(reply, f"logging in to {self.address}")
        wanted = pack("SELECT", self.address.db) if self.address.db else pack("PING")
        reply = (await pipe.ask(wanted))[0]
        if isinstance(reply, Exception):
            if classify(reply) is Fault.ACCESS and password is None:
                raise AccessError(
                    f"{self.address} wants a password: put it into the URL "
                    "(redis://user:password@host) or give a credential_provider"
                )
            raise as_error(reply, f"connecting to {self.address}")
        if self.address.kind == "sentinel":
            self._check_role(await pipe.ask(pack("ROLE")), endpoint)

    def _check_role(self, replies: list[Any], endpoint: Endpoint) -> None:
        """Sentinels learn of a failover one by one, and a server that was a master comes back as
        one: nothing may be written to it. Who must not ask hears it with the first write."""
        [role] = replies
        if isinstance(role, Exception):
            return
        if not isinstance(role, list) or role[:1] != [b"master"]:
            raise StoreUnavailableError(
                f"{endpoint}, which the Sentinels of {self.address} name, is no master just now"
            )

    async def _unreached(self, endpoint: Endpoint, pipe: Pipe | None, error: OSError) -> StoreError:
        """What is known of a connection that was not made, or broke before its first answers."""
        if pipe is not None and pipe.odd == alert.FIRST:
            return alert.speaks_tls(self.address, self.address)
        for one in (error, error.__cause__):  # the second: of a pipe
            refused = alert.turned_away(self.address, self.address, one)
            if refused is not None:
                return refused
        reason = error.strerror or str(error) or type(error).__name__
        in_tls = isinstance(error, ConnectionResetError | ConnectionAbortedError | ssl.SSLEOFError)
        if pipe.hung_up and not pipe.received if pipe is not None else in_tls:
            if not self._was_there:  # else it speaks as we do
                about = (self.address, endpoint, self.address)
                learned = await asyncio.to_thread(alert.listen, *about)
                if learned is not None:
                    return learned
            reason = alert.silence(self.address)
        return StoreUnavailableError(
            f"cannot reach Redis at {self.address} ({reason}); is it running there?"
        )

    async def _credentials(self, endpoint: Endpoint) -> Credentials:
        if self._provider is None:
            secret = self.address.password
            return self.address.username, secret.reveal() if secret is not None else None
        task = asyncio.current_task()
        assert task is not None
        told = task.cancelling()  # to end, how often
        try:
            async with asyncio.timeout(self.options.timeout_ms / 1000) as limit:
                return await _ask(self._provider, None if endpoint.path else str(endpoint))
        except asyncio.CancelledError as error:
            if task.cancelling() > told:
                raise
            # The provider's own: what it waited for was cancelled, in whichever event loop.
            raise self._without_credentials("CancelledError") from error
        except OSError as error:  # its own, and no fault of Redis; a timeout is one, too
            why = error.strerror or type(error).__name__  # what else a library says may be secret
            if limit.expired():
                why = f"no answer within {self.options.timeout_ms} ms"
            raise self._without_credentials(why) from error

    def _without_credentials(self, why: str) -> StoreUnavailableError:
        return StoreUnavailableError(f"the credential_provider of {self.address} failed ({why})")


class Attempt:
    """To connect; it may take long where a server has vanished."""

    def __init__(self, limit: asyncio.Timeout) -> None:
        self.closed = False
        self._limit = limit
        self._loop = asyncio.get_running_loop()

    def hang_up(self, why: str) -> None:
        with suppress(RuntimeError):  # the event loop is closed, and this with it
            self._loop.call_soon_threadsafe(self._give_up)

    def _give_up(self) -> None:
        if not self.closed:
            self._limit.reschedule(self._loop.time())


def _check_provider(provider: object) -> None:
    """Refuse what cannot be called with a host."""
    if not callable(provider):
        raise ArgumentError(f"{_PROVIDER}, got {type(provider).__name__}")
    try:
        signature = inspect.signature(provider)
    except (TypeError, ValueError):  # builtins have none
        return
    try:
        signature.bind(None)
    except TypeError:
        name = getattr(provider, "__name__", type(provider).__name__)
        raise ArgumentError(f"{_PROVIDER}; {name} cannot be called with one argument") from None


async def _ask(provider: CredentialProvider, host: str | None) -> Credentials:
    try:
        answer: Any = provider(host)
        if inspect.isawaitable(answer):
            answer = await answer
    except (Exception, asyncio.CancelledError, KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:  # SystemExit and the like: no provider ends an event loop
        raise OSError(0, f"{type(error).__name__} was raised") from error
    return _checked(provider, answer)


def _checked(provider: CredentialProvider, answer: Any) -> Credentials:
    """No message shows what it answered, which may be the password."""
    if answer is None or not isinstance(answer, tuple | list):
        odd = "None" if answer is None else f"a value of type {type(answer).__name__}"
    elif len(answer) != 2:
        odd = f"a {type(answer).__name__} of {len(answer)}"
    elif kinds := [type(one).__name__ for one in answer if not isinstance(one, str | None)]:
        odd = f"a pair with a value of type {kinds[0]}"
    elif not all(one is None or is_text(one) for one in answer):
        odd = "a text with a lone surrogate"
    elif answer[0] and answer[1] is None:
        odd = "a user without a password"
    else:
        username, password = answer
        return username, password
    raise ConfigError(
        f"credential_provider {_name_of(provider)} returned {odd}; it must return "
        "(username, password), each a str or None"
    )


def _name_of(provider: object) -> str:
    """Nothing of what it holds."""
    name = getattr(provider, "__qualname__", None) or type(provider).__qualname__
    return f"{getattr(provider, '__module__', '?')}.{name}"


def _asked_at(home: asyncio.AbstractEventLoop, provider: CredentialProvider) -> CredentialProvider:
    async def ask(host: str | None) -> Credentials:
        asked = asyncio.run_coroutine_threadsafe(_ask(provider, host), home)
        return await asyncio.wrap_future(asked)

    return ask
