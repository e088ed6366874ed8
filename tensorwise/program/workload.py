"""A Workload: an einsum with concrete operands - sparsity patterns, sizes and dtype."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from tensorwise.errors import InputError
from tensorwise.ids import content_id
from tensorwise.program.einsum import Access, Assignment, Einsum
from tensorwise.program.joined import check_joined
from tensorwise.program.ops import MTTKRP, NAMED, mttkrp
from tensorwise.program.reference import Reference, reference
from tensorwise.reading import shown
from tensorwise.tensor.elements import ELEMS, is_half
from tensorwise.tensor.entries import Entries
from tensorwise.tensor.memory import RESULT_VARIABLE, available_bytes, largest_result_bytes

MOST_GROWTH = 16
"""Times the operands' bytes that a dense result may have whatever its size: so much the result of a product with a tall
dense operand may have, and that of one with a row for each of many sources."""
FOREIGN = 1 / 16
"""Share of drawn numbers of entries that are any: of no entry, or of one elsewhere."""


@dataclass(frozen=True, eq=False)
class Workload:
    """What has to be computed, without how.

    Attributes:
        op: name of the operation, or ``einsum`` for one written by hand.
        einsum: a single assignment.
        sparse: operand name -> its stored entries.
        sizes: index -> extent.
        dtypes: dense operand -> its dtype, where it is not that of the first sparse operand; the output -> its dtype, where
            it is not the operands' (float32 of halves, or a half of others than it).
    """

    op: str
    einsum: Einsum
    sparse: Mapping[str, Entries]
    sizes: Mapping[str, int]
    dtypes: Mapping[str, np.dtype] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raise InputError where dtypes do not go together, an index is no sparse operand or has too many coordinates, terms
        count where a sparse operand has no entry, or a tensor that is read twice cannot be the same tensor both times."""
        strange = [name for name in self.assignment.numbered if name not in self.sparse]
        if strange:
            raise InputError(
                f"'{self.assignment}' uses {strange[0]} as an index, so that it has to be a sparse operand"
            )
        numbered = [
            name
            for name in self.sparse
            if self.assignment.access(name).indices[0] in self.assignment.operands
        ]
        if numbered:
            access = self.assignment.access(numbered[0])
            raise InputError(
                f"{access} is sparse, and {access.indices[0]} an operand of '{self.assignment}': only dense tensors have a "
                "row for each of its entries; call the index or the operand differently"
            )
        compared = [name for name in self.assignment.chosen if name in self.sparse]
        if compared:
            raise InputError(
                f"'{self.assignment}' compares {compared[0]} with an index, so that it has to be a dense array of integers"
            )
        check_joined(self.assignment, self.sparse)
        output = self.assignment.output
        if output.indices[0] in self.sparse and not self.keeps_pattern:
            raise InputError(f"{output} has the entries of {output.indices[0]}; name that operand first")
        counted = [*self.assignment.chosen.values(), *filter(None, [self.assignment.argument])]
        large = [index for index in counted if self._extent(index) > np.iinfo(self.index_dtype).max]
        if large:
            raise InputError(
                f"{large[0]} has {self._extent(large[0])} coordinates or entries, more than {self.index_dtype} counts, "
                f"which is used beside {self.dtype}; compute in float64"
            )
        if len({dtype == np.float64 for dtype in self._dtypes.values()}) > 1:
            raise InputError(
                f"the operands are {_listed(self._dtypes)}: float64 goes with float64 only, while float32, float16 and "
                "bfloat16 may be mixed; convert some of them"
            )
        if (self.value_dtype == np.float64) != (self.dtype == np.float64):
            raise InputError(f"{output} cannot be {self.value_dtype}: it is computed in {self.dtype}")
        for access in self.assignment.accesses:
            first = self.assignment.access(access.tensor)
            if access == first:
                continue
            if access.tensor in self.sparse:
                raise InputError(
                    f"sparse operand {access.tensor} is read as {first} and as {access}; "
                    "give it a second time under another name"
                )
            if [self._extent(i) for i in access.indices] != [self._extent(i) for i in first.indices]:
                raise InputError(
                    f"{first} and {access} are the same tensor, but its extents would be "
                    f"{self.shape(access.tensor)} and {tuple(self._extent(i) for i in access.indices)}"
                )

    @cached_property
    def assignment(self) -> Assignment:
        """The einsum's only assignment."""
        return self.einsum.single

    @cached_property
    def entries(self) -> Entries:
        """Stored entries of the first sparse operand."""
        return next(iter(self.sparse.values()))

    @property
    def dtype(self) -> np.dtype:
        """float32 or float64: what is computed in, and what operands are unless they are halves."""
        kinds = self._dtypes.values() or (self.entries.dtype,)
        return np.dtype(np.float64 if np.float64 in kinds else np.float32)

    @property
    def elem(self) -> str:
        """``dtype`` as the loop IR calls it: ``f32`` or ``f64``."""
        return ELEMS[self.dtype.name]

    def dtype_of(self, operand: str) -> np.dtype:
        """dtype of an operand: float16, bfloat16, float32 or float64; of one that is compared with, ``index_dtype``."""
        if operand in self.sparse:
            return self.sparse[operand].dtype
        if operand in self.assignment.chosen:
            return self.index_dtype
        return self.dtypes.get(operand, self.entries.dtype)

    @cached_property
    def _dtypes(self) -> dict[str, np.dtype]:
        """dtype of every operand that is computed with."""
        names = dict.fromkeys(access.tensor for access in self.assignment.accesses)
        return {name: self.dtype_of(name) for name in names if name not in self.assignment.chosen}

    @property
    def index_dtype(self) -> np.dtype:
        """int32 beside float32, int64 beside float64: what coordinates are where they are chosen and compared, so that
        vectors of both have equally many lanes."""
        return np.dtype(np.int64 if self.dtype == np.float64 else np.int32)

    @property
    def valued(self) -> frozenset[str]:
        """Sparse operands whose values are read."""
        return frozenset(self.sparse) & frozenset(self._dtypes)

    @cached_property
    def value_dtype(self) -> np.dtype:
        """dtype of the values that come out: as `dtypes` says, else the operands' where they share one, else float32."""
        return self.dtypes.get(self.assignment.output.tensor, self._shared_dtype)

    @cached_property
    def _shared_dtype(self) -> np.dtype:
        """The operands' dtype where they share one, else float32."""
        kinds = set(self._dtypes.values()) or {self.entries.dtype}
        return kinds.pop() if len(kinds) == 1 else np.dtype(np.float32)

    @property
    def dtype_text(self) -> str:
        """The dtype of all operands, or that of each: ``bfloat16`` or ``A bfloat16, B float32``."""
        return _listed(self._dtypes) if len(set(self._dtypes.values())) > 1 else str(self._shared_dtype)

    @cached_property
    def halves(self) -> dict[str, str]:
        """Tensors kept in 16 bits, the output among them -> ``f16`` or ``bf16``."""
        kinds = {**self._dtypes, self.assignment.output.tensor: self.output_dtype}
        return {name: ELEMS[dtype.name] for name, dtype in kinds.items() if is_half(dtype)}

    @property
    def renumbered(self) -> frozenset[str]:
        """Sparse operands whose entries have numbers of their own (see ``Entries.numbers``)."""
        return frozenset(name for name, entries in self.sparse.items() if entries.numbers is not None)

    @property
    def dense(self) -> tuple[str, ...]:
        """Names of the dense operands, in the order in which a call takes them."""
        return tuple(name for name in self.einsum.operands if name not in self.sparse)

    def describe(self) -> dict[str, object]:
        """Return what a Record keeps of the workload, as JSON-able values."""
        return {
            "op": self.op,
            "einsum": str(self.einsum),
            "sizes": {index: int(extent) for index, extent in self.sizes.items()},
            "shape": [int(extent) for extent in self.entries.shape],
            "nnz": int(self.entries.nnz),
            "longest": self.entries.longest,
            "dtype": self.dtype_text,
        }

    @cached_property
    def id(self) -> str:
        """Content id: einsum, sizes, dtypes and sparsity patterns (values do not change the cost)."""
        patterns = [part for name, e in self.sparse.items() for part in (name, e.pattern_id)]
        sizes = ",".join(f"{index}={extent}" for index, extent in sorted(self.sizes.items()))
        dtypes = self._shared_dtype.str if len(set(self._dtypes.values())) == 1 else self.dtype_text
        if self.assignment.output.tensor in self.dtypes:
            dtypes += f" -> {self.value_dtype}"
        return content_id([str(self.einsum), sizes, dtypes, *patterns])

    @property
    def keeps_pattern(self) -> bool:
        """Whether the output has an element, or several side by side, for each entry of the first sparse operand."""
        return self.assignment.has_pattern_of(next(iter(self.sparse)))

    @property
    def output_shape(self) -> tuple[int, ...]:
        """Shape of the output: one value an entry when the pattern is kept, else by index."""
        output = self.assignment.output
        if self.keeps_pattern and output.indices[0] not in self.sparse:
            return (self.entries.nnz,)
        return self.shape(output.tensor)

    @property
    def output_dtype(self) -> np.dtype:
        """dtype of the output: ``index_dtype`` for coordinates and entries (argmax, argmin), else ``value_dtype``."""
        return self.index_dtype if self.assignment.argument else self.value_dtype

    def shape(self, tensor: str) -> tuple[int, ...]:
        """Shape of an operand or of the (dense) output."""
        indices = self.assignment.access(tensor).indices
        return tuple(self._extent(index) for index in indices)

    @property
    def terms(self) -> int:
        """Number of evaluations of the right-hand side: nnz times the extents of dense-only indices."""
        bound = self.assignment.indices_of(self.sparse)
        free = [self.sizes[i] for i in self.assignment.indices if i not in bound]
        return self.entries.nnz * int(np.prod(free, dtype=object)) if free else self.entries.nnz

    @property
    def flops(self) -> int:
        """Floating-point operations: one per combine operator and one reduction, for each term."""
        return self.terms * max(1, len(self.assignment.accesses))

    @property
    def compulsory_bytes(self) -> int:
        """Bytes that any implementation moves: each operand read once, the output written once."""
        values = [e.dtype.itemsize if name in self.valued else 0 for name, e in self.sparse.items()]
        moved = sum(e.nnz * (size + 4) for e, size in zip(self.sparse.values(), values))
        shapes = [(self.shape(name), self.dtype_of(name)) for name in self.dense]
        for shape, dtype in [*shapes, (self.output_shape, self.output_dtype)]:
            moved += dtype.itemsize * int(np.prod(shape, dtype=object))
        return moved

    def operands(self, rng: np.random.Generator) -> list[np.ndarray]:
        """Draw dense operands in [-1, 1) in the layout that a call prefers (see ``column_major``)."""
        drawn = []
        for name in self.dense:
            if name in self.assignment.chosen:
                array = self._numbers(name, rng)
            else:
                array = rng.random(self.shape(name), dtype=self.dtype.type) * 2 - 1
                array = array.astype(self.dtype_of(name), copy=False)
            drawn.append(np.asfortranarray(array) if self.column_major(name) else array)
        return drawn

    def _numbers(self, name: str, rng: np.random.Generator) -> np.ndarray:
        """Draw an operand of chosen numbers: mostly of entries that its rows have, as those of a maximum are."""
        of, shape = self.assignment.chosen[name], self.shape(name)
        drawn = rng.integers(-1, self._extent(of), size=shape, dtype=self.index_dtype)
        if of not in self.sparse:
            return drawn
        modes = {index: mode for mode, index in enumerate(self.assignment.access(of).indices)}
        axes = [axis for axis, index in enumerate(self.assignment.access(name).indices) if index in modes]
        if len(axes) != 1:
            return drawn
        entries = self.sparse[of]
        places = entries.coordinates[modes[self.assignment.access(name).indices[axes[0]]]]
        counts = np.bincount(places, minlength=shape[axes[0]])
        along = [1] * len(shape)
        along[axes[0]] = -1
        first, count = (np.cumsum(counts) - counts).reshape(along), counts.reshape(along)
        order = np.argsort(places, kind="stable")
        if entries.numbers is not None:
            order = entries.numbers[order]
        own = np.append(order, -1)[
            np.minimum(first + (rng.random(shape) * count).astype(np.int64), len(order))
        ]
        foreign = (count == 0) | (rng.random(shape) < FOREIGN)
        return np.where(foreign, drawn, own).astype(self.index_dtype)

    def _extent(self, index: str) -> int:
        """Number of coordinates of an index, or of entries."""
        return self.sparse[index].nnz if index in self.sparse else self.sizes[index]

    def column_major(self, tensor: str) -> bool:
        """Whether operand ``tensor`` is expected with its first index contiguous (see ``Assignment.column_major``).

        Either layout is accepted by a call; the other one is copied.
        """
        return self.assignment.column_major(tensor, self.sparse)

    def check_operands(self, operands: Sequence[np.ndarray]) -> None:
        """Raise InputError unless ``operands`` are arrays of the right number, shape and dtype."""
        if len(operands) != len(self.dense):
            raise InputError(
                f"{self.op} takes {len(self.dense)} operands ({', '.join(self.dense)}), got {len(operands)}"
            )
        for name, operand in zip(self.dense, operands, strict=True):
            if not isinstance(operand, np.ndarray) or isinstance(operand, np.ma.MaskedArray):
                raise InputError(f"operand {name} must be a NumPy array, got {type(operand).__name__}")
            if operand.shape != self.shape(name):
                raise InputError(f"operand {name} must have shape {self.shape(name)}, got {operand.shape}")
            dtype = self.dtype_of(name)
            if operand.dtype != dtype:
                like = " as the sparse operand is" if dtype == self.entries.dtype else ""
                home = "ml_dtypes" if dtype.name == "bfloat16" else "numpy"
                advice = f"convert it with .astype({home}.{dtype})"
                if operand.dtype.kind == "c":
                    advice = "give .real and .imag in two calls"
                other = (
                    f" or tune the matrix in {operand.dtype}" if like and operand.dtype.name in ELEMS else ""
                )
                raise InputError(
                    f"operand {name} must be {dtype}{like}, got {operand.dtype}; {advice}{other}"
                )

    def check_memory(self, *tensors: str) -> None:
        """Raise InputError unless dense arrays of ``tensors`` fit into the memory that is free now.

        Where the output is among them, also where it is out of all proportion to the operands (see ``check_result``).
        """
        needed = {name: self._bytes(name) for name in tensors}
        total, free = sum(needed.values()), available_bytes()
        if total <= free:
            if self.assignment.output.tensor in tensors:
                self.check_result()
            return
        largest = max(needed, key=lambda tensor: needed[tensor])
        raise InputError(
            f"the dense arrays take {total / 2**30:,.1f} GiB, most of them {self.assignment.access(largest)} of shape "
            f"{self._dense_shape(largest)}, but {free / 2**30:,.1f} GiB of memory are free; choose a smaller n, or "
            "renumber the sparse operand's indices without those that have no entry"
        )

    def check_result(self) -> None:
        """Raise InputError where a large dense result comes from small operands: mostly a sparse one was expected.

        What is large, the user may say: see ``largest_result_bytes``.
        """
        result = self._bytes(self.assignment.output.tensor)
        if result <= (limit := largest_result_bytes()):
            return
        given = sum(e.nnz * (e.dtype.itemsize + 4) for e in self.sparse.values()) + sum(
            map(self._bytes, self.dense)
        )
        if result <= MOST_GROWTH * given:
            return
        raise InputError(
            f"'{self.assignment}' gives a dense array {self.assignment.output.tensor} of shape {self.output_shape}, "
            f"{result / 2**30:,.1f} GiB, from operands of {given / 2**20:,.1f} MiB; more than {limit / 2**30:,.1f} GiB and "
            f"{MOST_GROWTH} times the operands is refused. For a sparse result multiply the matrices with SciPy; if the "
            f"dense one is meant, set the environment variable {RESULT_VARIABLE} to {result} or more"
        )

    def _bytes(self, tensor: str) -> int:
        return math.prod(self._dense_shape(tensor)) * self._item_bytes(tensor)

    def _dense_shape(self, tensor: str) -> tuple[int, ...]:
        return self.output_shape if tensor == self.assignment.output.tensor else self.shape(tensor)

    def _item_bytes(self, tensor: str) -> int:
        is_output = tensor == self.assignment.output.tensor
        return (self.output_dtype if is_output else self.dtype_of(tensor)).itemsize

    def reference(self, operands: Sequence[np.ndarray]) -> Reference:
        """Return the dense reference of this workload (see :mod:`tensorwise.program.reference`)."""
        dense = dict(zip(self.dense, operands, strict=True))
        return reference(self.assignment, self.sparse, dense, self.sizes, keep_pattern=self.keeps_pattern)


