"""The real parts that the demo and the tests run against: a Ray cluster and Prometheus.

Nothing here is part of the service. Everything runs on loopback, in folders that the caller names, needs no
root, and leaves nothing behind.
"""
