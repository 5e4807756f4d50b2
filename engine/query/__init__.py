"""Answers to PromQL, from the real server and from memory."""
