"""What a caller waits for, and the parts in which it travels."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence, Set
from typing import Any

from chasquimq.errors import ChasquiError, UnconfirmedError
from chasquimq.store.dialect import ADDED, KNOWN
from chasquimq.store.durability import IN_MEMORY, Doubt

_NONE: frozenset[int] = frozenset()
REFUSED = 0  # what an add is answered whose marker says that another holds its id
FOREVER = float("inf")  # since when nobody waits
_NO_ERRORS: dict[int, ChasquiError] = {}  # never written to: of most orders there are none


class Order:
    """One add, or one bulk: resolved when each of its jobs has an outcome (None: accepted). Its
    future answers None where all went as asked, and else the order, which says what did not."""

    __slots__ = ("count", "duplicates", "errors", "future", "ids", "left")

    def __init__(self, count: int, future: Answer, ids: Sequence[str] = ()) -> None:
        self.count = self.left = count
        self.errors = _NO_ERRORS  # by their place in the order
        self.duplicates: Set[int] = _NONE  # the places of jobs whose id was there already
        self.future = future
        self.ids = ids

    @property
    def outcomes(self) -> list[ChasquiError | None]:
        return [self.errors.get(place) for place in range(self.count)]

    def settle(self, count: int) -> None:
        self.left -= count
        if self.left == 0 and not self.future.done():
            self.future.set_result(self if self.errors or self.duplicates else None)

    def fail(self, index: int, error: ChasquiError) -> None:
        if self.errors is _NO_ERRORS:
            self.errors = {}
        self.errors[index] = error
        self.settle(1)

    def lost(self, index: int, refusal: Exception | None = None) -> None:
        """Its answer did not come, and it must not be sent again; or it was, and was refused."""
        again = "" if refusal is None else f" (sent again it was refused: {refusal})"
        self.fail(
            index,
            UnconfirmedError(
                f"the connection broke before the answer came: the job may be in, or not{again}. "
                "Give a job_id to make adding it again safe",
                job_id=self.ids[index],
            ),
        )

    def doubted(self, index: int, doubt: Doubt) -> None:
        """It came in, but is not where the caller wants it. Its id is remembered as one that the
        caller chose (`Scribe.write_own`), whoever made it."""
        job_id = self.ids[index]
        text = f"{doubt.why}; adding it again with job_id={job_id!r} is safe, it comes in once"
        self.fail(index, UnconfirmedError(text, job_id=job_id, accepted=doubt.accepted))

    def repeated(self, index: int) -> None:
        if not isinstance(self.duplicates, set):
            self.duplicates = set()
        self.duplicates.add(index)


class Parcel:
    """A few commands of one order that share their fate when the connection breaks."""

    __slots__ = (
        *("commands", "enters", "first", "memory_s", "order"),
        *("refusal", "said", "since", "until"),
    )

    def __init__(
        self,
        order: Order,
        first: int,
        commands: list[bytes],
        memory_s: float,
        enters: bool,
        since: float,
        until: float | None = None,
    ) -> None:
        self.order = order
        self.first = first  # the place of its first command in the order
        self.commands = commands
        self.memory_s = memory_s  # so long, sent twice, it comes in once; 0: never
        self.enters = enters  # the stream at once, where there must be room
        self.since = since  # when its caller began to wait
        self.until = until  # it was sent, and may be sent again until then
        self.refusal: Exception | None = None  # the last answer, where it goes again after one
        self.said: Any = None  # the answer to its only command when that was sent before

    def settle(self) -> None:
        """All of it is in."""
        self.order.settle(len(self.commands))

    def keep(self, answer: Any) -> None:
        """What its only command was answered first, though it goes again."""
        if self.said is None and not isinstance(answer, Exception):
            self.said = ADDED if answer == KNOWN and self.until is not None else answer

    def is_repeated(self, answer: Any) -> bool:
        """Whether its only command was answered that another add had brought its id. What was sent
        before, without an answer, may have met itself."""
        if self.said is not None:
            return self.said in (REFUSED, KNOWN)
        return bool(answer == REFUSED or (answer == KNOWN and self.until is None))

    def refused_again(self, refusal: Exception) -> None:
        """It had been sent before, and may be in: that it is refused now says nothing of that."""
        if self.said is None:
            self.order.lost(self.first, refusal)
        else:
            why = f"sent again for its confirmation it was refused ({refusal}); {IN_MEMORY}"
            self.order.doubted(self.first, Doubt(why))

    def split(self) -> list[Parcel]:
        if len(self.commands) == 1:
            return [self]
        how = self.memory_s, self.enters, self.since, self.until
        return [
            Parcel(self.order, self.first + at, [command], *how)
            for at, command in enumerate(self.commands)
        ]

    def left_alone(self) -> Parcel:
        """The same commands on their way, for nobody: what their callers hear they have heard."""
        order = Order(self.order.count, _nobody(self.order.future), self.order.ids)
        return Parcel(order, self.first, self.commands, 0.0, self.enters, FOREVER)

    def still_wanted(self) -> bool:
        """Whether somebody still waits for it."""
        return not self.order.future.done()


class Crowd:
    """Single adds that travel together; apart they are parcels of an order each. Most of them come
    in, and then their futures are all they ever need: an object more for each would cost more
    than its place in these lists."""

    __slots__ = ("answers", "commands", "enters", "ids", "memory_s", "since", "until")

    def __init__(self, memory_s: float, enters: bool, since: float) -> None:
        self.answers: list[Answer] = []
        self.ids: list[str] = []
        self.commands: list[bytes] = []
        self.memory_s = memory_s
        self.enters = enters
        self.since = since  # when the first of their callers began to wait
        self.until: float | None = None  # what was sent goes again by itself, as a parcel

    def join(self, answer: Answer, job_id: str, command: bytes) -> None:
        self.answers.append(answer)
        self.ids.append(job_id)
        self.commands.append(command)

    def settle(self) -> None:
        for answer in self.answers:
            if not answer.done():
                answer.set_result(None)

    def split(self) -> list[Parcel]:
        rows = zip(self.answers, self.ids, self.commands, strict=True)
        how = self.memory_s, self.enters, self.since
        return [
            Parcel(Order(1, answer, (job_id,)), 0, [command], *how)
            for answer, job_id, command in rows
        ]

    def left_alone(self) -> Parcel:
        """As of a Parcel."""
        order = Order(len(self.ids), _nobody(self.answers[0]), self.ids)
        return Parcel(order, 0, self.commands, 0.0, self.enters, FOREVER)

    def still_wanted(self) -> bool:
        """Take out those for which nobody waits any more; whether some are left."""
        rows = zip(self.answers, self.ids, self.commands, strict=True)
        kept = [row for row in rows if not row[0].done()]
        self.answers = [row[0] for row in kept]
        self.ids = [row[1] for row in kept]
        self.commands = [row[2] for row in kept]
        return bool(kept)


def _nobody(answer: Answer) -> Answer:
    """A future that nobody waits for, of the same loop."""
    future: Answer = answer.get_loop().create_future()
    future.cancel()
    return future


def entering(parcels: Sequence[Parcel | Crowd]) -> int:
    """How many of their jobs go into the stream."""
    return sum([len(parcel.commands) for parcel in parcels if parcel.enters])


Answer = asyncio.Future[Order | None]
