"""Ways of being bad: one detector a file, judging all series of a window in one pass."""
