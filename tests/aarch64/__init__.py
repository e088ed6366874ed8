"""Generated code, its runtime and the in-place library on another processor: cross-compiled, and run by qemu-user."""
