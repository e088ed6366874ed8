"""WACO's results, repeated: a learned tuner against other tuners, fixed code and libraries, and what tuning costs."""
