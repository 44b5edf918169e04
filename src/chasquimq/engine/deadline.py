"""How long an add may take, and the errors that its caller gets when it took longer."""

from __future__ import annotations

from chasquimq.address import Address
from chasquimq.config import ADD_TIMEOUT_MS, ProducerOptions
from chasquimq.errors import QueueFullError, StoreUnavailableError, UnconfirmedError

SPARE_MS = 5_000  # that a durable add has beside the time for its confirmation
TICK_S = 0.25  # how often those that wait are looked at


class Deadline:
    """For adds that are `durable`, or for others. `for_room`: the time that an add waits for room
    counts, too."""

    def __init__(
        self, options: ProducerOptions, address: Address, *, durable: bool = False
    ) -> None:
        self.ms = options.add_timeout_ms or ADD_TIMEOUT_MS
        self.for_room = options.add_timeout_ms is not None
        if durable and not self.for_room:
            self.ms = max(self.ms, options.durable.durability_timeout_ms + SPARE_MS)
        self.s = self.ms / 1000
        self.tick_s = min(TICK_S, self.s / 4)
        self._address = address

    def unsent(self, refusal: Exception | None = None, trouble: str = "") -> StoreUnavailableError:
        """For a job that is certainly not in. `refusal`: the server's answer to the last try;
        `trouble`: why there is no connection."""
        why = "nothing was sent"
        if refusal is not None:
            why = f"the job is not in: the server refused it for now ({refusal})"
        if trouble:
            why += f"; the last try to connect: {trouble}"
        return StoreUnavailableError(
            f"Redis at {self._address} did not take the job within {self.ms} ms "
            f"(add_timeout_ms); {why}. Check that the server is reachable, then add it again"
        )

    def unopened(self) -> StoreUnavailableError:
        return StoreUnavailableError(
            f"could not connect to Redis at {self._address} within {self.ms} ms (add_timeout_ms); "
            "nothing was sent. Check the address and that the server is running"
        )

    def unasked(self, error: StoreUnavailableError) -> StoreUnavailableError:
        """For a job that is certainly not in, because of what was to be asked before."""
        return StoreUnavailableError(f"nothing was sent: {error.args[0]}")

    def unanswered(
        self, job_id: str, again_s: float, *, until_done: bool = False
    ) -> UnconfirmedError:
        """For a job that was sent. `again_s`: so long after it was sent, adding it again under its
        id brings it in once; 0: not even then. `until_done`: its id is free again when it is."""
        left_s = int(again_s - self.s)
        again = "Give a job_id to make adding it again safe"
        safe = f"Adding it again with job_id={job_id!r} through the same Queue or Producer is safe"
        if until_done:
            again = (
                f"{safe} with unique='until_done', as long as it is not done: then it runs again"
            )
        elif left_s > 0:
            again = f"{safe} for the next {left_s} s: with the same options it comes in once"
        return UnconfirmedError(
            f"Redis at {self._address} did not answer within {self.ms} ms (add_timeout_ms): the "
            f"job was sent and may be in, or not. {again}",
            job_id=job_id,
        )

    def unwritten(self, key: str, *, sent: bool) -> StoreUnavailableError | UnconfirmedError:
        """For a spec."""
        late = f"Redis at {self._address} did not answer within {self.ms} ms (add_timeout_ms)"
        if sent:
            return UnconfirmedError(
                f"{late}: spec {key!r:.200} may be written, or not. Writing it again is safe"
            )
        return StoreUnavailableError(
            f"{late}; nothing of spec {key!r:.200} was sent. Check that the server is reachable, "
            "then write it again"
        )

    def no_room(self, queue: str, depth: int, limit: int) -> QueueFullError:
        return QueueFullError(
            f"queue {queue!r} had no room within {self.ms} ms (add_timeout_ms): it holds {depth} "
            f"jobs of at most {limit}. Nothing was sent. Add workers, raise max_stream_len, or "
            "wait longer"
        )
