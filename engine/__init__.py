"""Alerting and auto-remediation for Ray clusters. Start reading at `engine.flow.engine`."""
