"""Who hears of an alert, when, and why: Alertmanager's rules on virtual time. Pure."""