def workload(
    op: str,
    a: Entries,
    *,
    n: int | None = None,
    mode: int = 0,
    dtypes: Mapping[str, np.dtype] | None = None,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
) -> Workload:
    """Build the workload of a named operation on the stored entries ``a``.

    Args:
        op: ``spmv``, ``spmm``, ``spmv_t``, ``spmm_t`` (A transposed), ``sddmm``, ``mttkrp``, ``ttv``, ``ttm``, an operation
            that another package adds, or the text of an einsum whose sparse operand is called A.
        n: extent of the indices that neither A nor ``shapes`` tell: columns of B in SpMM (default 64), inner dimension of
            SDDMM (64), rank of MTTKRP (16) and TTM (16).
        mode: output mode of MTTKRP.
        dtypes: dense operand -> dtype, where it is not that of ``a``.
        shapes: dense operand -> shape.

    Raises:
        InputError: unknown operation, or one that does not fit the order of ``a``; dtypes or shapes that do not go together.
    """
    if op == "mttkrp":
        if not 3 <= a.order <= 5:
            raise InputError(
                f"mttkrp needs a tensor of order 3 to 5, got order {a.order} with shape {a.shape}"
            )
        if not isinstance(mode, int | np.integer) or not 0 <= mode < a.order:
            raise InputError(f"mttkrp mode must lie in 0..{a.order - 1}, got {shown(mode)}")
        text = mttkrp(a.order, mode)
    elif isinstance(op, str) and op in NAMED:
        text = NAMED[op]
    elif isinstance(op, str) and "=" in op:
        text = op
    else:
        raise InputError(f"unknown operation {shown(op)}; known: {', '.join([*NAMED, 'mttkrp'])}")
    if op != "mttkrp" and (isinstance(mode, bool) or not isinstance(mode, int | np.integer) or mode != 0):
        raise InputError(f"mode is the output mode of mttkrp; {op} has none, got {shown(mode)}")
    einsum = Einsum.parse(text)
    if "A" not in einsum.single.operands:
        raise InputError(f"'{einsum}' has no operand A, which stands for the sparse operand; rename it to A")
    op = _name_of(einsum) if op == text else op
    indices = einsum.single.access("A").indices
    if len(indices) != a.order:
        raise InputError(
            f"{op} needs a tensor of order {len(indices)}, got order {a.order} with shape {a.shape}"
        )
    sizes = dict(zip(indices, a.shape, strict=True))
    for name, shape in (shapes or {}).items():
        if name not in einsum.operands:
            raise InputError(f"'{einsum}' has no operand {name!r}; it has {', '.join(einsum.operands)}")
        if any(not 0 < extent < 2**62 for extent in shape):
            raise InputError(f"the extents of operand {name} must be positive, got the shape {shape}")
        add_extents(sizes, einsum.single.access(name), shape)
    told = {sizes[index] for index in sizes if index not in indices}
    free = [index for index in einsum.single.indices if index not in sizes]
    if free:
        extent = n if n is not None else (16 if a.order > 2 else 64)
        if isinstance(extent, bool) or not isinstance(extent, int | np.integer) or extent < 1:
            raise InputError(f"n must be a positive integer, got {n!r}")
        sizes |= dict.fromkeys(free, int(extent))
    elif n is not None and not (isinstance(n, int | np.integer) and int(n) in (told or {1})):
        left = (
            "no dense-only index" if not told else "no dense-only index whose extent its operands leave open"
        )
        raise InputError(f"{op} has {left}, so n must be left out (got n={shown(n)})")
    return Workload(op, einsum, {"A": a}, sizes, _check_dtypes(einsum, dtypes or {}))


