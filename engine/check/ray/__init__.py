"""What only Ray's metric contract can tell."""
