"""A search of formats that takes no time: it names those listed here, so that small frozen matrices are packed."""

from typing import Any, Final, final

from tensorwise.device.cpu import CpuDevice
from tensorwise.errors import TensorwiseError
from tensorwise.lower.program import program_for
from tensorwise.sparse.given import GivenArrays
from tensorwise.sparse.packed import ROUTINES, PackedProduct, masked_texts, pack_product
from tensorwise.toolchain.cache import default_cache
from tensorwise.toolchain.routines import load_all

FORMATS: Final = (
    ("(i,k) -> U(i) C(k)", "parallel(i,balanced,4)"),
    ("(i,k) -> U(i1) C(k1) U(i0:4) U(k0:4)", "parallel(i1,dynamic,4)"),
    ("(i:length64,k) -> U(i1) P(k#) U(i0:8) S(k)", "parallel(i1,dynamic,4)"),
    ("(i,k) -> U(i) C(k); rows>4: (i,k) -> U(i) C(k)", "parallel(i,balanced,4); parallel(i,balanced,4)"),
)
"""Formats and schedules: rows, blocks, slices of rows by length, and rows of two kinds."""


@final
class ListedFormats:
    """Stands in for `tensorwise.sparse.search.FormatSearch`: packs the entries in all of `FORMATS` when it is made."""

    note = ""
    cpu_s = 0.0

    def __init__(
        self, array: Any, operation: str, columns: int | None, threads: int, baseline_s: float, spent_s: float
    ) -> None:
        self._found: list[PackedProduct] = []
        given = GivenArrays.of(array, operation, columns)
        if not len(given.data):
            return
        load_all(*ROUTINES)
        for format, schedule in FORMATS:
            try:
                program = program_for(given.workload, format, schedule)
                with CpuDevice(threads) as device:
                    if device.compile(given.workload, [program]):
                        continue
                default_cache().get(masked_texts(program, given.workload))
                one = pack_product(
                    program, given.workload, given.stored, threads, baseline_s, {}, self._found
                )
            except TensorwiseError:
                continue
            if one is not None:
                self._found.append(one)

    def poll(self) -> list[PackedProduct]:
        """Return the packed products."""
        return self._found