def einsum_workload(
    einsum: Einsum | str,
    sparse: Mapping[str, Entries],
    sizes: Mapping[str, int],
    dtypes: Mapping[str, np.dtype] | None = None,
) -> Workload:
    """Build the workload of an einsum written by hand.

    Args:
        einsum: a single assignment, or its text.
        sparse: stored operands by name; those that ``einsum`` names besides are dense.
        sizes: extents of the indices that no stored operand has; others may be repeated.
        dtypes: dense operand -> dtype, where it is not that of the first stored operand.

    The workload's ``op`` is the operation's name where ``einsum`` is exactly that of a named operation,
    else ``einsum``.

    Raises:
        InputError: no or unknown stored operands, extents that are missing, not positive or contradictory.
    """
    if isinstance(einsum, str):
        einsum = Einsum.parse(einsum)
    assignment = einsum.single
    unknown = [name for name in sparse if name not in assignment.operands]
    if unknown:
        raise InputError(
            f"'{assignment}' has no operand {unknown[0]!r}; it has {', '.join(assignment.operands)}"
        )
    if not sparse:
        raise InputError(f"'{assignment}' has no sparse operand; give one, or use numpy.einsum")
    found: dict[str, int] = {}
    for name, entries in sparse.items():
        add_extents(found, assignment.access(name), entries.shape)
    for index, extent in sizes.items():
        if index not in assignment.indices:
            raise InputError(f"'{assignment}' has no index {index!r}; it has {', '.join(assignment.indices)}")
        whole = isinstance(extent, int | np.integer) and not isinstance(extent, bool)
        if not (whole and (0 < extent < 2**62 or found.get(index) == extent)):
            # a stored operand may be empty
            raise InputError(f"the size of index {index!r} must be a positive integer, got {shown(extent)}")
        if found.setdefault(index, extent) != extent:
            raise InputError(
                f"index {index!r} has extent {extent} in sizes, but {found[index]} in an operand"
            )
    missing = [index for index in assignment.indices if index not in found]
    if missing:
        raise InputError(f"the size of index {missing[0]!r} is not known; give sizes={{{missing[0]!r}: ...}}")
    op = _name_of(einsum) if next(iter(sparse)) == "A" and len(sparse) == 1 else "einsum"
    sizes = {index: int(found[index]) for index in assignment.indices}
    return Workload(op, einsum, dict(sparse), sizes, _check_dtypes(einsum, dtypes or {}))


