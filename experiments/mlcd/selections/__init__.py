"""The functions of MLCD's section IV in several versions, inputs over the paper's ranges, and how good a choice is."""
