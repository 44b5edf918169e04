"""Write drafts down as commands, each with how long it may be sent again.

The usual add (a minted id, to run at once, no rules of its own) is a form with holes; the others
are rarer and take the long way.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable

from chasquimq import wire
from chasquimq.config import ProducerOptions
from chasquimq.job import Draft, Envelope, Unique
from chasquimq.store import Dialect, Notice, Store, markers
from chasquimq.store.delayed import GRACE_S
from chasquimq.store.dialect import Add
from chasquimq.store.markers import Mark
from chasquimq.store.resp import bulks, pack, unpack
from chasquimq.wire import Keys

SCRIPTS = ("schedule", "add_own", "add_once", "add_unique")
_HOLE = b"?" * 26  # where a form has the id
_HEADS = [wire.bin_header(size) for size in range(256)]

_PLAIN = b"$4\r\nXADD"

# A command, and for how many seconds after it was first sent the server would recognise it; 0:
# sent twice, it could come in twice.
Written = tuple[bytes, float]


class Scribe:
    def __init__(self, store: Store, dialect: Dialect, options: ProducerOptions) -> None:
        self._store = store
        self._dialect = dialect
        self._own_s = options.stream.idmp_duration_s
        self.plain_s = 0.0  # how long a plain add may be sent again
        self._trim = options.trim
        self._events_len = options.events.max_len if options.events.enabled else 0
        self._forms = self._form(0), self._form(1)
        self._names: dict[bytes, bytes] = {b"": b"\r\n"}
        self._tail = (0, b"")  # of envelopes of this millisecond

    def tail(self, now_ms: int) -> bytes:
        """The last two slots of a fresh envelope."""
        at_ms, tail = self._tail
        if at_ms != now_ms:
            tail = b"\xcf%b\x00" % now_ms.to_bytes(8, "big")
            self._tail = now_ms, tail
        return tail

    def remembered(self, seconds: int) -> None:
        """How long the stream remembers an id, where it does; others may have set it up."""
        self._own_s = seconds
        self.plain_s = _safely(seconds) if self._dialect.safe_to_resend else 0.0

    def write(self, job_id: bytes, draft: Draft, now_ms: int, tail: bytes) -> Written:
        if draft.own_id is not None or draft.retry is not None or draft.due is not None:
            return self._special(job_id, draft, now_ms)
        return self.fill(job_id, draft.name, draft.payload, tail), self.plain_s

    def fill(self, job_id: bytes, name: bytes, payload: bytes, tail: bytes) -> bytes:
        """A plain add."""
        size = len(payload)
        head = _HEADS[size] if size < 256 else wire.bin_header(size)
        rest = self._names.get(name) or self._name(name)
        form = self._forms[1 if name else 0]
        return form % (job_id, 38 + len(head) + size, job_id, head, payload, tail, rest)

    def write_plain(
        self, jobs: Iterable[tuple[bytes, Draft]], tail: bytes
    ) -> tuple[list[bytes], float]:
        """The same for many drafts without options, each with its id."""
        bare, named = self._forms
        commands = []
        for job_id, draft in jobs:
            payload, name = draft.payload, draft.name
            size = len(payload)
            head = _HEADS[size] if size < 256 else wire.bin_header(size)
            rest = self._names.get(name) or self._name(name)
            whole = 38 + len(head) + size
            form = named if name else bare
            commands.append(form % (job_id, whole, job_id, head, payload, tail, rest))
        return commands, self.plain_s

    def write_own(self, job_id: bytes, draft: Draft, now_ms: int, tail: bytes) -> Written:
        """The same, with any id as one that the caller chose: adding it again is a no-op."""
        return self._special(job_id, draft.under(job_id), now_ms)

    def write_long(self, job_id: bytes, draft: Draft, now_ms: int, tail: bytes) -> Written:
        """The same, without a form: what a tracer sends along has no hole in it."""
        return self._special(job_id, draft, now_ms)

    def write_again(self, add: Add) -> Written:
        """The add of another dialect in this one."""
        if add.own:
            job_id = wire.unpack_envelope(add.fields[1]).id.encode()
            return self._dialect.add_own(job_id, add.fields, self._own_s), _safely(self._own_s)
        trimmed = (b"MAXLEN", b"~", b"%d" % self._trim) if self._trim else ()
        return pack(b"XADD", self._store.keys.stream, *trimmed, b"*", *add.fields), 0.0

    def _form(self, extras: int) -> bytes:
        """A plain add with holes: id, size, id, head of the payload, payload, tail, name."""
        front = self._dialect.add_front(_HOLE, extras).replace(b"%", b"%%")
        # A dialect that does not send the id gets a hole into which nothing of it goes.
        front = front.replace(_HOLE, b"%b") if _HOLE in front else b"%.0b" + front
        return front + b"%d\r\n\x94\xba%b%b%b%b%b"

    def _special(self, job_id: bytes, draft: Draft, now_ms: int) -> Written:
        text_id = job_id.decode()
        envelope = wire.pack_envelope(Envelope(text_id, draft.payload, now_ms, 0, draft.retry))
        if draft.due is not None:
            return self._delayed(job_id, draft, envelope, now_ms)
        if draft.unique is not None:
            return self._unique(text_id, draft, envelope, now_ms)
        fields = wire.join_entry(envelope, draft.name, carrier=draft.carrier)
        if draft.own_id is not None:
            return self._dialect.add_own(job_id, fields, self._own_s), _safely(self._own_s)
        front = self._dialect.add_front(job_id, len(fields) // 2 - 1)
        command = b"%b%d\r\n%b\r\n%b" % (front, len(envelope), envelope, bulks(fields[2:]))
        return command, self.plain_s

    def _delayed(self, job_id: bytes, draft: Draft, envelope: bytes, now_ms: int) -> Written:
        text_id = job_id.decode()
        assert draft.due is not None
        delayed, cap = self._store.delayed, self._events_len
        member = wire.join_member(draft.name, envelope)
        notice = Notice(cap, job_id, draft.name) if cap else None
        if draft.own_id is None:
            # A second send could find the first one already promoted, and double it.
            return delayed.schedule(draft.due, member, text_id, draft.delay_ms, notice), 0.0
        wait_ms, mark = draft.delay_ms, None
        memory_s = wait_ms / 1000 + GRACE_S
        if draft.unique is not None:
            mark = self._mark(text_id, draft.unique, now_ms)
            mark = mark._replace(lives_s=mark.lives_s + -(-wait_ms // 1000))
            memory_s = mark.memory_s
        command = delayed.schedule_once(draft.due, member, text_id, wait_ms, notice, mark)
        return command, _safely(memory_s)

    def _unique(self, job_id: str, draft: Draft, envelope: bytes, now_ms: int) -> Written:
        assert draft.unique is not None
        mark = self._mark(job_id, draft.unique, now_ms)
        fields = wire.join_entry(envelope, draft.name, mark.hint, draft.carrier)
        return markers.add(self._store.keys, mark, fields, self._trim), _safely(mark.memory_s)

    def _mark(self, job_id: str, unique: Unique, now_ms: int) -> Mark:
        token = secrets.token_hex(8)
        if unique.until_done:
            return markers.until_done(self._store.keys, job_id, now_ms, unique.lives_s, token)
        return markers.for_a_while(self._store.keys, job_id, unique.lives_s, token)

    def _name(self, name: bytes) -> bytes:
        """What follows the envelope in a plain add."""
        if len(self._names) > 1000:
            self._names = {b"": b"\r\n"}
        part = self._names[name] = b"\r\n$1\r\nn\r\n$%d\r\n%b\r\n" % (len(name), name)
        return part


def is_own(command: bytes) -> bool:
    """Whether the server knows this add by its id, also when another add brings the id again."""
    return not command.startswith(_PLAIN, command.find(b"$"))


def until_done(command: bytes, keys: Keys) -> bool:
    """Whether the id of this add is free again as soon as its job is done."""
    words = unpack(command)
    places = words[3 : 3 + int(words[2])] if words[0] == b"EVALSHA" else ()
    return any(key.startswith(keys.unique("")) for key in places)


def _safely(seconds: float) -> float:
    """Somewhat less than the server's memory: what is sent again must get there in time."""
    return seconds * 0.9
