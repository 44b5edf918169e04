"""Decisions, pure: state and time in, a decision out. No I/O, no clock, no dice of its own."""
