"""What a person would look at next: one file an enricher."""
