"""Tensorwise: sparse tensor programs made fast by choosing format, schedule, code version and device."""

__version__ = "0.1.0"
