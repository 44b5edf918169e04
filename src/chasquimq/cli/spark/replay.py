"""`chasqui spark replay`: bring a cluster of dead jobs, or any others, back to their queue."""

from __future__ import annotations

from typing import Annotated

import typer

from chasquimq.cli.screen import Screen
from chasquimq.cli.shell import AsJson, DryRun, QueueName, RedisUrl, Yes, examples
from chasquimq.cli.spark.dead import All, Cluster, Place, Sql, command
from chasquimq.cli.spark.start import Master, SecretFile

EXAMPLES = examples(
    "chasqui spark replay mail --cluster 3fa2b81c07    it asks first",
    "chasqui spark replay mail --cluster 3fa2b81c07 --dry-run",
    "chasqui spark replay mail --where \"error LIKE '%timeout%'\" --rate 100",
    "chasqui spark replay mail --where \"payload LIKE '%acme%' AND attempt >= 5\"",
    "chasqui spark replay mail --all --yes --json",
)


def replay(
    queue: QueueName,
    cluster: Cluster = None,
    where: Sql = None,
    everything: All = False,
    rate: Annotated[
        float | None,
        typer.Option(metavar="N", help="So many per second, over all tasks.", show_default=False),
    ] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    master: Master = None,
    secret_file: SecretFile = None,
    redis_url: RedisUrl = None,
    as_json: AsJson = False,
) -> None:
    """Bring dead jobs back to their queue, with fresh attempts; each once, whatever fails.

    What no job can be read in stays, and so does one whose unique id a living job has. Jobs that
    die meanwhile are left for the next time.
    """
    command(
        "replay", queue, cluster or (), where, everything, Place(redis_url, secret_file, master),
        rate=rate, dry_run=dry_run, yes=yes, screen=Screen(as_json=as_json),
    )  # fmt: skip
