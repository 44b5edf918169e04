"""What users may import, beyond `from chasquimq import ...`: where from, and which names.

`test_imports.py` sees to it that a name which the documentation imports stands here.
"""

from __future__ import annotations

DEEP: dict[str, tuple[str, ...]] = {
    "chasquimq.cli": ("main",),
    "chasquimq.cli.log": ("AsJson",),
    "chasquimq.config": ("WorkerOptions",),
    "chasquimq.job": (
        "Again",
        "BackoffSpec",
        "Counts",
        "Dead",
        "DeadEntry",
        "Job",
        "NativeJob",
        "Reason",
    ),
    "chasquimq.native": ("Consumer", "Producer", "Promoter", "Scheduler"),
    "chasquimq.observe.endpoint": ("serve",),
    "chasquimq.observe.memory": ("InMemorySink",),
    "chasquimq.observe.metrics": (
        "DlqRouted",
        "JobAdded",
        "JobOutcome",
        "LockOutcome",
        "MetricsSink",
        "Names",
        "PromoterTick",
        "ReaderBatch",
        "RetryScheduled",
        "SchedulerTick",
        "SpecFired",
    ),
    "chasquimq.observe.otel": ("OpenTelemetry", "OpenTelemetrySink"),
    "chasquimq.observe.probe": ("Probe", "Target"),
    "chasquimq.observe.prometheus": ("PrometheusSink",),
    "chasquimq.server": ("Binary", "Kind", "Server", "find_server", "find_servers"),
    "chasquimq.spark.act": ("purge", "replay"),
    "chasquimq.spark.lake.compact": ("CompactOptions", "compact"),
    "chasquimq.spark.lake.keep": ("keep",),
    "chasquimq.spark.lake.lag": ("unread", "warnings"),
    "chasquimq.spark.lake.table": ("read",),
    "chasquimq.spark.pipelines": (
        "clustered",
        "compare",
        "depth",
        "enqueue",
        "heat",
        "lake",
        "lifecycle",
        "names",
        "punctuality",
        "purge",
        "replay",
        "report",
        "rollup",
        "runs",
        "triage",
    ),
    "chasquimq.spark.pipelines.cluster": ("clustered", "triage"),
    "chasquimq.spark.session": ("session",),
    "chasquimq.spark.work": ("SparkWorker",),
    "chasquimq.sync": ("Queue",),
    "chasquimq.trace": ("Batch", "Run", "Running", "Sending", "Tracing"),
}
# What users only import and hand on: their members are nobody's but ours.
OPAQUE: dict[str, tuple[str, ...]] = {
    "chasquimq.address": ("read_url",),
    "chasquimq.store": ("Dialer",),
    "pyspark_chasqui": ("DefaultSource",),
}
