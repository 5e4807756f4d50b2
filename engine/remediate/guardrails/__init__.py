"""What may say no to a run: one file a guardrail."""
