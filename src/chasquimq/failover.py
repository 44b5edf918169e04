"""Leave a server that has been replaced, even while it still answers.

A connection that breaks asks again where to go. But an old master may answer on: the failover was
planned, its machine was thawed, or its network healed; and one that is silent breaks nothing. What
it takes is lost. So each process watches each address of Sentinels or of a cluster through which
it has connections open:

1. every Sentinel is asked once a second, and all of them at once when one of two publishes
   `+switch-master`; of a cluster, three nodes are asked once a second;
2. `Sentinels` and `Nodes` say who is confirmed. They are pure;
3. connections to another server hang up. Their owners dial again, and say why in their health.

A watch is a thread with an event loop of its own, so it goes on while handlers keep the others
busy. It begins once a connection has been open for a second, and ends when none is.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import msgspec

from chasquimq import topology
from chasquimq.address import Address, CredentialProvider, Credentials, Endpoint
from chasquimq.topology import Told, View

log = logging.getLogger("chasquimq.redis")

EVERY_S = 1.0
STALE_S = 5.0  # what was heard longer ago says nothing about now
LISTENERS = 2  # Sentinels whose news we hear; the others are asked each second
PATIENCE_S = 10.0  # for want of answers, before that is said


class Followed(Protocol):
    """A connection. Both are called from the thread of a watch."""

    @property
    def closed(self) -> bool: ...

    def hang_up(self, why: str) -> None: ...


def follow(
    address: Address,
    endpoint: Endpoint,
    connection: Followed,
    provider: CredentialProvider | None = None,
) -> None:
    """Have this connection hang up when a server other than `endpoint` is confirmed. `provider`
    gives the logins to nodes, and can be asked from any thread."""
    # One watch for all queues and databases of an address.
    whole = msgspec.structs.replace(address, db=0, key="")
    with _lock:
        watch = _watches.get(whole)
        if watch is None:
            watch = _watches[whole] = Watch(whole)
            watch.start()
        watch.provider = provider or watch.provider
        watch.followed[connection] = endpoint, address.key


# -- who is confirmed: pure ------------------------------------------------------------------------


class Sentinels:
    """What each Sentinel said last."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._told: dict[Endpoint, tuple[Told, float]] = {}
        self._confirmed: Told | None = None

    def hear(self, sentinel: Endpoint, told: Told, now: float) -> None:
        self._told[sentinel] = told, now

    def confirmed(self, now: float) -> Told | None:
        """The master, if more than half of the Sentinels name it, or one of them tells of a later
        failover than was confirmed: it was elected by more than half to carry that out."""
        fresh = [told for told, heard_at in self._told.values() if now - heard_at < STALE_S]
        if not fresh:
            return None
        latest = topology.newest(fresh)
        naming = Counter(told.master for told in fresh)[latest.master]
        known = self._confirmed
        if naming * 2 > self._count or (known is not None and latest.epoch > known.epoch):
            self._confirmed = latest
            return latest
        return None


class Nodes:
    """What some nodes of a cluster said last."""

    def __init__(self) -> None:
        self._views: dict[bytes, tuple[View, float]] = {}

    def hear(self, view: View, now: float) -> None:
        self._views[view.whose] = view, now

    def owner(self, slot: int, now: float) -> Endpoint | None:
        """Who has the slot, if two nodes say so and none knows of a later change."""
        fresh = [view for view, heard_at in self._views.values() if now - heard_at < STALE_S]
        claims = Counter(claim for view in fresh if view.named and (claim := view.owner(slot)))
        if not claims:
            return None
        latest = max(claims, key=lambda claim: (claim[0], claims[claim]))
        return latest[1] if claims[latest] >= topology.VIEWS else None


# -- watching --------------------------------------------------------------------------------------


