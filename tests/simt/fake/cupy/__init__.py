"""As much of CuPy as Tensorwise uses, on the CPU: arrays are NumPy's, kernels run thread by thread (see ``shim.h``).

Where FAKE_SPOILS is set, a block with more than 32 threads along x spoils the device, as an illegal address would: every
call after it fails.
"""

import ctypes
import os
from types import SimpleNamespace

import numpy as np

from cupy import cuda

__version__ = "fake"


class ndarray(np.ndarray):  # noqa: N801 - as CuPy calls it
    @property
    def data(self):
        return SimpleNamespace(ptr=self.ctypes.data)

    def get(self):
        cuda.get_current_stream().synchronize()
        return np.array(self)


def asarray(array, order=None):
    return np.array(array, order=order or "K").view(ndarray)


def empty(length, dtype):
    return np.full(length, np.nan if np.dtype(dtype).kind == "f" else -7, dtype).view(ndarray)


def from_dlpack(array):
    return np.from_dlpack(array).view(ndarray)


class RawModule:
    def __init__(self, path):
        self.library = ctypes.CDLL(path)

    def get_function(self, name):
        run = self.library[f"run_{name}"]

        def launch(grid, block, arguments):
            if cuda.captured is not None:
                cuda.captured.append(lambda: launch(grid, block, arguments))
                return
            kept = [
                ctypes.c_void_p(a.ctypes.data)
                if isinstance(a, np.ndarray)
                else (ctypes.c_int32 if a.dtype == np.int32 else ctypes.c_int64)(int(a))
                for a in arguments
            ]
            pointers = (ctypes.c_void_p * len(kept))(*(ctypes.addressof(k) for k in kept))
            spoils = bool(os.environ.get("FAKE_SPOILS")) and block[0] > 32
            if run(pointers, (ctypes.c_int * 4)(*grid, *block), ctypes.c_uint(1)) or spoils:
                cuda.spoiled.append("cudaErrorIllegalAddress")

        launch.kernel = SimpleNamespace(ptr=len(cuda.driver.kernels))
        cuda.driver.kernels.append(run)
        return launch
