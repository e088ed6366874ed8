"""Tuning spaces that others measured whole on several GPUs: what is known of one GPU helps on another."""
