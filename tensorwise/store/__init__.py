"""Records of measurements, and the files that keep them."""
