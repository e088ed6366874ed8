"""Operands with 64-bit indices, as those of more than 2**31 entries have, without so many entries."""

from dataclasses import replace

import numpy as np

from tensorwise.runtime.packed import PackedOperands
from tensorwise.tensor.fibertree import Tensor


def widened(packed: PackedOperands) -> PackedOperands:
    """The same operands with 64-bit positions, coordinates, permutations and numbers of entries."""

    def wide(tensor: Tensor) -> Tensor:
        arrays = tuple(
            {name: a.astype(np.int64) if a.dtype == np.int32 else a for name, a in level.items()}
            for level in tensor.arrays
        )
        permutations = {mode: array.astype(np.int64) for mode, array in tensor.permutations.items()}
        return replace(tensor, arrays=arrays, permutations=permutations)

    tensors = {name: wide(tensor) for name, tensor in packed.tensors.items()}
    return PackedOperands(packed.program, packed.workload, packed.threads, tensors, packed.part, wide=True)
