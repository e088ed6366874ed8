"""WACO's Table 5.4 by proxy: programs chosen under one setting of a machine run under another."""
