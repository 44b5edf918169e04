"""The doors with bytes in and bytes out, for programs that bring their own encoding."""

from __future__ import annotations

from chasquimq.native.consumer import Consumer
from chasquimq.native.producer import Producer
from chasquimq.native.promoter import Promoter
from chasquimq.native.scheduler import Scheduler

__all__ = ["Consumer", "Producer", "Promoter", "Scheduler"]
