"""The supervisor: which processes there shall be, and what follows when one ends.

1. a slot per process: its process is started, and loads the target; what cannot be loaded at
   the first start ends the command, and nothing has run;
2. a process that crashed is started again, after a wait that doubles; one that says it stops
   (a limit, a SIGTERM of its own) is succeeded at once, so that capacity stays;
3. SIGHUP, and changed files, exchange processes: the new one must be ready before the old one
   is told to stop;
4. processes of which none was ever ready are started again a few times, then the command ends;
   where files are watched, it waits for a change of them;
5. one that cannot work any more, as it says itself or by its silence, is told to stop, and
   succeeded when it has ended, after the same wait as after a crash;
6. the first SIGTERM or SIGINT lets all of them drain, the second stops them now.

Processes are spawned, never forked. Each ends by itself when the supervisor is gone.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

import msgspec

from chasquimq.cli.crew.backoff import HOPELESS, Backoff
from chasquimq.cli.crew.member import Member
from chasquimq.cli.crew.message import Orders
from chasquimq.cli.crew.reload import changes
from chasquimq.cli.crew.verdict import judge
from chasquimq.cli.crew.wait import first, has_terminal
from chasquimq.cli.exits import Exit
from chasquimq.errors import ChasquiError, ConfigError

log = logging.getLogger("chasquimq.cli")

ASK_S = 1.0  # between two questions how a process is
STALLED_LOOKS = 2  # a process that is stalled in so many of them in a row is replaced
SILENT_LOOKS = 60  # and so is one that has not answered in so many
SLOW_LOAD_S = 15.0


class Plan(NamedTuple):
    """`env`: what the processes see. `folders`: watched besides the target's; None: no reload."""

    orders: Orders
    env: Mapping[str, str]
    folders: Sequence[str] | None = None


class Slot:
    def __init__(self, index: int) -> None:
        self.index = index
        self.backoff = Backoff()
        self.member: Member | None = None
        self.exchange = asyncio.Event()  # asked for
        self.exchanged = asyncio.Event()  # done, or given up
        self.finished = False  # its process ended by itself, and shall not be followed
        self.waiting: str | None = None  # why there is no process at the moment
        self.stillborn = 0  # processes in a row that have ended before they were ready
        self.how = ""  # the last of them


class Total(NamedTuple):
    jobs: int = 0
    failed: int = 0
    crashes: int = 0


