"""`chasqui spark purge`: delete a cluster of dead jobs, or any others, for good."""

from __future__ import annotations

from chasquimq.cli.screen import Screen
from chasquimq.cli.shell import AsJson, DryRun, QueueName, RedisUrl, Yes, examples
from chasquimq.cli.spark.dead import All, Cluster, Place, Sql, command
from chasquimq.cli.spark.start import Master, SecretFile

EXAMPLES = examples(
    "chasqui spark purge mail --cluster 3fa2b81c07           it asks first",
    "chasqui spark purge mail --where \"failed_at < '2026-10-01'\" --dry-run",
    "chasqui spark purge mail --cluster 3fa2b81c07 --cluster 99c0a1d2e4 --yes",
)


def purge(
    queue: QueueName,
    cluster: Cluster = None,
    where: Sql = None,
    everything: All = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    master: Master = None,
    secret_file: SecretFile = None,
    redis_url: RedisUrl = None,
    as_json: AsJson = False,
) -> None:
    """Delete dead jobs for good. Export them first if you may want them again."""
    command(
        "purge", queue, cluster or (), where, everything, Place(redis_url, secret_file, master),
        rate=None, dry_run=dry_run, yes=yes, screen=Screen(as_json=as_json),
    )  # fmt: skip
