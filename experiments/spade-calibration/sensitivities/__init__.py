"""Published sensitivities of SPADE, and the graphs that they were found on as far as they can be made again."""
