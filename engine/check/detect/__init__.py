"""Detectors whose figures do not fit each other."""
