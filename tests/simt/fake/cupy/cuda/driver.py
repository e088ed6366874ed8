"""Kernels by number, launched on addresses."""

import ctypes

kernels = []


class CUDADriverError(RuntimeError):
    pass


def launchKernel(kernel, gx, gy, gz, bx, by, bz, shared, stream, arguments, extra):
    assert (gz, bz, shared, extra) == (1, 1, 0, 0)
    assert not kernels[kernel](
        ctypes.c_void_p(arguments), (ctypes.c_int * 4)(gx, gy, bx, by), ctypes.c_uint(1)
    )
