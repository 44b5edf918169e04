"""Our side and the reference, on one queue."""
