"""The life of alerts, and the words they carry."""
