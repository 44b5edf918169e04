"""One module per list: `lines()` yields what the code says now."""
