"""Concurrency that knows nothing of jobs."""
