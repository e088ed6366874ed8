"""Sequences of calls on sparse arrays, played with SciPy's classes and with ours, and what is compared."""
