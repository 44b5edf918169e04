"""What the commands that run Spark share: where the server is, where Spark runs, how far it is."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.resources import files
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated

import typer

from chasquimq.address import read_url
from chasquimq.cli.bar import Bar
from chasquimq.cli.shell import URL_VARIABLE, the_url, was_given
from chasquimq.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PATIENCE_S = 2.0  # with a server that is away
LOOK_S = 0.2  # between two looks at how far Spark is
NOISE = (
    b"WARNING: Using incubator modules",
    b"Using Spark's default log4j profile",
    b"Setting default log level",
    b"To adjust logging level",
)

Master = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="Where Spark runs: local[*], spark://..., yarn, k8s://...; "
        "else what spark-submit says, else all cores of this machine.",
        show_default=False,
    ),
]
SecretFile = Annotated[
    str | None,
    typer.Option(
        metavar="PATH",
        help="A file with the password, or the whole address, on this machine and every node.",
        show_default=False,
    ),
]


def where(redis_url: str | None, secret_file: str | None, master: str | None) -> dict[str, str]:
    """Options of `format("chasqui")` that lead to the server, none of which holds a secret."""
    if secret_file is not None:
        path = {"secretFile": os.path.abspath(secret_file)}
        return {**path, "url": the_url(redis_url)} if was_given(redis_url) else path
    url = the_url(redis_url)
    if read_url(url).password is None:
        return {"url": url}  # not the name of a variable, which nodes need not have
    if not was_given(redis_url):
        return {"urlEnv": URL_VARIABLE}
    if not is_local(master):
        raise ConfigError(
            "--redis-url holds a password, which would have to travel to every node; put the "
            f"address into ${URL_VARIABLE} there, or name a file by --secret-file"
        )
    os.environ[URL_VARIABLE] = url  # Spark's processes are our children, and see what we see
    return {"urlEnv": URL_VARIABLE}


def reach(options: Mapping[str, str], queue: str) -> None:
    """Raise, if the server is away or does not let us in: Spark takes a while to start, and longer
    to find out."""
    need_spark()
    from chasquimq.spark.client import Client
    from chasquimq.spark.options import where_options

    address = where_options(options).address_of(queue)
    with Client(address, patience_s=PATIENCE_S) as client:
        client.ask("PING")


def need_spark() -> None:
    """For commands that import it before they start it."""
    if find_spec("pyspark") is None:
        raise ConfigError("Spark is not installed here: pip install 'chasquimq-py[spark]'")


def start(name: str, master: str | None = None) -> SparkSession:
    """The session: the one that spark-submit made, or a quiet one of our own."""
    need_spark()
    from pyspark.sql import SparkSession

    from chasquimq.spark.session import session

    if not is_local(master) or SparkSession.getActiveSession() is not None:
        made = session(f"chasqui {name}", master=master)
    else:
        with _overheard():
            made = session(f"chasqui {name}", master=master or "local[*]", conf=_quiet())
    # Makes it the session of this thread, without which Spark looks for no source of Python's.
    made.createDataFrame([], "nothing INT")
    return made


@contextmanager
def progress(spark: SparkSession, title: str) -> Iterator[None]:
    """A bar of the tasks that Spark does, while the block runs."""
    ended = threading.Event()
    watching = threading.Thread(target=_watch, args=(spark, title, ended), daemon=True)
    watching.start()
    try:
        yield
    finally:
        ended.set()
        watching.join()


def _watch(spark: SparkSession, title: str, ended: threading.Event) -> None:
    tracker = spark.sparkContext.statusTracker()
    known: dict[int, tuple[int, int]] = {}  # of a stage: its tasks, and how many are done
    with Bar(title, None, "tasks") as bar:
        while not ended.wait(LOOK_S):
            for stage in tracker.getActiveStageIds():
                info = tracker.getStageInfo(stage)
                if info is not None:
                    known[stage] = info.numTasks, info.numCompletedTasks
            for stage in known.keys() - set(tracker.getActiveStageIds()):
                known[stage] = known[stage][0], known[stage][0]
            bar.expect(sum(tasks for tasks, _ in known.values()) or 1)
            bar.reach(sum(done for _, done in known.values()))


@contextmanager
def _overheard() -> Iterator[None]:
    """What is started in the block gets a stderr from which the noise of a start is taken out."""
    ours = os.dup(2)
    inward, outward = os.pipe()
    os.dup2(outward, 2)
    os.close(outward)
    threading.Thread(target=_pass_on, args=(inward, ours), daemon=True).start()
    try:
        yield
    finally:
        os.dup2(ours, 2)


def _pass_on(inward: int, ours: int) -> None:
    with open(inward, "rb") as lines:
        for line in lines:
            if not line.startswith(NOISE):
                os.write(ours, line)


def is_local(master: str | None) -> bool:
    """Does Spark run here, started by us?"""
    return "PYSPARK_GATEWAY_PORT" not in os.environ and (master or "local").startswith("local")


def _quiet() -> dict[str, str]:
    """Nothing between our lines but what went wrong; no page on a port; no more tasks than help."""
    lines = files("chasquimq.spark") / "log4j2.properties"
    return {
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={lines}",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": str(2 * (os.cpu_count() or 1)),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
