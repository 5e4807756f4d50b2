"""Playbooks that will not run, or of which nobody will know whether they helped."""
