"""Fuzzing of all doors through which foreign bytes and objects enter: see ``benchmarks/robustness/fuzz.py``."""
