"""Run a program with SciPy patched: ``python -m tensorwise.patch script.py arguments``, or ``-m module arguments``.

SciPy's CSR and CSC arrays and matrices multiply through this package then; see `tensorwise.sparse.patching`. Python
processes that the program starts are patched, too.
"""

import os
import runpy
import sys
from pathlib import Path

from tensorwise.sparse.patching import patch_scipy

_USAGE = "usage: python -m tensorwise.patch script.py [arguments], or: python -m tensorwise.patch -m module [arguments]"
STARTED_BY_US = "TENSORWISE_PATCH_SCIPY"
"""Variable of the environment by which a process that a patched one starts knows that it is to be patched."""


def run(arguments: list[str]) -> None:
    """Run the program that ``arguments`` name, as Python's own command line does, with SciPy patched."""
    if not arguments or (arguments[0] == "-m" and len(arguments) < 2) or arguments[0] in ("-h", "--help"):
        print(_USAGE, file=sys.stdout if arguments[:1] in (["-h"], ["--help"]) else sys.stderr)
        raise SystemExit(0 if arguments[:1] in (["-h"], ["--help"]) else 2)
    patch_scipy()
    _have_children_patched()
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        sys.path[0] = os.getcwd()
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = arguments
        sys.path[0] = str(Path(arguments[0]).resolve().parent)
        runpy.run_path(arguments[0], run_name="__main__")


def _have_children_patched() -> None:
    """Let Python processes that are started from here on import our ``sitecustomize``, which patches them."""
    folder = str(Path(__file__).with_name("patched"))
    given = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = os.pathsep.join([folder, *([given] if given else [])])
    os.environ[STARTED_BY_US] = "1"


if __name__ == "__main__":
    run(sys.argv[1:])
