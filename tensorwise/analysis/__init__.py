"""All that turns things into numbers for cost models: patterns, programs, machine code and devices."""
