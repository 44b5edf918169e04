"""What a Spark task that runs handlers does beside the Worker, which `spark/work.py` has."""
