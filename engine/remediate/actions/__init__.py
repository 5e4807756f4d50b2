"""What a step of a playbook may call: one file an action."""
