"""Apache TVM, for the modules that need it: import it from here, so that its absence names the extra.

Nothing that ``import tensorwise`` loads may import this module: it takes seconds.
"""

import importlib
import platform
import sys
import types
from pathlib import Path

from tensorwise.errors import MissingExtraError

try:
    import tvm
    import tvm_ffi
    from tvm import relax, s_tir
    from tvm.ir.utils import derived_object
except ImportError as error:
    raise MissingExtraError("apache-tvm", "tvm", "cutting networks into tasks and running them") from error

__all__ = ["derived_object", "meta_schedule", "relax", "s_tir", "tvm", "tvm_ffi"]


def _of_this_processor_only() -> None:
    """Keep ``tvm.s_tir.tensor_intrin``, which meta-schedule imports, from parsing the intrinsics of all processors.

    That takes half a minute a process; those of x86 take no time, and no others are asked for here.
    """
    name = "tvm.s_tir.tensor_intrin"
    if name in sys.modules or platform.machine() not in ("x86_64", "AMD64"):
        return
    package = types.ModuleType(name)
    package.__path__ = [str(Path(str(s_tir.__file__)).parent / "tensor_intrin")]
    sys.modules[name] = package
    s_tir.tensor_intrin = package
    importlib.import_module(f"{name}.x86")


_of_this_processor_only()

from tvm.s_tir import meta_schedule  # noqa: E402  (imports the intrinsics)
