"""What Spark does to queues beside reading and writing rows: dead jobs that a DataFrame names are
brought back, or deleted.

    from chasquimq.spark.act import purge, replay
"""

from __future__ import annotations

from chasquimq.spark.act.dead import purge, replay

__all__ = ["purge", "replay"]
