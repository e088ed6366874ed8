"""Where Tensorwise keeps what it can make again: one directory a user."""

import os
from pathlib import Path


def cache_dir() -> Path:
    """Return the directory of everything cached: ``TENSORWISE_CACHE_DIR``, else the user's cache directory.

    It need not exist yet.
    """
    given = os.environ.get("TENSORWISE_CACHE_DIR")
    if given:
        return Path(given).expanduser().absolute()
    import platformdirs

    return Path(platformdirs.user_cache_dir("tensorwise"))
