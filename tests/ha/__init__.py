"""Real Sentinels and real clusters that fail over and move."""
