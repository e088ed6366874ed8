"""Baselines that are measured against but are no part of the package: plain C and Numba loops."""
