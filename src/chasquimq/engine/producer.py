"""Send drafts to Redis: what one turn of the loop brings goes out in one write.

1. admission: is there room? (the stream's length rides along with every write);
2. a draft becomes a command, commands wait in line, the line is written in chunks, never more
   un-answered than the server remembers ids for;
3. answers settle orders. A connection that breaks: what the server would recognise is sent
   again, for the rest nobody knows, and the caller is told so.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Any

from chasquimq import wire
from chasquimq.config import ProducerOptions
from chasquimq.engine.herald import Herald, Observe
from chasquimq.errors import ChasquiError, QueueFullError, ShutdownError, UnconfirmedError
from chasquimq.job import Draft, Envelope
from chasquimq.policy.admission import fits
from chasquimq.store import Notice, Store, build, open_stream
from chasquimq.store.fault import Fault, as_error, classify
from chasquimq.store.resp import pack

log = logging.getLogger(__name__)

AGAIN_S = 0.1
GOODBYE_S = 5.0
PORTABLE_WINDOW = 5_000
SCRIPTS = ("schedule", "add_once")
_HOLE = b"?" * 26  # where a form has the id
_HEADS = [wire.bin_header(size) for size in range(256)]
PLAIN = frozenset((bytes, int))  # the types of answers that are no errors


class Order:
    """One add, or one bulk: resolved when each of its jobs has an outcome (None: accepted)."""

    __slots__ = ("count", "errors", "future", "left")

    def __init__(self, count: int, future: asyncio.Future[None]) -> None:
        self.count = self.left = count
        self.errors: dict[int, ChasquiError] = {}  # by their place in the order
        self.future = future

    @property
    def outcomes(self) -> list[ChasquiError | None]:
        return [self.errors.get(place) for place in range(self.count)]

    def settle(self, count: int) -> None:
        self.left -= count
        if self.left == 0 and not self.future.done():
            self.future.set_result(None)

    def fail(self, index: int, error: ChasquiError) -> None:
        self.errors[index] = error
        self.settle(1)


class Parcel:
    """A few commands of one order that share their fate when the connection breaks."""

    __slots__ = ("commands", "first", "order", "safe")

    def __init__(self, order: Order, first: int, commands: list[bytes], safe: bool) -> None:
        self.order = order
        self.first = first  # the place of its first command in the order
        self.commands = commands
        self.safe = safe  # sent twice, it comes in once

    def split(self) -> list[Parcel]:
        return [
            Parcel(self.order, self.first + place, [command], self.safe)
            for place, command in enumerate(self.commands)
        ]


class Producer:
    """Belongs to the event loop that opened it."""

    def __init__(
        self,
        store: Store,
        options: ProducerOptions,
        producer_id: str | None = None,
        observe: Observe | None = None,
    ) -> None:
        self.producer_id = producer_id or str(uuid.uuid4())
        self._store = store
        self._options = options
        self._dialect = build(
            store.dialect_name,
            store.keys,
            producer_id=self.producer_id.encode(),
            trim=options.max_stream_len if options.on_full == "trim" else 0,
        )
        self._forms = self._form(named=False), self._form(named=True)
        self._mint = wire.Mint()
        self._names: dict[bytes, bytes] = {b"": b"\r\n"}
        self._line: deque[Parcel] = deque()
        self._quiet: asyncio.Future[None] | None = None  # someone waits for all answers
        self._window = PORTABLE_WINDOW
        self._unanswered = 0
        self._depth = 0  # the stream's length as Redis last told it
        self._sent = 0  # jobs sent since
        self._xlen = pack("XLEN", store.keys.stream)
        self._scheduled = False
        self._closing = False
        self._loop = asyncio.get_running_loop()
        self._pausing: asyncio.TimerHandle | None = None
        self.link = store.new_link()
        self.link.on_up = self._up
        self.link.on_given_up = self._abandon
        events = options.events
        self._herald = Herald(self.link, observe, events.max_waiting) if observe else None
        self._events_len = events.max_len if events.enabled else 0

    async def open(self) -> None:
        remembered = await open_stream(
            self._store.link, self._store.keys, self._dialect, self._options.stream
        )
        if remembered:
            self._window = max(remembered // 2, 1)
        self._depth = await self._store.link.ask("XLEN", self._store.keys.stream)
        await self.link.open()

    async def close(self) -> None:
        """Wait for what is on its way, then hang up."""
        self._closing = True
        if self._line or self._unanswered:
            self._quiet = self._loop.create_future()
            await asyncio.wait([self._quiet], timeout=GOODBYE_S)
        self._abandon(ShutdownError("the queue was closed before this job was sent"))
        if self._herald is not None:
            await self._herald.close()
        await self.link.close()

    def send(self, drafts: Sequence[Draft], now_ms: int) -> tuple[list[str], Order]:
        """Send admitted drafts as one order; answers their ids, and what to wait for."""
        order = self._order(len(drafts))
        ids = self._enqueue(order, drafts, now_ms)
        if self._herald is not None:
            self._herald.promise(order.future, order.errors, ids, drafts)
        return ids, order

    def send_one(self, draft: Draft, now_ms: int) -> tuple[str, Order]:
        """The same for a single draft, as most adds are."""
        order = self._order(1)
        job_id = draft.own_id or self._mint.one(now_ms)
        command, safe = self._command(job_id, draft, now_ms, _tail(now_ms))
        self._push(Parcel(order, 0, [command], safe))
        text_id = job_id.decode()
        if self._herald is not None:
            self._herald.promise(order.future, order.errors, (text_id,), (draft,))
        return text_id, order

    def _order(self, count: int) -> Order:
        if self._closing:
            raise ShutdownError("the queue is closed")
        return Order(count, self._loop.create_future())

    # -- admission -------------------------------------------------------------------------------

    def has_room(self, wanted: int) -> bool:
        return fits(self._depth, self._sent, wanted, self._options.max_stream_len)

    async def admit(self, wanted: int) -> None:
        """Wait for room, or refuse, as the options say."""
        limit, mode = self._options.max_stream_len, self._options.on_full
        if mode == "trim" or not wanted or self._closing or self.has_room(wanted):
            return
        pause_s = 0.02
        while True:
            # Our figure may be old: others drain the queue. Ask before refusing.
            self._depth, self._sent = (
                await self._store.link.ask("XLEN", self._store.keys.stream),
                self._unanswered,
            )
            if fits(self._depth, self._sent, wanted, limit):
                return
            if mode == "raise" or wanted > limit:
                raise QueueFullError(
                    f"queue {self._store.keys.queue!r} holds {self._depth} jobs of at most "
                    f"{limit}; {wanted} more were refused. Add workers, raise max_stream_len, "
                    "or wait with on_full='wait'"
                )
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, 0.5)

    # -- drafts become commands --------------------------------------------------------------------

    def _enqueue(self, order: Order, drafts: Sequence[Draft], now_ms: int) -> list[str]:
        # Never more in one write than may be un-answered: all of it may have to be sent again.
        chunk = min(self._options.chunk, self._window)
        minted = self._mint.many(now_ms, len(drafts)) if len(drafts) > 1 else None
        tail = _tail(now_ms)
        ids: list[str] = []
        commands: list[bytes] = []
        safe = True
        for place, draft in enumerate(drafts):
            job_id = draft.own_id or (minted[place] if minted else self._mint.one(now_ms))
            ids.append(job_id.decode())
            command, its_safe = self._command(job_id, draft, now_ms, tail)
            if commands and (its_safe is not safe or len(commands) == chunk):
                self._push(Parcel(order, place - len(commands), commands, safe))
                commands = []
            safe = its_safe
            commands.append(command)
        self._push(Parcel(order, len(drafts) - len(commands), commands, safe))
        return ids

    def _command(self, job_id: bytes, draft: Draft, now_ms: int, tail: bytes) -> tuple[bytes, bool]:
        """A draft as a command, and whether it may be sent twice."""
        if draft.own_id is not None or draft.retry is not None or draft.due is not None:
            return self._special(job_id, draft, now_ms)
        # The usual add: a minted id of 26 bytes, run now, once more only as the worker says.
        payload, name = draft.payload, draft.name
        size = len(payload)
        head = _HEADS[size] if size < 256 else wire.bin_header(size)
        rest = self._names.get(name) or self._name(name)
        form = self._forms[1 if name else 0]
        whole = 38 + len(head) + size
        command = form % (job_id, whole, job_id, head, payload, tail, rest)
        return command, self._dialect.safe_to_resend

    def _form(self, *, named: bool) -> bytes:
        """A plain add with holes: id, size, id, head of the payload, payload, tail, name."""
        front = self._dialect.add_front(_HOLE, named).replace(b"%", b"%%")
        # A dialect that does not send the id gets a hole into which nothing of it goes.
        front = front.replace(_HOLE, b"%b") if _HOLE in front else b"%.0b" + front
        return front + b"%d\r\n\x94\xba%b%b%b%b%b"

    def _special(self, job_id: bytes, draft: Draft, now_ms: int) -> tuple[bytes, bool]:
        text_id = job_id.decode()
        envelope = wire.pack_envelope(Envelope(text_id, draft.payload, now_ms, 0, draft.retry))
        delayed, own = self._store.delayed, draft.own_id is not None
        if draft.due is not None:
            member = wire.join_member(draft.name, envelope)
            cap = self._events_len
            notice = Notice(cap, job_id, draft.name) if cap else None
            if own:
                wait_ms = draft.delay_ms
                return delayed.schedule_once(draft.due, member, text_id, wait_ms, notice), True
            # A second send could find the first one already promoted, and double it.
            return delayed.schedule(draft.due, member, notice), False
        fields = wire.join_entry(envelope, draft.name)
        if own:
            lives_s = self._options.stream.idmp_duration_s
            return self._dialect.add_own(job_id, fields, lives_s), True
        name = self._names.get(draft.name) or self._name(draft.name)
        front = self._dialect.add_front(job_id, bool(draft.name))
        command = b"%b%d\r\n%b%b" % (front, len(envelope), envelope, name)
        return command, self._dialect.safe_to_resend

    def _name(self, name: bytes) -> bytes:
        """What follows the envelope in a plain add."""
        if len(self._names) > 1000:
            self._names = {b"": b"\r\n"}
        part = self._names[name] = b"\r\n$1\r\nn\r\n$%d\r\n%b\r\n" % (len(name), name)
        return part

    # -- the line goes out -----------------------------------------------------------------------

    def _push(self, parcel: Parcel) -> None:
        pipe = self.link.pipe
        self._line.append(parcel)
        if pipe is not None and pipe.idle and len(self._line) == 1:
            self._flush()  # nobody to share a write with: do not wait for the turn to end
        elif len(parcel.commands) >= self._options.chunk:
            self._flush()
        elif not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._scheduled = False
        line, chunk = self._line, self._options.chunk
        while line:
            pipe = self.link.pipe
            if pipe is None or pipe.full or self._pausing is not None:
                return  # `_up`, `_drained`, an answer or the end of the pause come back here
            parcels: list[Parcel] = []
            count = 0
            while line and (not parcels or count + len(line[0].commands) <= chunk):
                if self._unanswered and self._unanswered + len(line[0].commands) > self._window:
                    break
                parcel = line.popleft()
                parcels.append(parcel)
                count += len(parcel.commands)
                self._unanswered += len(parcel.commands)
            if not parcels:
                return
            self._sent += count
            data = b"".join([command for parcel in parcels for command in parcel.commands])
            landed, lost = partial(self._landed, parcels), partial(self._lost, parcels)
            pipe.send(data + self._xlen, count + 1, landed, lost)

    def _up(self) -> None:
        pipe = self.link.pipe
        assert pipe is not None
        pipe.on_drained = self._flush
        self._flush()

    # -- answers come back -----------------------------------------------------------------------

    def _landed(self, parcels: list[Parcel], replies: list[Any]) -> None:
        depth = replies.pop()
        self._unanswered -= len(replies)
        if isinstance(depth, int):
            self._depth, self._sent = depth, self._unanswered
        if set(map(type, replies)) <= PLAIN:
            for parcel in parcels:
                parcel.order.settle(len(parcel.commands))
        else:
            self._sort_out(parcels, replies)
        if self._line:
            self._flush()
        self._rest()

    def _sort_out(self, parcels: list[Parcel], replies: list[Any]) -> None:
        """Some were refused: for good, or only for now."""
        again: list[Parcel] = []
        passing: set[Fault] = set()
        single = [one for parcel in parcels for one in parcel.split()]
        for parcel, reply in zip(single, replies, strict=True):
            if not isinstance(reply, Exception):
                parcel.order.settle(1)
                continue
            fault = classify(reply)
            if fault in (Fault.AWAY, Fault.SCRIPT) and not self._closing:
                again.append(parcel)  # an error is an answer: it is not in, so it may go again
                passing.add(fault)
            else:
                parcel.order.fail(parcel.first, as_error(reply, "add"))
        self._line.extendleft(reversed(again))
        for fault in passing:
            self._pause(fault)

    def _lost(self, parcels: list[Parcel], replies: list[Any]) -> None:
        """The connection broke: what was answered counts, what is safe goes again."""
        total = sum(len(parcel.commands) for parcel in parcels)
        self._unanswered -= total
        answered = replies[:total]
        single = [one for parcel in parcels for one in parcel.split()]
        silent = single[len(answered) :]
        for parcel in silent:
            if not parcel.safe or self._closing:
                parcel.order.fail(parcel.first, _unconfirmed())
        self._line.extendleft(reversed([one for one in silent if one.safe and not self._closing]))
        if answered:
            self._sort_out(single[: len(answered)], answered)
        self._rest()

    def _rest(self) -> None:
        quiet = self._quiet
        if quiet is not None and not (self._line or self._unanswered or quiet.done()):
            quiet.set_result(None)

    def _pause(self, fault: Fault) -> None:
        pipe = self.link.pipe
        if fault is Fault.SCRIPT and pipe is not None:
            pipe.load(SCRIPTS)
        elif self._pausing is None:
            self._pausing = self._loop.call_later(AGAIN_S, self._resume)

    def _resume(self) -> None:
        self._pausing = None
        self._flush()

    def _abandon(self, error: ChasquiError) -> None:
        while self._line:
            parcel = self._line.popleft()
            for place in range(len(parcel.commands)):
                parcel.order.fail(parcel.first + place, error)


def _tail(now_ms: int) -> bytes:
    """The last two slots of a fresh envelope."""
    return b"\xcf%b\x00" % now_ms.to_bytes(8, "big")


def _unconfirmed() -> UnconfirmedError:
    return UnconfirmedError(
        "the connection broke before the answer came: the job may be in, or not. "
        "Give a job_id to make adding it again safe"
    )


def now_ms() -> int:
    return time.time_ns() // 1_000_000
