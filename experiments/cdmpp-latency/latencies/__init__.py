"""Latency of tensor programs on held-out networks and devices (CDMPP)."""
