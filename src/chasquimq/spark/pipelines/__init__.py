"""Bulk and analytical work on jobs and events: functions that make a DataFrame of a DataFrame.

They read and write nothing; what does is beside them, and in `chasqui spark`. But for two: `replay`
and `purge` do to dead jobs what they are called, and `report` collects what a page shows.
"""

from __future__ import annotations

from chasquimq.spark.act import purge, replay
from chasquimq.spark.pipelines.cluster import clustered, triage
from chasquimq.spark.pipelines.keep import lake
from chasquimq.spark.pipelines.life import lifecycle, runs
from chasquimq.spark.pipelines.shape import enqueue
from chasquimq.spark.pipelines.summary import report
from chasquimq.spark.pipelines.window import compare, depth, heat, names, punctuality, rollup

__all__ = [
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
]
