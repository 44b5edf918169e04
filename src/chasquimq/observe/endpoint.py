"""What workers serve to platforms and to Prometheus: /metrics, /livez, /readyz and /health.

The web server lives in a thread, so that it answers while an event loop is blocked, and says so.
`live` and `ready` are the rules; `serve` is all of it for a program that runs its own workers.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self

from chasquimq.config import WorkerOptions
from chasquimq.health import PATIENCE_S, PULSE_S, Health
from chasquimq.observe.probe import LIMIT_S, Probe, Target
from chasquimq.observe.prometheus import exposition, require_client
from chasquimq.observe.record import Recorder, Seen, Totals
from chasquimq.observe.web import Answer, Server, listen, read_place, text
from chasquimq.store import Dialer
from chasquimq.text import shown

BLOCKED_S = 60.0  # an event loop that has been silent for so long will not come back
ALIASES = {"/healthz": "/livez"}


class Report(NamedTuple):
    """Whether something is well, and what there is to say about it, fit for JSON."""

    ok: bool
    details: dict[str, Any]


Metrics = Callable[[str], tuple[str, bytes]]  # an Accept header to (content type, body)
Check = Callable[[], Report]


class Endpoint:
    """Serves from `start` to `stop`. The callables are called in the server's threads.

    `place` is "9400" or "127.0.0.1:9400" for this machine, ":9400" for all its interfaces,
    "[::1]:9400" for IPv6. Port 0 is any free one; `port` says which.
    """

    def __init__(self, place: str, *, metrics: Metrics | None, live: Check, ready: Check) -> None:
        self.host, self.port = read_place(place)
        self._pages = _Pages(metrics, live, ready)
        self._server: Server | None = None

    def start(self) -> None:
        """Raises ConfigError where the place cannot be had."""
        self._server = Server(listen(self.host, self.port), self._pages.page)
        self.port = self._server.socket.getsockname()[1]
        self._server.start()

    def stop(self) -> None:
        """Requests that are being served are not waited for."""
        server, self._server = self._server, None
        if server is not None:
            server.stop()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


# -- how workers are, for probes -------------------------------------------------------------------


def live(workers: Sequence[Seen]) -> Report:
    """Whether to leave the process alone. Not asked: whether Redis is there, for a process that
    is started anew finds no other."""
    return _about(workers, [words for one in workers for words in _deadly(one)])


def ready(workers: Sequence[Seen]) -> Report:
    """Whether every worker runs, and has no problems."""
    problems = [words for one in workers for words in _ills(one)]
    return _about(workers, problems if workers else ["there are no workers"])


def _about(workers: Sequence[Seen], problems: list[str]) -> Report:
    rows = [
        {
            "queue": one.queue,
            "worker": one.worker,
            "state": one.health.state,
            "healthy": one.healthy,
            "problems": list(one.health.problems),
            "stalled": one.health.stalled,
            "heard_s": round(one.age_s, 3),
            "loop_lag_s": round(one.loop_lag_s, 3),
            "running": one.health.running,
            "queued": one.health.queued,
            "paused": one.health.paused,
            "leads": one.health.leads,
            "schedules": one.health.schedules,
        }
        for one in workers
    ]
    return Report(not problems, {"problems": problems, "workers": rows})


def _deadly(one: Seen) -> Iterator[str]:
    health, whose = one.health, f"the worker of {shown(one.queue)}"
    if health.state == "failed":
        yield f"{whose} has failed: {'; '.join(health.problems)}"
    elif health.stalled is not None:
        yield f"{whose} is stalled: {health.stalled}"
    elif one.age_s > BLOCKED_S:
        yield f"{whose} has been blocked for {one.age_s:.0f} s: is a handler blocking it?"
    elif health.state == "running":
        for name, state in health.tasks.items():
            if state != "running":
                yield f"{whose}: {name} has {state}"


def _ills(one: Seen) -> Iterator[str]:
    health, whose = one.health, f"the worker of {shown(one.queue)}"
    if health.state != "running":
        yield f"{whose} is {health.state}"
    elif one.age_s - PULSE_S > PATIENCE_S:
        yield f"{whose}: the event loop is blocked for {one.age_s:.1f} s: is a handler blocking it?"
    if health.stalled is not None:
        yield f"{whose} is stalled: {health.stalled}"
    for problem in health.problems:
        yield f"{whose}: {problem}"


class Served(Protocol):
    """A Worker, as far as `serve` needs it."""

    @property
    def name(self) -> str: ...
    @property
    def options(self) -> WorkerOptions: ...
    @property
    def dialer(self) -> Dialer: ...
    @property
    def is_running(self) -> bool: ...
    def health(self) -> Health: ...
    def adjust(self, *, metrics: object) -> None: ...


@contextmanager
def serve(
    workers: Served | Sequence[Served], place: str, *, metrics: bool = True
) -> Iterator[Endpoint]:
    """Serve metrics and health of workers that this program runs. Enter it before they run."""
    several = list(workers) if isinstance(workers, Sequence) else [workers]
    recorders = [(worker, Recorder(worker.name)) for worker in several]
    if metrics:
        require_client()
    for worker, recorder in recorders:
        worker.adjust(metrics=recorder)
    totals = Totals()
    probe = Probe(
        Target(worker.name, _elsewhere(worker.dialer), worker.options.group) for worker in several
    )

    def page(accept: str) -> tuple[str, bytes]:
        whole = totals.page(lambda: [(recorder, recorder.snapshot()) for _, recorder in recorders])
        return exposition(whole, probe.look(), accept)

    def seen() -> list[Seen]:
        return [one for worker, recorder in recorders for one in _seen(worker, recorder)]

    endpoint = Endpoint(
        place,
        metrics=page if metrics else None,
        live=lambda: live(seen()),
        ready=lambda: ready(seen()),
    )
    try:
        with endpoint:
            yield endpoint
    finally:
        probe.close()


def _seen(worker: Served, recorder: Recorder) -> list[Seen]:
    """As its last pulse had it; before the first and after the last, as it says itself, which
    does not need its event loop then."""
    told = recorder.snapshot().workers
    if told:
        return told
    health = Health(state="starting") if worker.is_running else worker.health()
    return [Seen(worker.name, "", 0.0, health)]


def _elsewhere(dialer: Dialer) -> Dialer:
    """For the probe's thread. Credentials are asked for in the caller's loop, if there is one."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return dialer
    return dialer.elsewhere(loop, int(LIMIT_S * 1000))