class Supervisor:
    def __init__(
        self,
        plan: Plan,
        passing: Callable[[int, bytes], None],
        began: Callable[[Member], None],
    ) -> None:
        """`passing` gets each line of a process's stderr, `began` the first that is ready."""
        self.plan = plan
        self.slots = [Slot(index) for index in range(plan.orders.processes)]
        self.members: list[Member] = []  # all that live
        self.total = Total()  # of those that have ended
        self.beat_at = time.monotonic()  # when this loop last turned
        self.ended_member: Callable[[Member], None] = lambda member: None
        self.each_second: Callable[[], None] = lambda: None
        self.room: Callable[[], bool] = lambda: True  # for more of what processes write to stderr
        self._passing = passing
        self._began = began
        self._started = False  # something has been ready once
        self._stop = asyncio.Event()
        self._over = asyncio.Event()
        self._signals: list[int] = []
        self._trouble: ChasquiError | None = None
        self._unclean = False  # a process crashed, or had to be killed, while all were stopping
        self._group: asyncio.TaskGroup | None = None
        self._rolling = False

    @property
    def is_stopping(self) -> bool:
        return self._stop.is_set()

    # -- the run ---------------------------------------------------------------------------------

    async def run(self) -> int:
        """Run until told to stop, or until all have ended by themselves; the exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._signalled, number)
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup
            loop.add_signal_handler(signal.SIGHUP, self._hung_up, has_terminal())
        async with asyncio.TaskGroup() as self._group:
            beside = [self._group.create_task(self._ask())]
            if self.plan.folders is not None:
                beside.append(self._group.create_task(self._reload(self.plan.folders)))
            await self._keep_all()
            self._stop.set()
            self._over.set()
            for task in beside:
                task.cancel()
        if self._trouble is not None:
            raise self._trouble
        if len(self._signals) > 1:
            return 128 + self._signals[-1]
        return Exit.FAILED if self._unclean else Exit.DONE

    async def _keep_all(self) -> None:
        async with asyncio.TaskGroup() as keeping:
            for slot in self.slots:
                keeping.create_task(self._keep(slot))
        while self.members:  # predecessors that still drain
            await self.members[0].ended.wait()
            await asyncio.sleep(0)

    # -- signals ---------------------------------------------------------------------------------

    def _signalled(self, number: int) -> None:
        name = signal.Signals(number).name
        self._signals.append(number)
        if len(self._signals) == 1:
            log.info("%s: draining; once more stops now", name)
            self._stop_all()
        elif len(self._signals) == 2:
            log.warning("%s again: stopping now, running jobs are given back", name)
            for member in self.members:
                member.stop_now()

    def _stop_all(self) -> None:
        self._stop.set()
        for member in self.members:
            member.stop()

    def _hung_up(self, had_terminal: bool) -> None:
        if had_terminal and not has_terminal():
            self._signalled(signal.SIGHUP)  # the terminal was closed: that is an end
        elif not self._rolling and not self._stop.is_set() and self._group is not None:
            self._group.create_task(self._roll())

    async def _roll(self) -> None:
        """Exchange all processes, one after another."""
        self._rolling = True
        log.info("SIGHUP: exchanging %d processes, one after another", len(self.slots))
        for slot in self.slots:
            old = slot.member
            if self._stop.is_set() or slot.finished or old is None:
                continue
            slot.exchanged.clear()
            slot.exchange.set()
            await first(slot.exchanged, self._stop)
            if self._stop.is_set():
                break
            if slot.member is old:
                log.error("process %d could not be exchanged; the others stay", slot.index + 1)
                break
            await old.ended.wait()
        self._rolling = False

    async def _reload(self, folders: Sequence[str]) -> None:
        await asyncio.sleep(0)  # the slots get their processes
        member = self.slots[0].member
        if member is not None:
            await member.loaded.wait()
        found = member.found if member is not None else None
        watched = {found.folder if found is not None else os.getcwd(), *folders}
        try:
            await self._follow(watched)
        except ConfigError as error:
            self._give_up(error)

    async def _follow(self, watched: Collection[str]) -> None:
        async for files in changes(watched, self._over):
            if self._stop.is_set():
                return
            more = f" and {len(files) - 3} more" if len(files) > 3 else ""
            log.info("changed: %s%s; reloading", ", ".join(files[:3]), more)
            for slot in self.slots:
                slot.exchange.set()

    # -- one slot ----------------------------------------------------------------------------------

    async def _keep(self, slot: Slot) -> None:
        member = self._hire(slot)
        while True:
            await first(member.stopping, slot.exchange)
            if member.why is not None and not member.told_to_stop and not self._stop.is_set():
                log.info("process %d ends (%s); its successor starts", slot.index + 1, member.why)
                member = self._hire(slot, after=member)
            elif member.ended.is_set():
                next_wait = self._judged(slot, member)
                if next_wait is None:
                    return
                await self._wait(slot, next_wait)
                if self._stop.is_set():
                    return
                member = self._hire(slot)
            elif slot.exchange.is_set() and not self._stop.is_set():
                slot.exchange.clear()
                member = await self._exchanged(slot, member)
                slot.exchanged.set()
            else:
                await member.ended.wait()

    def _hire(self, slot: Slot, after: Member | None = None) -> Member:
        """Start a process; it runs once it is loaded, and its namesake has ended."""
        member = slot.member = self._spawn(slot)
        assert self._group is not None
        self._group.create_task(self._let_run(slot, member, after))
        return member

    def _spawn(self, slot: Slot) -> Member:
        orders = msgspec.structs.replace(self.plan.orders, index=slot.index)
        member = Member(orders, self._passing, lambda: self.room())
        slot.waiting = None
        self.members.append(member)
        assert self._group is not None
        self._group.create_task(self._attend(member))
        if self._stop.is_set():
            member.stop()  # all the others were told when it came
        return member

    async def _attend(self, member: Member) -> None:
        await member.live(self.plan.env)
        self.ended_member(member)  # first of all: what it counted is not to be missed, or doubled
        self.members.remove(member)
        state = member.state
        bad = not member.is_done
        if state is not None:
            self.total = Total(self.total.jobs + state.jobs, self.total.failed + state.failed,
                               self.total.crashes)  # fmt: skip
        if bad and (member.told_to_stop or member.why is not None) and self._trouble is None:
            self._unclean |= self._stop.is_set() and len(self._signals) < 2
            log.error("process %d %s while it was stopping", member.index + 1, member.how())

    async def _let_run(self, slot: Slot, member: Member, after: Member | None) -> None:
        if not await first(member.loaded, timeout=SLOW_LOAD_S):
            log.warning("%s is still being imported after %g s: does it run something at import?",
                        self.plan.orders.target, SLOW_LOAD_S)  # fmt: skip
            await member.loaded.wait()
        if after is not None and member.is_stable:
            await after.ended.wait()
        member.tell("run")
        await member.ready.wait()
        if member.answer is not None:
            slot.backoff.well()
            self._is_ready(member)

    def _is_ready(self, member: Member) -> None:
        if self._started or member.answer is None:
            return
        limit = self.plan.orders.max_bytes
        if limit is not None and member.answer.rss > limit:
            self._give_up(ConfigError(
                f"--max-memory {limit // 2**20} is less than a process needs before it has run "
                f"anything ({member.answer.rss / 2**20:.0f} MB)"))  # fmt: skip
            return
        self._started = True
        self._began(member)

    async def _exchanged(self, slot: Slot, old: Member) -> Member:
        """A new process in the place of a living one, or the old one where the new one fails."""
        new = self._spawn(slot)
        await new.loaded.wait()
        if new.found is not None and new.is_stable and not new.ended.is_set():
            old.stop()
            await old.ended.wait()
        new.tell("run")
        await new.ready.wait()
        if new.answer is not None:
            self._is_ready(new)
            old.stop()
            slot.member = new
            return new
        if self._stop.is_set():
            return old
        if old.told_to_stop:  # it had to go first; what follows is as after any end
            slot.member = new
            return new
        self._say(new)
        log.error("process %d goes on with the code that it has", slot.index + 1)
        return old

    async def _wait(self, slot: Slot, seconds: float) -> None:
        """Until it is time to start again, files change, or all shall stop."""
        limit = None if seconds == float("inf") else seconds
        if await first(self._stop, slot.exchange, timeout=limit):
            slot.how = ""  # what has changed is told of again
        slot.exchange.clear()
        slot.exchanged.set()

    # -- what follows from an end ------------------------------------------------------------------

    def _judged(self, slot: Slot, member: Member) -> float | None:
        """How long to wait before its successor starts; None: there shall be none."""
        if self._stop.is_set() or (member.is_done and member.unfit is None):
            slot.finished = True
            return None
        if member.unfit is not None:
            return self._crashed(
                slot, member, f"was stopped because it cannot work: {member.unfit}"
            )
        verdict = judge(
            member.failure,
            started=self._started,
            burst=self.plan.orders.burst,
            watching=self.plan.folders is not None,
        )
        if isinstance(verdict, ChasquiError):
            self._give_up(verdict)
            return None
        if verdict == "await change":
            self._say(member)
            log.info("waiting for the next change")
            slot.waiting = "its code cannot be loaded"
            return float("inf")
        if verdict == "retry" and member.failure is not None:
            wait_s = slot.backoff.refused()
            slot.waiting = member.failure.text
            log.warning("%s; trying again in %g s", slot.waiting, wait_s)
            return wait_s
        return self._crashed(slot, member)

    def _crashed(self, slot: Slot, member: Member, how: str = "") -> float | None:
        how = how or member.how()
        self.total = self.total._replace(crashes=self.total.crashes + 1)
        wait_s = slot.backoff.crashed(member.well_s())
        slot.waiting = f"it {how}"
        again, slot.how = how == slot.how, how if member.ready_at is None else ""
        slot.stillborn = slot.stillborn + 1 if member.ready_at is None else 0
        if self.plan.orders.burst and slot.backoff.hopeless:
            self._give_up(ChasquiError(
                f"process {slot.index + 1} has crashed {slot.backoff.crashes} times in a row; the "
                f"last time it {how}"))  # fmt: skip
            return None
        if slot.stillborn >= HOPELESS and self.plan.folders is not None:
            log.error("process %d (pid %d) %s", slot.index + 1, member.pid, how)
            log.info("waiting for the next change")
            return float("inf")
        if slot.stillborn >= HOPELESS and not self._started:
            self._give_up(ChasquiError(
                f"process {slot.index + 1} has ended {slot.stillborn} times before it was ready; "
                f"the last time it {how}"))  # fmt: skip
            return None
        if not again:
            self._pass_trace(member)
        elif not self._started:
            how = "has ended as before"
        log.error("process %d (pid %d) %s; starting again in %g s",
                  slot.index + 1, member.pid, how, wait_s)  # fmt: skip
        return wait_s

    def _give_up(self, trouble: ChasquiError) -> None:
        if self._trouble is None and not self._stop.is_set():
            self._trouble = trouble
        self._stop_all()

    def _say(self, member: Member) -> None:
        self._pass_trace(member)
        log.error("process %d %s", member.index + 1, member.how())

    def _pass_trace(self, member: Member) -> None:
        if member.failure is not None:
            for text in member.failure.trace.splitlines():
                self._passing(member.index, text.encode())

    # -- how they are ----------------------------------------------------------------------------

    async def _ask(self) -> None:
        while True:
            self.beat_at = time.monotonic()
            self.each_second()
            ready = (one for one in self.members if one.ready_at is not None and one.why is None)
            measurer = next(ready, None) if self.plan.orders.metrics else None
            for member in self.members:
                if member.loaded.is_set():
                    member.tell("state")
                if member is measurer:
                    member.tell("depths")
                self._stop_unfit(member)
                if member.kill_if_due():
                    log.error("process %d has not ended in its time, and is killed",
                              member.index + 1)  # fmt: skip
            await asyncio.sleep(ASK_S)

    def _stop_unfit(self, member: Member) -> None:
        """Let a process drain that cannot work any more; its slot starts another when it has
        ended, or was killed."""
        why = member.cannot_work(STALLED_LOOKS, SILENT_LOOKS)
        if why is None or self._stop.is_set():
            return
        member.unfit = why
        log.error("process %d (pid %d) cannot work: %s; it is told to stop, and replaced",
                  member.index + 1, member.pid, why)  # fmt: skip
        member.stop()
