"""From YAML to the frozen model, with every problem found, each at its file, line and column."""
