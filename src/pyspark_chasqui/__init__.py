"""The name under which Spark looks for `format("chasqui")`. It must be importable wherever Spark
runs Python: on the driver and on every executor."""

from chasquimq.spark.source import ChasquiSource as DefaultSource

__all__ = ["DefaultSource"]
