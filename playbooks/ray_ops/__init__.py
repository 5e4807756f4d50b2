"""What the playbooks run inside a Ray cluster. It travels with each job; nothing has to be installed there."""
