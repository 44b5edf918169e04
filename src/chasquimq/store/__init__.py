"""The only room that talks to Redis: one drawer per key family, values in, values out."""

from __future__ import annotations

from chasquimq.config import DialectName
from chasquimq.store import markers
from chasquimq.store.dead import DeadLetters
from chasquimq.store.delayed import Delayed, Notice, Promotion
from chasquimq.store.dial import Dialer
from chasquimq.store.dialect import Dialect, ask_again, build, choose, read_add
from chasquimq.store.durability import Witness
from chasquimq.store.events import Event, Events
from chasquimq.store.hold import Hold
from chasquimq.store.inspect import Inspect
from chasquimq.store.jobs import Abandoned, Holder, Jobs, Kept, Memory, Row, open_stream
from chasquimq.store.link import Link, Prepare
from chasquimq.store.pipe import Pipe
from chasquimq.store.results import Results
from chasquimq.store.specs import Specs
from chasquimq.wire import Keys
from chasquimq.wire.right import Calls, asked, refuse_without

__all__ = [
    "Abandoned",
    "DeadLetters",
    "Delayed",
    "Dialect",
    "Dialer",
    "Event",
    "Events",
    "Hold",
    "Holder",
    "Jobs",
    "Kept",
    "Link",
    "Memory",
    "Notice",
    "Promotion",
    "Results",
    "Row",
    "Specs",
    "Store",
    "Witness",
    "build",
    "markers",
    "open_stream",
    "read_add",
]


class Store:
    """One queue on one server. `link` serves the round trips; hot paths make links of their own."""

    def __init__(self, keys: Keys, dialer: Dialer, forced: DialectName | None = None) -> None:
        self.keys = keys
        self.dialer = dialer = dialer.of(keys.stream)
        self.link = Link(dialer, prepare=self._greet)
        self.delayed = Delayed(keys, self.link)
        self.dead = DeadLetters(keys, self.link)
        self.events = Events(keys, self.link)
        self.results = Results(keys, self.link)
        self.specs = Specs(keys, self.link)
        self.hold = Hold(keys, self.link)
        self.inspect = Inspect(keys, self.link)
        self.dialect_name: DialectName = "native"
        self._forced = forced

    async def open(self) -> None:
        """Connect and ask what the server can do. Raises at once when it cannot be reached."""
        await self.link.open()

    async def _greet(self, pipe: Pipe) -> None:
        self.dialect_name = pipe.dialect = await choose(pipe, self._forced)

    async def greet(self, pipe: Pipe) -> None:
        """Ask the server of a new connection what it can do: it may be another than before.
        Links of others begin with this where their commands depend on it."""
        pipe.dialect = await ask_again(pipe, self._forced)

    async def check_rights(self, calls: Calls, who: str) -> None:
        """Raise AccessError if our user may not run one of these. `who`: needs them for what."""
        refused = await self.link.run("may", (self.keys.stream,), asked(calls))
        if not isinstance(refused, list):
            raise self.link.mangled(TypeError(f"a list belongs where {type(refused).__name__} is"))
        refuse_without(refused, self.keys, who)

    def new_link(self, *, extra_reply_ms: int = 0, prepare: Prepare | None = None) -> Link:
        return Link(self.dialer, extra_reply_ms=extra_reply_ms, prepare=prepare)

    async def close(self) -> None:
        await self.link.close()
