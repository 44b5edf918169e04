"""Faults on purpose: real servers, real processes, real kill -9."""
