"""Alerts that never fire, always do, or say nothing."""
