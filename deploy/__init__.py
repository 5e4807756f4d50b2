"""What surrounds the service: how it is installed, shown and watched."""
