"""Facts about a server and its queues, for those who look for trouble. Only `remedy` writes."""
