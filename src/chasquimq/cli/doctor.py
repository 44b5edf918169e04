"""`chasqui doctor`: is everything well? If not: what, how bad, and the command that mends it.

1. the server, by what it tells of itself and by trying what we may do there;
2. each queue, by its state and, unless in a hurry, by a walk over its keys;
3. this side: Python, what is installed, the machine.

It reads and changes nothing, except with `--fix`. A server that does not answer is a finding.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from typing import Annotated

import msgspec
import typer

from chasquimq import wire
from chasquimq.address import Address, Endpoint
from chasquimq.cli import machine, render_doctor
from chasquimq.cli.aside import hushed
from chasquimq.cli.ask import confirm
from chasquimq.cli.bar import Bar
from chasquimq.cli.check.access import check_access
from chasquimq.cli.check.clock import check_clocks
from chasquimq.cli.check.finding import OK, PROBLEM, WARNING, Finding, Severity, Shell, worst
from chasquimq.cli.check.python import check_python
from chasquimq.cli.check.queue import check_names, check_queue
from chasquimq.cli.check.server import check_server, unreachable
from chasquimq.cli.exits import Exit
from chasquimq.cli.nodes import Node, nodes_of
from chasquimq.cli.screen import Screen
from chasquimq.cli.shell import (
    AsJson,
    Group,
    RedisUrl,
    Yes,
    examples,
    run,
    the_address,
    the_dialect,
)
from chasquimq.config import ConnectOptions, DialectName, ReadOptions, check_within
from chasquimq.errors import AccessError, ChasquiError, StoreError
from chasquimq.store import Dialer, Link
from chasquimq.store.exam import queue as queue_exam
from chasquimq.store.exam import right, server
from chasquimq.store.exam.queue import Patience, QueueFacts
from chasquimq.store.exam.remedy import Remedy
from chasquimq.store.survey import PAGE, Census, Survey

EXAMPLES = examples(
    "chasqui doctor                     the server, all queues, and this side",
    "chasqui doctor mail --quick        one queue, without walking over its keys",
    "chasqui doctor mail --fix          ... and repair what is safe, after asking",
    "chasqui doctor --json | jq '.[] | select(.severity == \"problem\")'",
)

LEASE_MS = ReadOptions().claim_idle_ms
HOUR_MS = 3_600_000
QUICK_PAGES, MOST_PAGES = 100, 10_000
PINGS, QUICK_PINGS = 50, 10
EXITS = {WARNING: Exit.WARNINGS, PROBLEM: Exit.PROBLEMS}


def doctor(
    queues: Annotated[
        list[str] | None,
        typer.Argument(metavar="QUEUE", help="Names of queues; default: all.", show_default=False),
    ] = None,
    fix: Annotated[bool, typer.Option("--fix", help="Repair what is safe to repair.")] = False,
    yes: Yes = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="Leave out the walks over keys and long lists.")
    ] = False,
    group: Group = "default",
    lease_ms: Annotated[
        int,
        typer.Option(
            metavar="MS",
            help="The workers' claim_min_idle_ms. A delivery that is "
            "not renewed for two leases is stuck.",
        ),
    ] = LEASE_MS,
    silent_ms: Annotated[
        int | None,
        typer.Option(
            metavar="MS",
            help="How long a consumer must have been silent to count as "
            "gone; default: an hour, or ten leases if that is more.",
            show_default=False,
        ),
    ] = None,
    timeout_ms: Annotated[
        int, typer.Option(metavar="MS", help="How long to wait for one answer.")
    ] = 5_000,
    redis_url: RedisUrl = None,
    as_json: AsJson = False,
) -> None:
    """Look for trouble, and name the command that mends it.

    Exit code 0: all is well (there may be notes); 4: there are warnings; 5: there are problems.
    Nothing is changed without --fix, which never touches a job or a setting of the server.
    """
    check_within("--lease-ms", lease_ms, 1, 86_400_000)
    check_within("--timeout-ms", timeout_ms, 1, 600_000)
    gone_ms = max(HOUR_MS, 10 * lease_ms) if silent_ms is None else silent_ms
    check_within("--silent-ms", gone_ms, 0, 10**12)
    for name in queues or ():
        wire.check_stored_queue_name(name)
    screen = Screen(as_json=as_json)
    names, dialect = tuple(dict.fromkeys(queues or ())), the_dialect()
    address, patience = the_address(redis_url), Patience(2 * lease_ms, gone_ms, quick)

    def visit(node: Node) -> Visit:
        return Visit(node, address, dialect, group, patience, timeout_ms)

    try:
        visits = [visit(node) for node in nodes_of(address, names)]
    except StoreError as error:  # a cluster of which no node answers
        found = [*unreachable(str(error.args[0]), Shell(address)), *check_python(machine.look())]
        visits = []
    else:
        found = run(look(visits))
    planned = render_doctor.plans(found) if fix else []
    if planned:
        if not as_json and not yes:
            show(screen, found)
        confirm(f"{'; '.join(planned)}. Go on", yes)
        found = run(repair(visits, found))
    if as_json:
        screen.json(found)
    else:
        show(screen, found)
    raise typer.Exit(EXITS.get(worst(found), Exit.DONE))


def show(screen: Screen, found: Sequence[Finding]) -> None:
    if screen.is_terminal:
        for line in render_doctor.lines(found, screen.console.width):
            screen.words(line)
        screen.say("")
    else:
        screen.show(render_doctor.table(found))
    screen.words(render_doctor.summary(found))


async def look(visits: Sequence[Visit]) -> list[Finding]:
    """At each server and its queues, then at this side."""
    found = [one for visit in visits for one in await visit.look()]
    clocks = {name: ms for visit in visits for name, ms in visit.clocks.items()}
    found += check_clocks(clocks)
    found.sort(key=lambda one: one.part != "server")
    pid = visits[0].pid if len(visits) == 1 else None
    return [*found, *check_python(machine.look(pid))]


async def repair(visits: Sequence[Visit], found: list[Finding]) -> list[Finding]:
    """Do what is safe; what is done is well from then on."""
    for visit in visits:
        found = await visit.repair(found)
    return found


class Visit:
    """One look at a server and its queues, and what is repaired afterwards."""

    def __init__(
        self,
        node: Node,
        cluster: Address,
        dialect: DialectName | None,
        group: str,
        patience: Patience,
        timeout_ms: int,
    ) -> None:
        self._node = node
        self._address = node.address
        self._forced = dialect
        self._names = node.queues
        self.pid: int | None = None  # of the server
        self.clocks: dict[str, int] = {}  # its own, and of those that may take over from it
        self._group = group
        self._patience = patience
        self._limit_s = timeout_ms / 1000
        options = ConnectOptions(timeout_ms=timeout_ms, reply_ms=2 * timeout_ms, max_retries=1)
        self._dialer = Dialer(node.address, None, options)
        self._shell = Shell(node.address, cluster)
        self._facts: dict[str, QueueFacts] = {}

    async def look(self) -> list[Finding]:
        return [self._named(one) for one in await self._look()]

    def _named(self, one: Finding) -> Finding:
        """What a node of a cluster is like is told with its name."""
        if self._node.name is None or one.part != "server":
            return one
        return msgspec.structs.replace(one, facts={**one.facts, "node": self._node.name})

    async def _look(self) -> list[Finding]:
        link = Link(self._dialer)
        with quiet():
            try:
                async with asyncio.timeout(2 * self._limit_s):
                    await link.open()
            except (ChasquiError, TimeoutError) as error:
                words = getattr(error, "args", ("",))[0] or "no answer"
                return unreachable(str(words), self._shell)
            try:
                return await self._all(link)
            finally:
                await link.close()

    async def _all(self, link: Link) -> list[Finding]:
        quick = self._patience.quick
        facts = await server.look(link, self._limit_s, QUICK_PINGS if quick else PINGS)
        await self._ask_clocks(facts)
        native = bool(facts.knows_idmp) and self._forced != "portable"
        census, rights = Census(queues={}), None
        if facts.answers:
            census = await self._walk(link, facts.keys or 0)
            rights = await self._rights(link, facts.user, native, sorted(census.queues))
            if rights is None:
                facts.hidden.append("the user's rights")
        found = check_server(facts, self._shell, self._forced)
        found += check_access(facts, self._address, self._shell, rights)
        found += check_names(sorted(census.foreign), census.complete, census.scanned)
        with Bar("looking at queues", len(census.queues) or None, "queues") as bar:
            for name in sorted(census.queues):
                one = await self._queue(link, name, census)
                self._facts[name] = one
                found += check_queue(one, self._shell, self._patience, native=native)
                bar.forward(1)
        pid = (facts.info or {}).get("process_id", "")
        self.pid = int(pid) if pid.isdigit() else None
        return found

    async def _ask_clocks(self, facts: server.ServerFacts) -> None:
        """Of its replicas, too, where these take over. Who is not to be had is left out."""
        if facts.skew_ms is None:
            return
        self.clocks[self._node.name or "the master"] = facts.skew_ms
        followed = self._node.name is not None or self._address.kind == "sentinel"
        async with asyncio.TaskGroup() as group:
            for replica in facts.replicas if followed else ():
                group.create_task(self._ask_clock(self._address.endpoint._replace(
                    host=replica[0], port=replica[1], path=None)))  # fmt: skip

    async def _ask_clock(self, endpoint: Endpoint) -> None:
        link = Link(Dialer(self._address.node(endpoint), None, self._dialer.options))
        with suppress(ChasquiError, TimeoutError):
            async with asyncio.timeout(self._limit_s):
                try:
                    await link.open()
                    self.clocks[str(endpoint)] = await server.skew_ms(link)
                finally:
                    await link.close()

    async def _walk(self, link: Link, keys: int) -> Census:
        """Which queues there are; with names and in a hurry nobody needs to look."""
        quick, names = self._patience.quick, self._names
        if quick and names:
            return Census(queues={name: {} for name in names})
        try:
            with Bar("walking over keys", max(keys, PAGE), "keys") as bar:
                pages = QUICK_PAGES if quick else MOST_PAGES
                census = await Survey(link).walk(names, pages=pages, progress=bar.forward)
        except StoreError:  # SCAN is not ours to use: what was named is looked at all the same
            return Census(queues={name: {} for name in names}, complete=bool(names))
        return census

    async def _rights(
        self, link: Link, user: str | None, native: bool, queues: Sequence[str]
    ) -> right.Rights | None:
        who = user or self._address.username or "default"
        dialect: DialectName = "native" if native else "portable"
        with suppress(TimeoutError, StoreError):
            async with asyncio.timeout(4 * self._limit_s):
                nowhere = self._node.nowhere
                return await right.look(link, self._dialer, who, dialect, queues, nowhere)
        return None

    async def _queue(self, link: Link, name: str, census: Census) -> QueueFacts:
        """What could be seen of it until the time was up, or until something was refused."""
        facts = QueueFacts(queue=name, group=self._group)
        try:
            async with asyncio.timeout(4 * self._limit_s):
                facts = await queue_exam.look(link, name, self._group, self._patience)
                if not self._patience.quick:
                    with suppress(AccessError):  # `server.rights-extra` tells what is missing
                        await self._weigh(link, facts, census)
        except TimeoutError:
            facts.trouble = f"no answer within {4 * self._limit_s:g} s"
        except StoreError as error:
            facts.trouble = str(error.args[0])
        return facts

    async def _weigh(self, link: Link, facts: QueueFacts, census: Census) -> None:
        families, survey = census.queues.get(facts.queue, {}), Survey(link)
        facts.exists = facts.exists or bool(families)
        await survey.weigh(families)
        facts.families = families
        if "didx" in families and "delayed" not in facts.wrong:
            names = families["didx"].names
            facts.lost_indexes = tuple(await survey.lost_indexes(facts.queue, names))
        if "spec" in families and "repeat" not in facts.wrong:
            names = families["spec"].names
            facts.unlisted = tuple(await survey.unlisted_specs(facts.queue, names))

    # -- repairing ---------------------------------------------------------------------------------

    async def repair(self, found: Sequence[Finding]) -> list[Finding]:
        """What concerns the queues that were seen here."""
        link = Link(self._dialer)
        with quiet():
            await link.open()
            try:
                return [await self._repaired(link, one) for one in found]
            finally:
                await link.close()

    async def _repaired(self, link: Link, one: Finding) -> Finding:
        if one.remedy is None or one.queue not in self._facts:
            return one
        try:
            async with asyncio.timeout(10 * self._limit_s):
                count, wanted = await self._apply(link, one.remedy, self._facts[one.queue])
        except (StoreError, TimeoutError) as error:
            return msgspec.structs.replace(one, done=f"not repaired: {error or 'no answer'}")
        done = f"removed {count}"
        if count < wanted:
            done += f" of {wanted}: the rest had changed meanwhile"
        severity: Severity = OK if count >= wanted else one.severity
        text = f"repaired, {done}: {one.text}"
        return msgspec.structs.replace(one, severity=severity, text=text, done=done)

    async def _apply(self, link: Link, remedy: str, facts: QueueFacts) -> tuple[int, int]:
        """How many were removed, and how many should have been."""
        hand, silent_ms = Remedy(link, facts.queue, self._group), self._patience.silent_ms
        if remedy == "ghosts":
            return await hand.drop_ghosts(silent_ms), sum(one.ripe for one in facts.holders)
        if remedy == "consumers":
            gone = [one for one in facts.holders if not one.pending and one.idle_ms > silent_ms]
            return await hand.drop_consumers(silent_ms), len(gone)
        if remedy == "specs":
            bare = [*facts.empty_specs, *(key for key, recipe in facts.unlisted if not recipe)]
            return await hand.drop_specs(bare), len(bare)
        if remedy == "indexes":
            return await hand.drop_indexes(facts.lost_indexes), len(facts.lost_indexes)
        role = remedy.removesuffix("-lock")
        lock = facts.promoter if role == "promoter" else facts.scheduler
        assert lock is not None
        return await hand.drop_lock(role, lock.holder), 1


def quiet() -> AbstractContextManager[None]:
    """A connection that breaks is a finding here, and no line in a log."""
    return hushed(logging.getLogger("chasquimq.redis"), logging.CRITICAL)
