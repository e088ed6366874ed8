"""The loop IR and what reads it: the C printer and the interpreter that is its oracle."""
