"""All configs of many matrices on a simulated accelerator."""
