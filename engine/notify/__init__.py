"""Where people are told: one file a place."""