# -- the pages -------------------------------------------------------------------------------------


class _Pages:
    """What stands under each path."""

    def __init__(self, metrics: Metrics | None, live: Check, ready: Check) -> None:
        self._metrics = metrics
        self._live = live
        self._ready = ready

    def page(self, path: str, accept: str) -> Answer:
        match ALIASES.get(path, path):
            case "/metrics" if self._metrics is not None:
                return Answer(HTTPStatus.OK, *self._metrics(accept))
            case "/livez":
                return _reported(self._live())
            case "/readyz":
                return _reported(self._ready())
            case "/health":
                live, ready = self._live(), self._ready()
                told = [*live.details.get("problems", ()), *ready.details.get("problems", ())]
                details = {"live": live.ok, "ready": ready.ok, **live.details, **ready.details}
                details["problems"] = list(dict.fromkeys(told))
                return _reported(Report(live.ok and ready.ok, details))
            case "/":
                known = ["/metrics"] if self._metrics is not None else []
                return text(HTTPStatus.OK, *known, "/livez", "/readyz", "/health")
            case _:
                return text(HTTPStatus.NOT_FOUND, "there is no such page")


def _reported(report: Report) -> Answer:
    status = HTTPStatus.OK if report.ok else HTTPStatus.SERVICE_UNAVAILABLE
    body = json.dumps({"ok": report.ok, **report.details}, default=str) + "\n"
    return Answer(status, "application/json", body.encode())
