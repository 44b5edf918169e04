"""The loops, one per file. `consumer.py` is the wiring diagram."""
