"""Languages that rules are written in: PromQL and Go templates."""
