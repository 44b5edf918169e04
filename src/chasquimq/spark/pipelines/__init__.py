"""Bulk and analytical work on jobs and events: functions that make a DataFrame of a DataFrame.

None of them reads or writes anything; what does is beside them, and in `chasqui spark`.
"""

from __future__ import annotations

from chasquimq.spark.pipelines.keep import lake
from chasquimq.spark.pipelines.life import lifecycle, runs
from chasquimq.spark.pipelines.shape import enqueue
from chasquimq.spark.pipelines.window import compare, depth, heat, names, punctuality, rollup

__all__ = [
    "compare",
    "depth",
    "enqueue",
    "heat",
    "lake",
    "lifecycle",
    "names",
    "punctuality",
    "rollup",
    "runs",
]
