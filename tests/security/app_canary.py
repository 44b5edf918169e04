"""Uses every door with a password in each way it may be given, and shows all that can be shown.

`python -m tests.security.app_canary QUEUE FILE`; $PLACE is the server's address without a password,
$URL with one, $WRONG with a wrong one, FILE holds the password. Logs of all levels go to stderr;
stdout gets every text that a program could print, a line of JSON each.
"""

from __future__ import annotations

import asyncio
import faulthandler
import json
import logging
import os
import pickle
import sys
import traceback
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from chasquimq import (
    Consumer,
    Job,
    Producer,
    Promoter,
    Queue,
    QueueEvents,
    Scheduler,
    Worker,
    sync,
)
from chasquimq.address import read_url
from chasquimq.observe.endpoint import serve

QUEUE, FILE = sys.argv[1], Path(sys.argv[2])
PLACE, URL, WRONG = os.environ["PLACE"], os.environ["URL"], os.environ["WRONG"]
Provider = Callable[[str | None], tuple[str | None, str | None]]


def tell(what: str, text: object) -> None:
    print(json.dumps({"what": what, "text": str(text)}), flush=True)


def from_file(host: str | None) -> tuple[str | None, str | None]:
    return None, FILE.read_text().strip()


def wrong(host: str | None) -> tuple[str | None, str | None]:
    return None, "wr0ng-canary"


async def handle(job: Job) -> str:
    if job.name == "fails":
        raise ValueError(f"no luck at {URL}")  # what a handler says is starred out in logs
    return "done"


def doors(url: str, **how: Any) -> Iterator[Any]:
    yield Queue(QUEUE, redis_url=url, **how)
    yield sync.Queue(QUEUE, redis_url=url, **how)
    yield Worker(QUEUE, handle, redis_url=url, **how)
    yield QueueEvents(QUEUE, redis_url=url, **how)
    yield from (kind(url, QUEUE) for kind in (Producer, Consumer, Promoter, Scheduler))
    yield read_url(url)


def describe(one: Any) -> None:
    """As debuggers, error trackers and curious programs look at things."""
    tell(f"repr of {type(one).__name__}", f"{one!r} {one!s} {one:}")
    held = getattr(one, "__dict__", {})
    tell(f"inside {type(one).__name__}", {name: (repr(x), str(x)) for name, x in held.items()})
    for inner in held.values():
        tell(f"inside {type(inner).__name__}", repr(getattr(inner, "__dict__", "")))


def confess(error: BaseException) -> None:
    """All that an error says, and what lies behind it."""
    tell(type(error).__name__, "".join(traceback.format_exception(error)))
    try:
        tell("pickle", pickle.dumps(error, protocol=0).decode("latin-1"))
    except Exception as cannot:
        tell("no pickle", repr(cannot))
    while error is not None:
        tell("cause", (repr(error), str(error), error.args, vars(error)))
        error = error.__cause__ or error.__context__  # type: ignore[assignment]


async def fail(url: str, **how: Any) -> None:
    """Whatever refuses us, by each door."""

    async def add() -> None:
        async with Queue(QUEUE, redis_url=url, reconnect_max_attempts=1, **how) as queue:
            await queue.add("n", 1)

    async def run() -> None:
        await Worker(QUEUE, handle, redis_url=url, reconnect_max_attempts=1, **how).run()

    def add_here() -> None:
        with sync.Queue(QUEUE, redis_url=url, reconnect_max_attempts=1, **how) as queue:
            queue.add("n", 1)

    for act in (add, run, lambda: asyncio.to_thread(add_here)):
        try:
            await act()
        except BaseException as error:
            confess(error)
        else:
            tell("accepted", url.rpartition("@")[2])


async def work(url: str, **how: Any) -> None:
    """A life of a worker, with its endpoint, and a connection that is cut."""
    worker = Worker(QUEUE, handle, redis_url=url, store_results=True, max_attempts=1, **how)
    with serve(worker, "127.0.0.1:0") as endpoint:
        async with Queue(QUEUE, redis_url=url, **how) as queue, asyncio.TaskGroup() as group:
            group.create_task(worker.run())
            await queue.add("fails", None)
            job = await queue.add("well", None)
            tell("result", await queue.wait_for_result(job.id, timeout=20))
            for path in ("metrics", "livez", "readyz", "health", "nothing"):
                tell(path, await asyncio.to_thread(page, endpoint.port, path))
            for one in (worker, queue):
                describe(one)
            tell("health", worker.health())
            faulthandler.dump_traceback(sys.stderr, all_threads=True)
            await worker.close()


def page(port: int, path: str) -> str:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=10) as answer:
            return f"{answer.headers} {answer.read().decode()}"
    except urllib.error.HTTPError as error:
        return f"{error.headers} {error.read().decode()}"


async def main() -> None:
    for one in doors(URL):
        describe(one)
    await work(URL)
    await work(PLACE, credential_provider=from_file)
    lone = PLACE.replace("//", "//c4nary@")  # a password that lacks its colon, or a user
    for one in (Queue, QueueEvents, sync.Queue):
        describe(one(QUEUE, redis_url=lone, credential_provider=from_file))
    await work(lone, credential_provider=from_file)
    await fail(WRONG)
    await fail(PLACE, credential_provider=wrong)
    host, port = PLACE.removeprefix("redis://").split(":")
    secret = WRONG.partition("//")[2].partition("@")[0]
    for url in (
        f"redis://{secret}@{host}:1",
        f"redis+cluster://{secret}@{host}:{port}",
        f"redis+sentinel://{secret}@{host}:{port}/main",
        f"redis://{secret}@{host}:{port}/no-number",
        f"http://{secret}@{host}:{port}",
        f"redis://{secret}@{host}:{port}?password=wr0ng-canary",
        f"redis://{secret}@{host}:{port}0000",
        f"unix://{secret}@/nowhere/at/all.sock",
        *(f"{scheme}://wr0ng-canary@{host}:{port}" for scheme in ("redis", "rediss")),
        f"wr0ng-canary@{host}:{port}",
        f"redis://wr0ng-canary:@{host}:{port}",
        f"redis+cluster://wr0ng-canary@{host}:{port}",
        f"rediss+sentinel://wr0ng-canary@{host}:{port}/main",
        "unix://wr0ng-canary@/nowhere/at/all.sock",
        f"redis://{secret}@{host}:{port}?ssl_ca_certs=/nowhere",
        f"redis://{secret}\ud800@{host}:{port}",
    ):
        await fail(url)


if __name__ == "__main__":
    logging.basicConfig(level=logging.DEBUG)
    asyncio.run(main(), debug=True)
