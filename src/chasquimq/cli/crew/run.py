"""Run a crew from a command: its log, its endpoint, its first and its last words."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
from contextlib import ExitStack
from typing import NamedTuple, TextIO, cast

from chasquimq._version import __version__
from chasquimq.cli import render_worker
from chasquimq.cli.crew.member import Member, Pass
from chasquimq.cli.crew.message import Orders
from chasquimq.cli.crew.outlet import Outlet
from chasquimq.cli.crew.reload import check_reload
from chasquimq.cli.crew.report import Reports
from chasquimq.cli.crew.supervisor import Plan, Supervisor
from chasquimq.cli.crew.target import check_target
from chasquimq.cli.exits import exit_for
from chasquimq.cli.log import set_up
from chasquimq.cli.render_worker import Start
from chasquimq.cli.shell import URL_VARIABLE
from chasquimq.errors import ChasquiError, ConfigError
from chasquimq.observe.endpoint import Endpoint
from chasquimq.observe.web import read_place
from chasquimq.text import shown

log = logging.getLogger("chasquimq.cli")

TAB = "\t"


class Wish(NamedTuple):
    """What a command asks for. `folders`: watched besides the target's own; None: no reload."""

    orders: Orders
    folders: list[str] | None = None
    place: str | None = None  # of the endpoint


def run_crew(wish: Wish) -> int:
    """Run it to its end; the exit code. Raises what keeps it from beginning."""
    orders = wish.orders
    check_target(orders.target)
    check_current_folder()
    if wish.folders is not None:
        check_reload()
    if wish.place is not None:
        from chasquimq.observe.prometheus import require_client

        require_client()
        read_place(wish.place)
    outlet = Outlet(sys.stderr)
    set_up(orders.log_format, orders.log_level, cast(TextIO, outlet))
    as_text = orders.log_format == "text"
    try:
        return asyncio.run(_run(wish, outlet, as_text))
    except ChasquiError as error:
        if as_text:
            outlet.write(getattr(error, "trace", ""))
            raise
        log.critical("%s", error)  # whoever reads JSON reads nothing else
        return exit_for(error)
    finally:
        outlet.close()


def check_current_folder() -> None:
    try:
        os.getcwd()
    except OSError as error:
        raise ConfigError(
            f"the current folder is gone, or not for us ({error.strerror}): targets are looked for "
            "there; cd to where your code is"
        ) from None


async def _run(wish: Wish, outlet: Outlet, as_text: bool) -> int:
    began_at = time.monotonic()
    orders = wish.orders
    env = dict(os.environ)
    if orders.redis_url is not None:
        env[URL_VARIABLE] = orders.redis_url  # handlers add jobs, too
    with ExitStack() as open_things:
        endpoint: Endpoint | None = None

        def began(member: Member) -> None:
            where = None
            if endpoint is not None:
                host = endpoint.host or "0.0.0.0"  # noqa: S104
                where = f"http://{f'[{host}]' if ':' in host else host}:{endpoint.port}"
            words = _begun(wish, member, where)
            if as_text:
                outlet.write(render_worker.banner(words) + "\n")
            else:
                log.info("running", extra=words._asdict())

        crew = Supervisor(
            Plan(orders, env, wish.folders),
            _passing(outlet, prefixed=as_text and orders.processes > 1),
            began,
        )
        crew.room = outlet.has_room
        reports = Reports(crew)
        if wish.place is not None:
            endpoint = Endpoint(
                wish.place, metrics=reports.metrics, live=reports.live, ready=reports.ready
            )
            endpoint.start()
            open_things.callback(endpoint.stop)
        code = await crew.run()
    total = crew.total
    words = render_worker.summary(
        total.jobs, total.failed, total.crashes, time.monotonic() - began_at
    )
    if as_text:
        outlet.write(words + "\n")
    else:
        log.info("%s", words, extra=total._asdict())
    return code


def _begun(wish: Wish, member: Member, where: str | None) -> Start:
    found, answer, orders = member.found, member.answer, wish.orders
    assert found is not None and answer is not None
    servers = zip([role.server for role in found.roles], answer.dialects, strict=False)
    return Start(
        __version__,
        orders.target,
        list(servers),
        [(role.queue, role.concurrency) for role in found.roles],
        orders.processes,
        found.loop,
        where,
        () if wish.folders is None else sorted({found.folder, *wish.folders}),
        orders.burst,
        found.notes,
    )


def _passing(outlet: Outlet, *, prefixed: bool) -> Pass:
    """How a line of a process's stderr is passed on: no terminal obeys what is in it."""

    def passing(index: int, text: bytes) -> None:
        if outlet.left_out(len(text) + 1):
            return
        front = f"[{index + 1}] " if prefixed else ""
        words = text.decode(errors="backslashreplace").split(TAB)
        outlet.pass_on(f"{front}{TAB.join(map(shown, words))}\n")

    return passing
