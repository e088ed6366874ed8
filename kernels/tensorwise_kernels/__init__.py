"""Compiled kernels for Tensorwise's sparse arrays: a folder for each level of processors.

Tensorwise finds the folders by the name of this package. ``packaging/build_kernels.py`` of the repository compiles them.
"""
