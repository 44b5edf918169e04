"""Bulk and analytical work on jobs and events: functions that make a DataFrame of a DataFrame.

None of them reads or writes anything; what does is beside them, and in `chasqui spark`.
"""
