"""Rows into Redis, each exactly once, whatever becomes of the tasks that bring them."""
