"""Run a program with SciPy patched: ``python -m tensorwise.patch script.py arguments``, or ``-m module arguments``.

With ``--report`` before the script, a table of the arrays with most time in products goes to standard error at the end.

SciPy's CSR and CSC arrays and matrices multiply through this package then; see `tensorwise.sparse.patching`. Python
processes that the program starts are patched, too.
"""

import atexit
import os
import runpy
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

from tensorwise.sparse.patching import patch_scipy
from tensorwise.sparse.profile import ProductsProfile, end_profile, start_profile

_USAGE = (
    "usage: python -m tensorwise.patch [--report] script.py [arguments], or: "
    "python -m tensorwise.patch [--report] -m module [arguments]"
)
STARTED_BY_US = "TENSORWISE_PATCH_SCIPY"
"""Variable of the environment by which a process that a patched one starts knows that it is to be patched."""


def run(arguments: list[str]) -> None:
    """Run the program that ``arguments`` name, as Python's own command line does, with SciPy patched.

    Raises:
        SystemExit: of status 2 where there is no such program; and what the program raises.
    """
    if arguments[:1] in (["-h"], ["--help"]):
        print(_USAGE)
        raise SystemExit(0)
    reports = arguments[:1] == ["--report"]
    arguments = arguments[reports:]
    if not arguments or (arguments[0] == "-m" and len(arguments) < 2):
        _fail(f"there is no program to run; {_USAGE}")
    if arguments[0] == "-m":
        _check_module(arguments[1])
    else:
        _check_script(arguments[0])
    patch_scipy()
    _have_children_patched()
    if reports:
        atexit.register(_print_report, start_profile())
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        sys.path[0] = os.getcwd()
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = arguments
        sys.path[0] = str(Path(arguments[0]).resolve().parent)
        runpy.run_path(arguments[0], run_name="__main__")


def _check_module(name: str) -> None:
    """End here where Python could not run a module."""
    try:
        spec = find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            name = f"{name}.__main__"
            spec = find_spec(name)
    except (ModuleNotFoundError, ValueError) as error:
        missing = getattr(error, "name", None) or name
        if not f"{name}.".startswith(f"{missing}."):
            raise  # a package imports something that is not installed
        spec = None
    if spec is None:
        _fail(f"no module named {name}")


def _check_script(name: str) -> None:
    """End here where Python could not run a file or folder."""
    if name.startswith("-"):
        _fail(f"unknown option {name}; {_USAGE}")
    path = Path(name)
    if not path.exists():
        _fail(f"{name}: no such file")
    if path.is_dir() and not any(path.glob("__main__.py*")):
        _fail(f"{name}: a folder without __main__.py")
    if not os.access(path, os.R_OK):
        _fail(f"{name}: cannot be read")


def _fail(why: str) -> NoReturn:
    print(f"python -m tensorwise.patch: {why}", file=sys.stderr)
    raise SystemExit(2)


def _print_report(profile: ProductsProfile) -> None:
    end_profile(profile)
    print(f"\nproducts of sparse arrays:\n{profile}", file=sys.stderr)


def _have_children_patched() -> None:
    """Let Python processes that are started from here on import our ``sitecustomize``, which patches them."""
    folder = str(Path(__file__).with_name("patched"))
    given = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = os.pathsep.join([folder, *([given] if given else [])])
    os.environ[STARTED_BY_US] = "1"


if __name__ == "__main__":
    run(sys.argv[1:])
