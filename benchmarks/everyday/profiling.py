"""Runs a program and says how long SciPy's products of a sparse matrix with a dense operand took in it.

    python profiling.py OUT.json PROGRAM ARGUMENTS

The methods that compute a product are wrapped; a product within another counts once. The bookkeeping of ``A @ x`` around
them, which an array of ours replaces as well, is not counted.
"""

import importlib
import json
import runpy
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

HOMES: Final = ("_compressed", "_csr", "_csc", "_coo", "_bsr", "_dia", "_base")
METHODS: Final = ("_matmul_vector", "_matmul_multivector", "_mul_vector", "_mul_multivector")


class Clock:
    """Seconds in products, and how many there were."""

    def __init__(self) -> None:
        self.seconds, self.calls, self._within = 0.0, 0, False

    def wrap(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return ``function``, timed unless a timed one called it."""

        def timed(*args: Any, **kwargs: Any) -> Any:
            if self._within:
                return function(*args, **kwargs)
            self._within, begin = True, time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                self.seconds += time.perf_counter() - begin
                self.calls += 1
                self._within = False

        return timed

    def watch(self) -> int:
        """Wrap the products of all of SciPy's sparse classes; return how many methods that are."""
        wrapped = 0
        for home in HOMES:
            module = importlib.import_module(f"scipy.sparse.{home}")
            for one in vars(module).values():
                if isinstance(one, type) and one.__module__ == module.__name__:
                    for name in METHODS:
                        if name in vars(one):
                            setattr(one, name, self.wrap(vars(one)[name]))
                            wrapped += 1
        return wrapped


def main() -> None:
    """Run the program of the arguments, then write what was counted."""
    out, program, *_ = sys.argv[1:]
    clock = Clock()
    if not clock.watch():
        raise SystemExit(
            "this SciPy has none of the methods that compute products; add their names to METHODS"
        )
    sys.argv = sys.argv[2:]
    sys.path[0] = str(Path(program).parent)
    runpy.run_path(program, run_name="__main__")
    Path(out).write_text(json.dumps({"products_s": clock.seconds, "calls": clock.calls}))


if __name__ == "__main__":
    main()
