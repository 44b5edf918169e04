"""Send drafts to Redis: what one turn of the loop brings goes out in one write.

1. admission: is there room? (`gate`; the stream's length rides along with every write);
2. a draft becomes a command, commands wait in line, the line is written in chunks, never more
   un-answered than the server remembers ids for;
3. answers settle orders. A connection that breaks: what the server would recognise is sent
   again, for the rest nobody knows, and the caller is told so;
4. a caller waits no longer than `deadline`: a look every tick finds those that waited too long.
   What was not sent leaves the line, and what was sent is not sent again.

With a witness (durable adds) each write ends with a wait, and only one is on its way: what comes in
meanwhile gathers, and goes out together with one wait for all.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Any

from chasquimq import wire
from chasquimq.config import DialectName, ProducerOptions
from chasquimq.engine.command import SCRIPTS, Scribe, is_own, until_done
from chasquimq.engine.deadline import Deadline
from chasquimq.engine.gate import Gate
from chasquimq.engine.herald import Herald, Observe
from chasquimq.engine.order import FOREVER, Answer, Crowd, Order, Parcel, entering
from chasquimq.errors import ChasquiError, QueueFullError, ShutdownError
from chasquimq.happening import Happening, Reconnected, Refused
from chasquimq.job import Draft
from chasquimq.store import Dialect, Memory, Store, Witness, build, open_stream, read_add
from chasquimq.store.dialect import KNOWN
from chasquimq.store.durability import Doubt
from chasquimq.store.pipe import Pipe
from chasquimq.store.resp import pack
from chasquimq.wire.fault import Fault, as_error, classify, misunderstood

log = logging.getLogger("chasquimq.queue")

AGAIN_S = 0.1
GOODBYE_S = 5.0
PORTABLE_WINDOW = 5_000
PLAIN = frozenset((bytes, int))  # the types of answers that are no errors
ANSWERS = (bytes, int, Exception)
LOOK_S = 0.02
CROWD = 50  # so many single adds do not wait for the turn to end: the server works meanwhile


class Producer:
    """Belongs to the event loop that opened it."""

    def __init__(
        self,
        store: Store,
        options: ProducerOptions,
        producer_id: str | None = None,
        observe: Observe | None = None,
        witness: Witness | None = None,
        *,
        traced: bool = False,
    ) -> None:
        self.producer_id = producer_id or str(uuid.uuid4())
        self._store = store
        self._options = options
        self._witness = witness
        self._traced = traced
        self._memory = Memory(0, 0)
        self._window = PORTABLE_WINDOW
        self._speak(store.dialect_name)
        self._forms = witness is None and not traced  # plain adds are forms with holes
        # A new connection begins with the scripts: a durable add without them waits for nothing.
        self._loads = witness is not None
        self._mint = wire.Mint()
        self._line: deque[Parcel | Crowd] = deque()
        self._sent: deque[list[Parcel | Crowd]] = deque()  # written and not answered
        self._deadline = Deadline(options, store.dialer.address, durable=witness is not None)
        self._sweeping: asyncio.TimerHandle | None = None  # armed while somebody waits
        self._tick_at = 0.0  # of its last turn: what came in since waits since then, at the most
        self._withdrawn = False  # somebody waits no more for what may still be in line
        self._overslept = False  # that look came too late
        # Which the next single add joins, if it waits in line.
        self._crowd = Crowd(-1.0, True, FOREVER)
        self._quiet: asyncio.Future[None] | None = None  # someone waits for all answers
        self._chunk = options.chunk if witness is None else PORTABLE_WINDOW
        self.unanswered = 0
        self.gate = Gate(store, options, self, self._deadline)
        self._after = pack("XLEN", store.keys.stream)  # what follows the jobs of a write
        self._after_answers = 1
        self._goodbye_s = GOODBYE_S
        self._scheduled = False
        self.closing = False
        self._given_up: ChasquiError | None = None  # there will be no connection any more
        self._loop = asyncio.get_running_loop()
        self._pausing: asyncio.TimerHandle | None = None
        wait_ms = 0
        if witness is not None:
            wait_ms = witness.timeout_ms
            self._after += witness.commands
            self._after_answers += witness.answers
            self._goodbye_s += 2 * wait_ms / 1000  # that of the write on its way, and one more
        self.link = store.new_link(extra_reply_ms=wait_ms, prepare=self._greet)
        self.link.on_up = self._up
        self.link.on_given_up = self._give_up
        self._herald: Herald | None = None
        if observe is not None:
            self._herald = Herald(self.link, observe, options.events.max_waiting)
            self.link.on_mended = partial(self.tell, Reconnected("producer"))
        self.is_plain = self._forms and self._herald is None  # nobody wants to know of each draft

    def tell(self, happening: Happening) -> None:
        if self._herald is not None:
            self._herald.announce(happening)

    async def open(self) -> None:
        if self._witness is not None:
            await self._witness.check(self._store.link)
        self._remember(await self._look(self._dialect))
        await self.gate.open()
        await self.link.open()

    def _speak(self, name: DialectName) -> None:
        """Write commands as the server wants them."""
        store, options = self._store, self._options
        who = self.producer_id.encode()
        self._dialect = build(name, store.keys, producer_id=who, trim=options.trim)
        scribe = self._scribe = Scribe(store, self._dialect, options)
        self._write = scribe.write_long if self._traced else scribe.write
        if self._witness is not None:
            self._write = scribe.write_own

    async def _look(self, dialect: Dialect) -> Memory:
        """Make sure of the stream; answers how well the server remembers added ids."""
        store = self._store
        return await open_stream(store.link, store.keys, dialect, self._options.stream)

    def _remember(self, memory: Memory) -> None:
        self._window = PORTABLE_WINDOW
        if memory.ids:
            # Ids of callers and of both kinds of durable adds share one memory: half, a quarter,
            # and a quarter are never more than it holds.
            share = 2 if self._witness is None else 4
            self._window = max(memory.ids // share, 1)
            self._scribe.remembered(memory.seconds)

    async def _greet(self, pipe: Pipe) -> None:
        """Ask the server of a new connection what it can do, and what it remembers if that is
        not what it was."""
        await self._store.greet(pipe)
        if pipe.dialect is not None and pipe.dialect != self._dialect.name:
            if self._witness is not None:
                await self._witness.check(self._store.link)
            self._memory = await self._look(build(pipe.dialect, self._store.keys))

    async def close(self) -> None:
        """Wait for what is on its way, then hang up."""
        self.closing = True
        try:
            if self._line or self.unanswered:
                self._quiet = self._loop.create_future()
                await asyncio.wait([self._quiet], timeout=self._goodbye_s)
        finally:
            if self._sweeping is not None:
                self._sweeping.cancel()
            self._abandon(ShutdownError("the queue was closed before this job was sent"))
            if self._herald is not None:
                await self._herald.close()
            await self.link.close()

    def send(
        self,
        drafts: Sequence[Draft],
        now_ms: int,
        since: float | None = None,
        *,
        plain: bool = False,
    ) -> tuple[list[str], Order]:
        """Send admitted drafts as one order; answers their ids, and what to wait for. `plain`: none
        of them has an option. `since`: when the caller began to wait, if that was not just now."""
        if self.closing:
            raise _closed()
        order = Order(len(drafts), self._loop.create_future())
        plain = plain and self._forms
        tick_at = self._ticking()
        since = tick_at if since is None else since
        ids = (self._enqueue_plain if plain else self._enqueue)(order, drafts, now_ms, since)
        if self._herald is not None:
            self._herald.promise(order.future, ids, drafts)
        return ids, order

    def send_one(self, draft: Draft, now_ms: int, since: float | None = None) -> tuple[str, Answer]:
        """The same for a single draft."""
        if self.closing:
            raise _closed()
        job_id = draft.own_id or self._mint.one(now_ms)
        command, memory_s = self._write(job_id, draft, now_ms, self._scribe.tail(now_ms))
        text_id = job_id.decode()
        answer = self._join(text_id, command, memory_s, draft.due is None, since)
        if self._herald is not None:
            self._herald.promise(answer, (text_id,), (draft,))
        return text_id, answer

    def send_plain(
        self, name: bytes, payload: bytes, now_ms: int, since: float | None = None
    ) -> tuple[str, Answer]:
        """The same for a job that has no options, as most have none. Only if `is_plain`."""
        if self.closing:
            raise _closed()
        job_id, scribe = self._mint.one(now_ms), self._scribe
        text_id = job_id.decode()
        command = scribe.fill(job_id, name, payload, scribe.tail(now_ms))
        return text_id, self._join(text_id, command, scribe.plain_s, True, since)

    def withdraw(self) -> None:
        """Somebody waits no more for an answer: what is still in line for it is not sent."""
        self._withdrawn = True

    # -- drafts become commands --------------------------------------------------------------------

    def _enqueue(
        self, order: Order, drafts: Sequence[Draft], now_ms: int, since: float
    ) -> list[str]:
        # Never more in one write than may be un-answered: all of it may have to be sent again.
        chunk = min(self._chunk, self._window)
        minted = self._mint.many(now_ms, len(drafts)) if len(drafts) > 1 else None
        write, tail = self._write, self._scribe.tail(now_ms)
        order.ids = ids = []
        commands: list[bytes] = []
        kind = 0.0, True
        for place, draft in enumerate(drafts):
            job_id = draft.own_id or (minted[place] if minted else self._mint.one(now_ms))
            ids.append(job_id.decode())
            command, memory_s = write(job_id, draft, now_ms, tail)
            its_kind = memory_s, draft.due is None
            if commands and (its_kind != kind or len(commands) == chunk):
                self._push(Parcel(order, place - len(commands), commands, *kind, since))
                commands = []
            kind = its_kind
            commands.append(command)
        self._push(Parcel(order, len(drafts) - len(commands), commands, *kind, since))
        return ids

    def _enqueue_plain(
        self, order: Order, drafts: Sequence[Draft], now_ms: int, since: float
    ) -> list[str]:
        """The same for drafts without any options."""
        chunk, tail = min(self._chunk, self._window), self._scribe.tail(now_ms)
        order.ids = ids = []
        for first in range(0, len(drafts), chunk):
            some = drafts[first : first + chunk]
            minted = self._mint.many(now_ms, len(some))  # not all at once: these go out before
            ids += [job_id.decode() for job_id in minted]
            commands, memory_s = self._scribe.write_plain(zip(minted, some, strict=True), tail)
            self._push(Parcel(order, first, commands, memory_s, True, since))
        return ids

    # -- the line goes out -----------------------------------------------------------------------

    def _join(
        self, job_id: str, command: bytes, memory_s: float, enters: bool, since: float | None
    ) -> Answer:
        """A single command into the line, with others of its kind; what to wait for."""
        answer: Answer = self._loop.create_future()
        if since is not None:  # not with others: they would wait as long as this one has already
            crowd = Crowd(memory_s, enters, since)
            crowd.join(answer, job_id, command)
            self._ticking()
            self._push(crowd)
            return answer
        crowd, line = self._crowd, self._line
        size = len(crowd.commands)
        alike = crowd.memory_s == memory_s and crowd.enters is enters
        if line and line[-1] is crowd and alike and size < self._window:
            crowd.join(answer, job_id, command)
            if size + 1 == CROWD:
                self._flush()
        else:
            self._crowd = Crowd(memory_s, enters, self._ticking())
            self._crowd.join(answer, job_id, command)
            # Who came in company last time does so again: the first one waits for the others.
            self._push(self._crowd, alone=size < 2)
        return answer

    def _push(self, parcel: Parcel | Crowd, *, alone: bool = True) -> None:
        """`alone`: nobody is expected with whom to share a write."""
        pipe = self.link.pipe
        self._line.append(parcel)
        if alone and pipe is not None and pipe.idle and len(self._line) == 1:
            self._flush()  # do not wait for the turn to end
        elif len(parcel.commands) >= self._chunk:
            self._flush()
        elif not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._scheduled = False
        if self._withdrawn:
            self._prune()
        line, chunk, now = self._line, self._chunk, self._loop.time()
        while line:
            pipe = self.link.pipe
            if self._given_up is not None:
                self._abandon(self._given_up)
                return
            if pipe is None or pipe.full or self._pausing is not None:
                return  # `_up`, `_drained`, an answer or the end of the pause come back here
            if self._witness is not None and self.unanswered:
                return
            parcels: list[Parcel | Crowd] = []
            count = 0
            while line and (not parcels or count + len(line[0].commands) <= chunk):
                if self.unanswered and self.unanswered + len(line[0].commands) > self._window:
                    break
                parcel = line.popleft()
                if parcel.until is not None and parcel.until < now:
                    self._forgotten(parcel)
                    continue
                parcels.append(parcel)
                count += len(parcel.commands)
                self.unanswered += len(parcel.commands)
            if not parcels:
                return
            self.gate.left(entering(parcels))
            data = [command for parcel in parcels for command in parcel.commands]
            data.append(self._after)
            self._sent.append(parcels)
            landed, lost = partial(self._landed, parcels, now), partial(self._lost, parcels, now)
            pipe.send(b"".join(data), count + self._after_answers, landed, lost)

    def _up(self) -> None:
        pipe = self.link.pipe
        assert pipe is not None
        pipe.on_drained = self._flush
        if pipe.dialect is not None and pipe.dialect != self._dialect.name:
            self._switch(pipe.dialect)
        if self._loads:
            pipe.load(SCRIPTS)
            self._loads = self._witness is not None  # once: their answers may break a line, too
        self._flush()

    def _switch(self, name: DialectName) -> None:
        """Another server has come, which speaks another dialect: what is in line is written anew.
        Of what was sent to the other one nobody knows, unless it has a marker of its own."""
        log.warning("the server now speaks the %s dialect: adds follow", name)
        self._speak(name)
        self._remember(self._memory)
        self._crowd = Crowd(-1.0, True, FOREVER)
        waiting = [one for parcel in self._line for one in parcel.split()]
        self._line.clear()
        for one in waiting:
            add = read_add(one.commands[0])
            if add is not None and one.until is not None:
                self._forgotten(one)
                continue
            if add is not None:
                command, one.memory_s = self._scribe.write_again(add)
                one.commands = [command]
            self._line.append(one)
        self._rest()

    # -- answers come back -----------------------------------------------------------------------

    def _landed(self, parcels: list[Parcel | Crowd], sent_at: float, replies: list[Any]) -> None:
        doubt = waited = marked = None
        if self._witness is not None:
            waited, marked = replies.pop(), replies.pop()
        depth = replies.pop()
        kinds = set(map(type, replies))
        if not kinds <= PLAIN and not all(issubclass(kind, ANSWERS) for kind in kinds):
            raise TypeError("an add was answered with something else")  # hear it as lost
        if self._witness is not None:
            if isinstance(marked, Exception) and classify(marked) is Fault.AWAY:
                # No master any more, or its slot is on its way: as if the wait had been cut off.
                self._lost(parcels, sent_at, replies)
                self._pause(Fault.AWAY)
                return
            doubt = self._witness.doubt(marked, waited)
        self._sent.remove(parcels)
        self.unanswered -= len(replies)
        self.gate.answered(entering(parcels), depth)
        told = int in kinds and (0 in replies or KNOWN in replies)
        if doubt is None and kinds <= PLAIN and not told:
            for parcel in parcels:
                parcel.settle()
        else:
            self._sort_out(parcels, replies, doubt)
        if self._line:
            self._flush()
        self._rest()

    def _sort_out(
        self, parcels: Sequence[Parcel | Crowd], replies: list[Any], doubt: Doubt | None = None
    ) -> None:
        """Some were refused, for good or only for now, or were there already, or are in doubt."""
        again: list[Parcel] = []
        passing: set[Fault] = set()
        single = [one for parcel in parcels for one in parcel.split()]
        for parcel, reply in zip(single, replies, strict=True):
            if not isinstance(reply, Exception):
                if parcel.is_repeated(reply):
                    parcel.order.repeated(parcel.first)
                if doubt is None:
                    parcel.order.settle(1)
                else:
                    parcel.order.doubted(parcel.first, doubt)
                continue
            fault = classify(reply)
            passes = fault in (Fault.AWAY, Fault.SCRIPT)
            if misunderstood(reply) and (fault is Fault.DIALECT or self._dialect.name == "native"):
                fault = Fault.DIALECT  # but if it is the same server after all, only once
                passes = parcel.refusal is None or not misunderstood(parcel.refusal)
            if passes and not self.closing and parcel.still_wanted():
                parcel.refusal = reply
                again.append(parcel)  # an error is an answer: it is not in, so it may go again
                passing.add(fault)
            elif parcel.until is not None:
                parcel.refused_again(reply)
            else:
                error = as_error(reply, "add")
                if isinstance(error, QueueFullError):
                    self.tell(Refused(1))
                parcel.order.fail(parcel.first, error)
        self._line.extendleft(reversed(again))
        for fault in passing:
            self._pause(fault)

    def _lost(self, parcels: list[Parcel | Crowd], sent_at: float, replies: list[Any]) -> None:
        """The connection broke: what was answered counts, what is safe goes again."""
        self._sent.remove(parcels)
        total = sum(len(parcel.commands) for parcel in parcels)
        self.unanswered -= total
        self.gate.answered(entering(parcels))
        answered = replies[:total]
        single = [one for parcel in parcels for one in parcel.split()]
        if self._witness is not None:
            # The wait was cut off, so all of it goes again, but the first answer is the true one.
            for parcel, reply in zip(single, answered, strict=False):
                parcel.keep(reply)
            answered = []
        again: list[Parcel] = []
        for parcel in single[len(answered) :]:
            if not parcel.memory_s or self.closing or not parcel.still_wanted():
                self._forgotten(parcel)
                continue
            if parcel.until is None:
                parcel.until = sent_at + parcel.memory_s
            again.append(parcel)
        self._line.extendleft(reversed(again))
        if answered:
            self._sort_out(single[: len(answered)], answered)
        self._rest()

    def _forgotten(self, parcel: Parcel | Crowd) -> None:
        """It was sent, and must not be sent again: the server might not recognise it."""
        for one in parcel.split():
            one.order.lost(one.first)
        self._rest()

    # -- nobody waits for ever -------------------------------------------------------------------

    def _ticking(self) -> float:
        """Since when a caller that comes now waits, not later than it does; a look will come."""
        if self._sweeping is None:
            self._tick_at = self._loop.time()
            self._sweeping = self._loop.call_later(self._deadline.tick_s, self._sweep)
        return self._tick_at

    def _sweep(self) -> None:
        now, last = self._loop.time(), self._tick_at
        self._sweeping = None
        self._tick_at = now
        if self._withdrawn:
            self._prune()
        self._crowd = Crowd(-1.0, True, FOREVER)  # who comes now waits since now
        if now - last > 2 * self._deadline.tick_s and not self._overslept:
            # Something kept the event loop busy: answers that have come are heard first.
            self._overslept = True
            self._sweeping = self._loop.call_later(LOOK_S, self._sweep)
            return
        self._overslept = False
        self._end_waits(now - self._deadline.s)
        if self._line or self._sent:
            self._sweeping = self._loop.call_later(self._deadline.tick_s, self._sweep)

    def _end_waits(self, late: float) -> None:
        """Tell callers that have waited since before `late` what is known of their jobs."""
        for parcels in self._sent:
            for at, parcel in enumerate(parcels):
                if parcel.since <= late:
                    parcels[at] = parcel.left_alone()
                    for one in parcel.split():
                        self._unanswered(one)
        if not any(parcel.since <= late for parcel in self._line):
            return
        waiting = list(self._line)
        self._line.clear()
        self._line.extend([parcel for parcel in waiting if parcel.since > late])
        for parcel in waiting:
            if parcel.since <= late:
                for one in parcel.split():
                    if one.until is not None:
                        self._unanswered(one)
                    else:
                        error = self._deadline.unsent(one.refusal, self.link.trouble)
                        one.order.fail(one.first, error)
        self._rest()

    def _unanswered(self, parcel: Parcel) -> None:
        [command], job_id = parcel.commands, parcel.order.ids[parcel.first]
        again_s = parcel.memory_s if is_own(command) else 0.0
        held = until_done(command, self._store.keys)
        error = self._deadline.unanswered(job_id, again_s, until_done=held)
        parcel.order.fail(parcel.first, error)

    def _prune(self) -> None:
        self._withdrawn = False
        waiting = list(self._line)
        self._line.clear()
        self._line.extend([parcel for parcel in waiting if parcel.still_wanted()])
        self._rest()

    def _rest(self) -> None:
        quiet = self._quiet
        if quiet is not None and not (self._line or self.unanswered or quiet.done()):
            quiet.set_result(None)

    def _pause(self, fault: Fault) -> None:
        pipe = self.link.pipe
        if fault is Fault.SCRIPT and pipe is not None:
            self._loads = True  # also on the next connection: this one may be broken already
            pipe.load(SCRIPTS)
        elif fault is Fault.DIALECT:
            if pipe is not None:
                pipe.leave()  # the next connection begins with asking what the server can do
        elif self._pausing is None:
            self._pausing = self._loop.call_later(AGAIN_S, self._resume)

    def _resume(self) -> None:
        self._pausing = None
        self._flush()

    def _give_up(self, error: ChasquiError) -> None:
        self._given_up = error
        self._abandon(error)

    def _abandon(self, error: ChasquiError) -> None:
        while self._line:
            parcel = self._line.popleft()
            if parcel.until is not None:
                self._forgotten(parcel)  # it was sent, and would have been again
                continue
            for one in parcel.split():
                one.order.fail(one.first, error)


def _closed() -> ShutdownError:
    return ShutdownError("the queue is closed")
