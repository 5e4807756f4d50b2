"""PromQL that cannot mean what it says."""
