"""Limits of threadpoolctl, by which scikit-learn, joblib and others keep libraries from using too many threads."""

import sys
from typing import Any

from tensorwise.sparse.limits import allowed_threads, limit_threads
from tensorwise.toolchain.threads import available_threads
from tensorwise.version import __version__

_registered = False


def register_pool(library_name: str) -> None:
    """Let threadpoolctl, where the program has imported it, limit the threads of our products.

    Args:
        library_name: file name of the loaded shared library, by which threadpoolctl finds out that we are there.
    """
    global _registered
    pools: Any = sys.modules.get("threadpoolctl")
    if _registered or pools is None or not hasattr(pools, "register"):
        return
    _registered = True

    class Controller(pools.LibController):  # type: ignore[misc]
        """Our products, as threadpoolctl sees them."""

        user_api = internal_api = "tensorwise"
        filename_prefixes = (library_name,)

        def get_num_threads(self) -> int:
            return allowed_threads()

        def set_num_threads(self, num_threads: int) -> None:
            # all that there are is no limit: so what it found is restored when its block ends
            limit_threads(None if num_threads >= available_threads() else num_threads)

        def get_version(self) -> str:
            return __version__

    pools.register(Controller)
