"""Clients of other systems that more than one stage needs."""