def _name_of(einsum: Einsum) -> str:
    """Return the name of the operation that an einsum is exactly, else ``einsum``."""
    text = str(einsum)
    if text in MTTKRP:
        return "mttkrp"
    return next((op for op, known in NAMED.sound().items() if known == text), "einsum")


def _check_dtypes(einsum: Einsum, dtypes: Mapping[str, np.dtype]) -> dict[str, np.dtype]:
    outputs = [assignment.output.tensor for assignment in einsum.assignments]
    unknown = [name for name in dtypes if name not in (*einsum.operands, *outputs)]
    if unknown:
        raise InputError(
            f"a dtype is given for {unknown[0]!r}, but '{einsum}' has the operands {', '.join(einsum.operands)}"
        )
    return dict(dtypes)


def _listed(kinds: Mapping[str, np.dtype]) -> str:
    return ", ".join(f"{name} {dtype}" for name, dtype in kinds.items())


def add_extents(extents: dict[str, int], access: Access, shape: tuple[int, ...]) -> None:
    """Add the extents that the shape of an operand tells; raise InputError where they contradict those that are known."""
    if len(access.indices) != len(shape):
        raise InputError(f"{access} has {len(access.indices)} indices, but {access.tensor} has shape {shape}")
    for index, extent in zip(access.indices, shape, strict=True):
        if (known := extents.setdefault(index, extent)) != extent:
            raise InputError(
                f"index {index!r} has extent {extent} in {access.tensor} of shape {shape}, but {known} elsewhere"
            )
