"""Plan, guard, act, verify."""
