"""Facts about the device; without one where FAKE_GPUS is 0."""

import ctypes
import os


class CUDARuntimeError(RuntimeError):
    pass


def getDeviceCount():
    if os.environ.get("FAKE_GPUS") == "0":
        raise CUDARuntimeError("cudaErrorNoDevice: no CUDA-capable device is detected")
    return 1


def getDeviceProperties(number):
    return {"name": b"NVIDIA H100 (imagined)", "multiProcessorCount": 4}


def runtimeGetVersion():
    return 13000


def driverGetVersion():
    return 13000


def memsetAsync(address, value, size, stream):
    ctypes.memset(address, value, size)
