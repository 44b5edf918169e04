"""Rows out of Redis: where they are (on the driver), and fetching them (on executors)."""