class Watch(threading.Thread):
    def __init__(self, address: Address) -> None:
        super().__init__(name="chasquimq-failover", daemon=True)
        self.followed: WeakKeyDictionary[Followed, tuple[Endpoint, str]] = WeakKeyDictionary()
        self.provider: CredentialProvider | None = None
        self._address = address
        self._sentinels = Sentinels(len(address.places))
        self._nodes = Nodes()
        self._asked: set[Endpoint] = set()  # nodes, now
        self._answered_at = time.monotonic()
        self._trouble = ""

    def run(self) -> None:
        while True:
            try:
                asyncio.run(self._watch())
                return
            except Exception:
                log.exception("watching %s failed, beginning anew", self._address)
                time.sleep(EVERY_S)

    async def _watch(self) -> None:
        self._news = asyncio.Event()
        await asyncio.sleep(EVERY_S)  # many connections are closed before that
        if self._has_work():
            async with asyncio.TaskGroup() as group:
                asking = [group.create_task(each) for each in self._askers()]
                while self._has_work():
                    await asyncio.sleep(EVERY_S)
                    self._tell_of_silence()
                for task in asking:
                    task.cancel()

    def _has_work(self) -> bool:
        """False: nothing is open, and who opens something from now on begins a new watch."""
        with _lock:
            if any(not one.closed for one in self.followed):
                return True
            if _watches.get(self._address) is self:
                del _watches[self._address]
            return False

    def _askers(self) -> list[Coroutine[Any, Any, None]]:
        if self._address.kind == "cluster":
            return [self._again_and_again(self._ask_a_node) for _ in range(topology.AT_ONCE)]
        places = self._address.places
        asking = [self._again_and_again(self._ask_sentinel, one) for one in places]
        return asking + [self._again_and_again(self._listen, one) for one in places[:LISTENERS]]

    async def _again_and_again(
        self, ask: Callable[..., Coroutine[Any, Any, None]], *places: Endpoint
    ) -> None:
        while True:
            try:
                await ask(*places)
            except asyncio.CancelledError:
                if (task := asyncio.current_task()) is None or task.cancelling():
                    raise  # else it came out of a credential provider
            except Exception as error:  # whatever it is: this one does not answer
                self._trouble = type(error).__name__
                log.debug("watching %s: %s", self._address, self._trouble)
            await self._pause()

    async def _pause(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(EVERY_S):
                await self._news.wait()

    def _tell_of_silence(self) -> None:
        silent_s = time.monotonic() - self._answered_at
        if silent_s > PATIENCE_S:
            self._answered_at = float("inf")  # once, until somebody answers again
            log.warning(
                "nobody at %s has said for %.0f s which server is the right one (%s): a failover "
                "is noticed only when a connection breaks",
                *(self._address, silent_s, self._trouble or "no answer"),
            )

    # -- Sentinels -------------------------------------------------------------------------------

    async def _ask_sentinel(self, place: Endpoint) -> None:
        service = self._address.service
        async with self._line(place, topology.login_to_sentinels(self._address)) as line:
            while True:
                named = await line.ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", service)
                facts = await line.try_to_ask("SENTINEL", "MASTER", service)
                if named is not None:
                    told = topology.read_told(place, named, facts)
                    self._sentinels.hear(place, told, time.monotonic())
                    self._judge_master()
                await self._pause()

    async def _listen(self, place: Endpoint) -> None:
        """Hear of a switch at once. Where we may not, asking each second has to do."""
        async with self._line(place, topology.login_to_sentinels(self._address)) as line:
            await line.ask("SUBSCRIBE", "+switch-master")
            while True:
                await line.hear()
                news, self._news = self._news, asyncio.Event()
                news.set()

    def _judge_master(self) -> None:
        now = self._answered_at = time.monotonic()
        confirmed = self._sentinels.confirmed(now)
        if confirmed is None:
            return
        topology.remember(self._address, confirmed)
        others = [one for one, (endpoint, _) in self._open() if endpoint != confirmed.master]
        why = f"the Sentinels of {self._address} name another master, {confirmed.master}"
        self._hang_up(others, why)

    # -- a cluster -------------------------------------------------------------------------------

    async def _ask_a_node(self) -> None:
        """One that nobody else asks; the same as long as it answers."""
        free = [one for one in topology.known_nodes(self._address) if one not in self._asked]
        if not free:
            return
        place = free[0]
        self._asked.add(place)
        try:
            async with self._line(place, await self._login_to(place)) as line:
                while True:
                    slots = await line.ask("CLUSTER", "SLOTS")
                    table = await line.try_to_ask("CLUSTER", "NODES")
                    view = topology.read_view(place, slots, table)
                    if view.rows:  # one without slots knows nothing
                        topology.learn(self._address, [view])
                        self._nodes.hear(view, time.monotonic())
                        self._judge_nodes()
                    await self._pause()
        finally:
            self._asked.discard(place)

    async def _login_to(self, place: Endpoint) -> Credentials:
        if self.provider is None:
            return topology.login_to_nodes(self._address)
        answer: Any = self.provider(str(place))
        username, password = await answer
        return username, password

    def _judge_nodes(self) -> None:
        now = self._answered_at = time.monotonic()
        by_key: dict[str, list[tuple[Followed, Endpoint]]] = {}
        for connection, (endpoint, key) in self._open():
            by_key.setdefault(key, []).append((connection, endpoint))
        for key, connections in by_key.items():
            owner = self._nodes.owner(topology.slot_of(key), now)
            if owner is not None:
                others = [one for one, endpoint in connections if endpoint != owner]
                why = f"the nodes of {self._address} name {owner} as the owner of {key}"
                self._hang_up(others, why)

    # -- connections -----------------------------------------------------------------------------

    def _open(self) -> list[tuple[Followed, tuple[Endpoint, str]]]:
        with _lock:
            return [each for each in self.followed.items() if not each[0].closed]

    def _hang_up(self, connections: list[Followed], why: str) -> None:
        if connections:
            log.warning("closing %d connections: %s", len(connections), why)
        for connection in connections:
            with _lock:
                self.followed.pop(connection, None)
            connection.hang_up(why)

    @asynccontextmanager
    async def _line(self, place: Endpoint, login: Credentials) -> AsyncIterator[_Line]:
        line = _Line(topology.async_connection(self._address, place, login))
        try:
            await line.connect()
            yield line
        finally:
            await line.close()


class _Line:
    """One connection of redis-py, as in `topology.py`; each answer has a second."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def connect(self) -> None:
        async with asyncio.timeout(2 * topology.ASK_S):
            await self._connection.connect()

    async def ask(self, *words: str) -> Any:
        await self._connection.send_command(*words)
        async with asyncio.timeout(topology.ASK_S):
            return await self._connection.read_response()

    async def try_to_ask(self, *words: str) -> Any:
        """None where it is refused: it may not be ours to ask."""
        try:
            return await self.ask(*words)
        except topology.refusals():
            return None

    async def hear(self) -> Any:
        """What comes unasked, whenever that is."""
        return await self._connection.read_response()

    async def close(self) -> None:
        await self._connection.disconnect(nowait=True)


_lock = threading.Lock()
_watches: dict[Address, Watch] = {}


def _forget() -> None:
    """In the child of a fork: threads do not come along."""
    global _lock  # it may have been held
    _lock = threading.Lock()
    _watches.clear()


if hasattr(os, "register_at_fork"):  # absent where there is no fork
    os.register_at_fork(after_in_child=_forget)
