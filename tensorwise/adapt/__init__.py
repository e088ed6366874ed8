"""Learning with few measurements: which inputs are worth one."""
