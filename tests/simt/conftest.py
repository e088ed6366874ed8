"""The CuPy in ``fake`` is for the tests that ask for it: nobody else may find it."""

collect_ignore = ["fake"]
