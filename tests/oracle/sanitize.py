"""Processes in which generated code runs under AddressSanitizer and UndefinedBehaviorSanitizer."""

import os
import subprocess
from functools import cache

from tensorwise.toolchain.compiler import SANITIZE


@cache
def libraries() -> str:
    """Return the sanitizers' libraries of gcc, or nothing where it has none."""
    try:
        found = [
            subprocess.run(
                ["gcc", f"-print-file-name={name}.so"], capture_output=True, text=True, check=True
            ).stdout.strip()
            for name in ("libasan", "libubsan")
        ]
    except (OSError, subprocess.CalledProcessError):
        return ""
    return ":".join(found) if all(os.path.isabs(path) for path in found) else ""


def sanitized() -> dict[str, str]:
    """Return the environment of such a process: it dies where generated code touches what is not its own.

    Operands are allocated by malloc, which puts memory that must not be touched on both sides of each.
    """
    options = (
        "detect_leaks=0:abort_on_error=1:handle_segv=1:allocator_may_return_null=1:quarantine_size_mb=16"
    )
    return {
        **os.environ,
        "LD_PRELOAD": libraries(),
        SANITIZE: "address,undefined",
        "ASAN_OPTIONS": options,
        "UBSAN_OPTIONS": "print_stacktrace=1:abort_on_error=1",
        "PYTHONMALLOC": "malloc",
    }
