"""A driver that commits a staged write and nothing else: to be killed."""

from __future__ import annotations

import pickle
import sys

if __name__ == "__main__":
    way, stages = pickle.loads(sys.stdin.buffer.read())
    way.commit(stages)
