"""A connection that mends itself, and the round trips of everything that is not hot.

1. `open` connects once and raises what went wrong;
2. from then on a broken connection is dialled again, for ever unless bounded, with growing
   pauses; `on_up` tells the owner that there is a new pipe to write to;
3. only `close` ends the dialling: whatever else ends its task (a credential provider may raise
   anything, a program may cancel all tasks that there are), it begins again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import wraps
from inspect import iscoroutinefunction
from itertools import repeat
from typing import Any, TypeVar

from chasquimq import lua
from chasquimq.errors import ChasquiError, StoreUnavailableError
from chasquimq.store.dial import Dialer
from chasquimq.store.pipe import SHAPE_ERRORS, Pipe
from chasquimq.store.resp import Arg, pack
from chasquimq.wire.fault import Fault, as_error, classify, words

log = logging.getLogger("chasquimq.redis")

Prepare = Callable[[Pipe], Awaitable[None]]
Kind = TypeVar("Kind", bound=type)


class Link:
    def __init__(
        self, dialer: Dialer, *, extra_reply_ms: int = 0, prepare: Prepare | None = None
    ) -> None:
        self.pipe: Pipe | None = None
        self.on_up: Callable[[], None] = _nothing
        self.on_given_up: Callable[[ChasquiError], None] = _ignore
        self.on_mended: Callable[[], None] = _nothing
        self.reconnects = 0
        self._dialer = dialer
        self._extra_reply_ms = extra_reply_ms
        self._prepare = prepare
        self._closing = False
        self._mending: asyncio.Task[None] | None = None
        self._tries = 0  # to reconnect, since the connection broke
        self._up = asyncio.Event()
        self._given_up: ChasquiError | None = None
        self.trouble = ""  # why it is down, as far as that is known
        self._left_for = ""  # the first part of that: why the last server was left
        self._last_call: asyncio.TimerHandle | None = None

    async def open(self) -> Pipe:
        pipe = await self._dial()
        self._adopt(pipe)
        return pipe

    async def up(self) -> Pipe:
        """The pipe, waiting for it while it is being mended."""
        while self.pipe is None:
            if self._given_up is not None:
                raise self._given_up
            await self._up.wait()
        return self.pipe

    async def soon_up(self) -> Pipe:
        """The same, but not for longer than connecting may take."""
        limit_ms = self._dialer.options.timeout_ms
        try:
            async with asyncio.timeout(limit_ms / 1000):
                return await self.up()
        except TimeoutError:
            raise StoreUnavailableError(
                f"Redis at {self._dialer.address} has been away for {limit_ms} ms"
                f"{self.trouble and f'; the last try: {self.trouble}'}"
            ) from None

    async def ask(self, *command: Arg) -> Any:
        """One command, one reply. Raises what the reply says, or that the answer was lost."""
        data = pack(*command)
        [reply] = await self._ask(data)
        if isinstance(reply, Exception) and classify(reply) is Fault.SCRIPT:
            # The server has forgotten the script: it was restarted, failed over or flushed.
            await self._ask(pack("SCRIPT", "LOAD", lua.BY_SHA[str(command[1])]))
            [reply] = await self._ask(data)
        if isinstance(reply, Exception):
            raise as_error(reply, str(command[0]))
        return reply

    async def ask_each(self, *commands: Sequence[Arg]) -> list[Any]:
        """Several commands in one write; what each was answered, errors among them."""
        return await self._ask(b"".join([pack(*one) for one in commands]), len(commands))

    async def run(self, script: str, keys: Sequence[Arg], args: Sequence[Arg] = ()) -> Any:
        return await self.ask(*lua.call(script, keys, args))

    async def run_each(
        self, script: str, calls: Sequence[Sequence[Arg]], args: Sequence[Sequence[Arg]] = ()
    ) -> list[Any]:
        """One script for many lists of keys (and `args`), in one write; its answers in order."""
        # The script rides along, so that none of them can be told it is unknown.
        load = pack("SCRIPT", "LOAD", lua.SOURCES[script])
        each = zip(calls, args or repeat(()), strict=False)
        data = b"".join([load, *[pack(*lua.call(script, *call)) for call in each]])
        replies = await self._ask(data, 1 + len(calls))
        for reply in replies:
            if isinstance(reply, Exception):
                raise as_error(reply, script)
        return replies[1:]

    async def clock_ms(self) -> int:
        """What time it is, by the server's clock."""
        seconds, micros = await self.ask("TIME")
        return int(seconds) * 1000 + int(micros) // 1000

    def mangled(self, error: Exception) -> StoreUnavailableError:
        """A reply had a shape that its command does not have. The replies behind it may belong to
        other commands, so the connection is closed."""
        where, kind = self._dialer.address, type(error).__name__
        log.warning(
            "closing a connection to %s: a reply has an unexpected shape (%s)",
            where,
            kind,
            exc_info=error,
        )
        if self.pipe is not None:
            self.pipe.close()
        return StoreUnavailableError(
            f"a reply from {where} has an unexpected shape ({kind}); the connection was closed and "
            "will be made anew"
        )

    def no_answer(self) -> StoreUnavailableError:
        where = self._dialer.address
        return StoreUnavailableError(f"the connection to {where} broke before the answer came")

    def end_by(self, deadline: float) -> None:
        """Answer nothing after this moment of the event loop: all that a stop asks of Redis has one
        deadline, however many requests that are."""
        if self._last_call is None:
            self._last_call = asyncio.get_running_loop().call_at(deadline, self._end)

    async def close(self) -> None:
        if self._last_call is not None:
            self._last_call.cancel()
        mending = self._mending
        self._end()
        if mending is not None:
            await asyncio.wait([mending])

    def _end(self) -> None:
        """Whoever asks from now on is told at once, and so is whoever waits for an answer."""
        self._closing = True
        if self._mending is not None:
            self._mending.cancel()
        where = self._dialer.address
        self._given_up = StoreUnavailableError(f"the connection to {where} has been closed")
        if self.pipe is not None:
            self.pipe.close()
        self._up.set()

    # -- inside --------------------------------------------------------------------------------

    async def _ask(self, data: bytes, count: int = 1) -> list[Any]:
        pipe = await self.soon_up()
        try:
            return await pipe.ask(data, count)
        except ConnectionError:
            raise self.no_answer() from None

    async def _dial(self) -> Pipe:
        pipe = await self._dialer.dial(self._extra_reply_ms)
        if self._prepare is not None:
            try:
                await self._prepare(pipe)
            except ConnectionError:
                raise self.no_answer() from None
            except BaseException:
                pipe.close()
                raise
        return pipe

    def _adopt(self, pipe: Pipe) -> None:
        if pipe.closed:  # it broke between its last answer and now
            self._broken()
            return
        pipe.on_closed = self._broken
        self.pipe = pipe
        self._up.set()
        self.on_up()

    def _broken(self) -> None:
        if self.pipe is not None:
            self.trouble = self._left_for = self.pipe.left_for
        self.pipe = None
        self._up.clear()
        if not self._closing and (self._mending is None or self._mending.done()):
            self._mending = asyncio.get_running_loop().create_task(self._mend())
            self._mending.add_done_callback(self._mending_ended)

    async def _mend(self) -> None:
        while True:
            try:
                pipe = await self._dial()
            except (KeyboardInterrupt, GeneratorExit):
                raise
            except BaseException as error:
                if isinstance(error, asyncio.CancelledError) and _is_cancelled():
                    raise
                if self._failed(error):
                    return
                await asyncio.sleep(self._pause_s())
                continue
            self.reconnects += 1
            self._tries = 0
            self.trouble = self._left_for = ""
            self._mending = None  # `_adopt` may find the new pipe broken already
            self._adopt(pipe)
            self.on_mended()
            return

    def _failed(self, error: BaseException) -> bool:
        """A try to reconnect has failed; whether it was the last one."""
        most = self._dialer.options.max_retries
        self._tries += 1
        self.trouble = "; ".join(filter(None, (self._left_for, words(error))))
        log.warning("reconnecting to %s: %s", self._dialer.address, self.trouble)
        if most is None or self._tries < most:
            return False
        self._give_up(error)
        return True

    def _pause_s(self) -> float:
        options = self._dialer.options
        return min(options.retry_ms << min(self._tries - 1, 20), options.max_retry_ms) / 1000

    def _mending_ended(self, task: asyncio.Task[None]) -> None:
        """With a connection, or because it was told to; whatever else ended it, it goes on."""
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if self._closing or self._given_up is not None or error is None:
            return
        if self._mending is not task:  # it had brought the connection
            where = self._dialer.address
            log.error("who waited for the connection to %s failed", where, exc_info=error)
        elif not self._failed(error) and not task.get_loop().is_closed():
            task.get_loop().call_later(self._pause_s(), self._mend_again)

    def _mend_again(self) -> None:
        if self.pipe is None:
            self._broken()

    def _give_up(self, error: BaseException) -> None:
        self._given_up = StoreUnavailableError(
            f"gave up on {self._dialer.address} after {self._dialer.options.max_retries} tries: "
            f"{words(error)}"
        )
        self._up.set()
        self.on_given_up(self._given_up)


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def reads_replies(kind: Kind) -> Kind:
    """A class decorator: its coroutines raise `Link.mangled` where a reply cannot be read. They use
    the link `self._link`; one that uses another link has to raise that one's error itself."""
    for name, method in list(vars(kind).items()):
        if iscoroutinefunction(method):
            setattr(kind, name, _reading(method))
    return kind


def _reading(method: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    @wraps(method)
    async def read(self: Any, *args: Any, **options: Any) -> Any:
        try:
            return await method(self, *args, **options)
        except ChasquiError:
            raise
        except SHAPE_ERRORS as error:
            raise self._link.mangled(error) from error

    return read


def _nothing() -> None:
    pass


def _ignore(error: ChasquiError) -> None:
    pass
