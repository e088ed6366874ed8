"""WACO's motivation and sources of speed-ups, repeated: restricted tuning spaces, measured steps, a page."""
