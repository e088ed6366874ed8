"""Tuning: the loop that asks, measures and remembers, and the operators that it returns."""
