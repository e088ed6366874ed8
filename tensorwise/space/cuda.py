"""The space of NVIDIA GPUs: G-Sparse's choices (section III-D) for any einsum with one sparse operand, and further ones.

The ``doc`` of a size gives the paper's name for it: kMTile, kNTile, kNnzTile, kNRegTile, kLaneWidth. The threads, registers
and shared memory of a block are limited, so each choice narrows the later ones, and no invalid config is proposed.
"""

from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, final
from weakref import WeakKeyDictionary

from tensorwise.lower.plan import Plan
from tensorwise.lower.program import Program, program_for
from tensorwise.moved import forward_names
from tensorwise.program.einsum import Assignment
from tensorwise.program.gpu_directives import LOAD_WIDTHS, MAX_BLOCK_THREADS, MOST_SHARED_BYTES, Bind, Stage
from tensorwise.program.schedule import WARP, Bound, Directive, Parallel, Schedule, Tile, Unroll, Visit
from tensorwise.program.workload import Workload
from tensorwise.space.config import Value
from tensorwise.space.param import Earlier, Narrow, Param, powers
from tensorwise.space.params import Choice, Flag, PowerOfTwo
from tensorwise.space.readings import made_choices, number, operand
from tensorwise.space.space import Space
from tensorwise.space.strips import CUDA, Mapper, Processors

VECTOR_BYTES: Final = 16
"""The longest load of one instruction."""
WIDEST: Final = 256
"""Threads of a team, beyond which features are too short to share."""
REGISTER_TILES: Final = 16
LONGEST_STAGE: Final = 1024
LONGEST_PIECE: Final = 512
SHORTEST_STAGE: Final = 8
UNROLLED: Final = (1, 2, 4)
FEW_LANES: Final = 8
"""Threads that sum up features together, unless something better is known."""
OTHER_REGISTERS: Final = 32
"""Registers of a thread for addresses and loops, beside accumulators and what they read."""


@final
@dataclass(frozen=True)
class GpuSpec:
    """The limits of a GPU for a program; see ``device/machines/devices/*.toml``.

    Attributes:
        name: as the GPU calls itself, or a part of it.
        multiprocessors: how many there are.
        threads: most of a block.
        registers, shared_bytes: of a block; a register has four bytes.
        thread_registers: most of a thread.
        bandwidth: bytes of memory a second.
        flops: float32 operations a second.
        l1_bytes, l2_bytes: caches, of a multiprocessor and of all.
        arch: what machine code for it is called, such as ``sm_90``.
    """

    name: str
    multiprocessors: int
    threads: int
    registers: int
    thread_registers: int
    shared_bytes: int
    bandwidth: float
    flops: float
    l1_bytes: int
    l2_bytes: int
    arch: str


ANY: Final = GpuSpec(
    "any", 80, MAX_BLOCK_THREADS, 65536, 255, MOST_SHARED_BYTES, 9e11, 1.4e13, 2**17, 6 * 2**20, "sm_70"
)
"""What every GPU since 2017 has."""


@final
@dataclass(frozen=True)
class CudaSpace(Space[Program]):
    """Choices for one assignment, and the GPU that they are for; made by :func:`cuda_space`."""

    assignment: Assignment | None = None
    gpu: GpuSpec = ANY

    def mapper(self, workload: Workload) -> Mapper | None:
        """Return pi, for products of a matrix with one dense index: the GPU's loops as every device's."""
        if len(workload.sizes) != 3 or workload.entries.order != 2:
            return None
        caches = (self.gpu.l1_bytes, 1), *[(self.gpu.l2_bytes, self.gpu.multiprocessors)] * 2
        return replace(CUDA, processors=Processors(self.gpu.multiprocessors, caches))

    def program(self, workload: Workload, config: Mapping[str, Value]) -> Program:
        """Return the program that ``config`` stands for."""
        program = _program_so_far(str(config["layout"]), workload)
        directives = (*program.schedule.directives, *_directives_so_far(config, workload))
        return replace(program, schedule=Schedule(directives))


class _Nest:
    """What an assignment leaves to choose.

    Attributes:
        kept, dense: indices of the output, and those that the sparse operand has not got.
        tiled: the index whose elements are dealt to threads; empty where there is none.
        extent: of that index.
    """

    def __init__(self, workload: Workload) -> None:
        assignment, self.workload = workload.assignment, workload
        self.kept = assignment.free_indices
        self.own = operand(workload).indices
        self.dense = [index for index in assignment.indices if index not in self.own]
        last = assignment.output.indices[-1]
        summed = [index for index in self.dense if index not in self.kept]
        along = [] if workload.keeps_pattern or self.own[-1] in self.kept else [self.own[-1]]
        able = [*([last] if last in self.dense else []), *summed[-1:]]
        # Sums over features are longer than what heads leave of an output, and the other way round.
        self.tiled = max(able, key=lambda index: workload.sizes[index], default=(*along, "")[0])
        self.extent = workload.sizes.get(self.tiled, 0)

    def stored(self, config: Earlier) -> tuple[str, ...]:
        """The operand's indices from the outermost level on: that of the output first, where one team has a row."""
        if config["layout"] == "entries" or self.workload.keeps_pattern:
            return self.own
        first = next((index for index in self.own if index in self.kept), self.own[0])
        return (first, *(index for index in self.own if index != first))

    @property
    def along(self) -> bool:
        """Whether threads share the entries of a row."""
        return self.tiled in self.own


_PLANS: Final[WeakKeyDictionary[Workload, dict[str, Plan]]] = WeakKeyDictionary()
CHOICES: Final = (
    "balance",
    "piece",
    "threads",
    "vector",
    "registers",
    "unroll",
    "teams",
    "strips",
    "stage",
    "nnz_tile",
)
"""The Params behind the layout, in their order."""


def _program_so_far(layout: str, workload: Workload) -> Program:
    """Return the program once the layout is chosen, without directives but the order of its loops."""
    nest = _Nest(workload)
    first, *others = stored = nest.stored({"layout": layout})
    kinds = ("N", "S") if layout == "entries" else ("U", "C")
    levels = " ".join([f"{kinds[0]}({first})", *(f"{kinds[1]}({index})" for index in others)])
    inside = [index for index in nest.dense if index != nest.tiled]
    tiled = [nest.tiled] if nest.tiled in nest.dense else []
    # Reduced loops run inside those of the output, so that results wait in registers.
    outside = [i for i in (*inside, *tiled) if i in nest.kept]
    summed = [i for i in (*inside, *tiled) if i not in nest.kept]
    by_entry = layout == "entries" or workload.keeps_pattern
    order = [*stored, *outside, *summed] if by_entry else [first, *outside, *others, *summed]
    format = f"({','.join(operand(workload).indices)}) -> {levels}"
    return program_for(workload, format, f"reorder({','.join(order)})")


def _directives_so_far(
    config: Earlier, workload: Workload, names: Iterable[str] = CHOICES
) -> Iterator[Directive]:
    """Yield how the loops run, by the choices of these names; what is not among them is as small as can be."""
    nest = _Nest(workload)
    stored = nest.stored(config)
    chosen = made_choices(config, names)
    if chosen.get("balance") == "split":
        yield Parallel(stored[0], "pieces", number(chosen.get("piece", 8)))
    if chosen.get("balance") == "length":
        yield Visit(stored[0], "length")
    yield Bind(stored[0], "block", number(chosen.get("teams", 1)))
    threads = number(chosen.get("threads", 1))
    if "threads" in chosen:
        yield Tile(nest.tiled, number(chosen.get("registers", 1)), threads * number(chosen.get("vector", 1)))
        if threads > 1:
            yield Bind(nest.tiled, "thread" if nest.tiled in nest.kept else "lane", threads)
        if nest.extent and nest.tiled in nest.dense:
            yield Bound(nest.tiled, nest.extent)
    if "strips" in chosen:
        yield Bind(nest.tiled, "block")
    if "stage" in chosen:
        yield Stage(stored[-1], number(chosen.get("nnz_tile", SHORTEST_STAGE)), str(chosen["stage"]))
    if chosen.get("unroll", 1) != 1:
        yield Unroll(stored[-1], number(chosen["unroll"]))


def _allows(earlier: Earlier, workload: Workload, name: str, value: Value) -> bool:
    """Whether directives allow a choice after the earlier ones."""
    config: Earlier = ChainMap({name: value}, earlier)  # type: ignore[arg-type]
    names = () if name == "layout" else CHOICES[: CHOICES.index(name) + 1]
    layout, plans = str(config["layout"]), _PLANS.setdefault(workload, {})
    if layout not in plans:
        plans[layout] = _program_so_far(layout, workload).plan(workload.elem, sizes=workload.sizes)
    return plans[layout].allows(*_directives_so_far(config, workload, names))


@lru_cache(maxsize=64)
def cuda_space(assignment: Assignment, sparse: str = "A", gpu: GpuSpec = ANY) -> CudaSpace:
    """Return the space of ``assignment`` whose only sparse operand is ``sparse``, within what ``gpu`` has."""
    return CudaSpace("cuda", tuple(_params(gpu)), (), assignment, gpu)


def _params(gpu: GpuSpec) -> list[Param]:
    """Return the Params in the order in which they are chosen."""
    return [
        Choice(
            "layout", ("rows", "entries"), binds="pack", prefer=lambda e, w: "entries" if w.keeps_pattern else "rows",
            doc="A row a team (CSR), or an entry a team (COO: edge-parallel); teams then add to outputs atomically",
            narrow=_layouts,
        ),
        Choice(
            "balance", ("none", "length", "split"), binds="compile", prefer=_default_balance,
            doc="Rows as they come; the longest first (bind_buffer: blocks start in the order of rows); or in pieces, the "
            "longest first, and together those that read the same",
            narrow=_balances,
        ),
        PowerOfTwo(
            "piece", 8, LONGEST_PIECE, binds="call", prefer=lambda e, w: 512 if _Nest(w).along else 32,
            doc="Entries of a piece: long ones keep a GPU waiting at the end, short ones make more rows add up atomically",
            narrow=lambda e, w: powers(8, LONGEST_PIECE) if e["balance"] == "split" else None,
        ),
        PowerOfTwo(
            "threads", 1, WIDEST, binds="compile", prefer=_default_threads,
            doc="Threads of a team: kNTile, neighbouring elements of the output, or kLaneWidth, those that combine "
            "sums by shuffles, at most a warp",
            narrow=_threads,
        ),
        Choice(
            "vector", LOAD_WIDTHS, binds="compile", prefer=_default_vector,
            doc="Neighbours that a thread loads with one instruction, up to 16 bytes; the extent has to be a multiple",
            narrow=_vectors,
        ),
        PowerOfTwo(
            "registers", 1, REGISTER_TILES, binds="compile", prefer=_default_registers,
            doc="kNRegTile: elements of a thread, a team's width from each other, which reuse an index that was read",
            narrow=_registers(gpu),
        ),
        Choice(
            "unroll", UNROLLED, binds="compile", prefer=1,
            doc="Entries of a row that are loaded in parallel, with accumulators of their own",
            narrow=_unrolls(gpu),
        ),
        PowerOfTwo(
            "teams", 1, MAX_BLOCK_THREADS, binds="compile", prefer=_default_teams,
            doc="kMTile, rows of a block, or entries of a block; a block has a warp of threads at least, and registers "
            "for all of them",
            narrow=_teams(gpu),
        ),
        Flag(
            "strips", binds="compile", prefer=False,
            doc="Deal strips of long rows of the output to blocks, instead of one after the other to a team",
            narrow=lambda e, w: (False, True) if _several_strips(e, w) else None,
        ),
        Choice(
            "stage", ("none", "indices", "values", "both"), binds="compile", prefer="none",
            doc="What of a row's entries a team fetches together into shared memory",
            narrow=_stages(gpu),
        ),
        PowerOfTwo(
            "nnz_tile", SHORTEST_STAGE, LONGEST_STAGE, binds="compile", prefer=32,
            doc="kNnzTile: entries fetched at a time; a block's shared memory holds as many for each of its teams",
            narrow=_nnz_tiles(gpu),
        ),
    ]  # fmt: skip


# -- domains, in the order of the table ----------------------------------------------------------------


def _layouts(earlier: Earlier, w: Workload) -> tuple[Value, ...]:
    return tuple(layout for layout in ("rows", "entries") if _allows(earlier, w, "layout", layout))


def _balances(earlier: Earlier, w: Workload) -> tuple[Value, ...] | None:
    if earlier["layout"] == "entries":
        return None
    return tuple(kind for kind in ("none", "length", "split") if _allows(earlier, w, "balance", kind))


def _threads(earlier: Earlier, w: Workload) -> tuple[Value, ...] | None:
    nest = _Nest(w)
    if not nest.tiled or (nest.along and earlier["layout"] == "entries"):
        return None
    most = min(WIDEST, _power_above(nest.extent))
    return tuple(count for count in powers(1, most) if _allows(earlier, w, "threads", count))


def _vectors(earlier: Earlier, w: Workload) -> tuple[Value, ...] | None:
    """Vectors of an argmax would have to be compared lane by lane, and those along a row do not start at multiples."""
    nest = _Nest(w)
    if earlier["threads"] is None:
        return None
    most = min(_longest_vector(nest), max(1, nest.extent // number(earlier["threads"])))
    return tuple(v for v in LOAD_WIDTHS if v <= most and _allows(earlier, w, "vector", v))


def _longest_vector(nest: _Nest) -> int:
    """Return the adjacent elements that a thread can load in one instruction."""
    w = nest.workload
    if nest.along or not w.assignment.monoid.single or w.assignment.chosen:
        return 1
    return max(
        v for v in LOAD_WIDTHS if v == 1 or (v * w.dtype.itemsize <= VECTOR_BYTES and nest.extent % v == 0)
    )


def _registers(gpu: GpuSpec) -> Narrow:
    def narrow(earlier: Earlier, w: Workload) -> tuple[Value, ...] | None:
        if earlier["threads"] is None:
            return None
        width = number(earlier["threads"]) * number(earlier["vector"])
        strips = 4 if _Nest(w).along else _power_above(-(-_Nest(w).extent // width))
        words = _words(earlier, w, 1)
        return powers(
            1, min(REGISTER_TILES, strips, max(1, (gpu.thread_registers - OTHER_REGISTERS) // words))
        )

    return narrow


def _unrolls(gpu: GpuSpec) -> Narrow:
    def narrow(earlier: Earlier, w: Workload) -> tuple[Value, ...] | None:
        if (
            earlier["layout"] == "entries"
            or w.keeps_pattern
            or not _allows(earlier, w, "unroll", UNROLLED[1])
        ):
            return None
        words = _words(earlier, w, number(earlier["registers"] or 1))
        most = (gpu.thread_registers - OTHER_REGISTERS) // words
        return tuple(factor for factor in UNROLLED if factor == 1 or factor + 1 <= most)

    return narrow


def _teams(gpu: GpuSpec) -> Narrow:
    def narrow(earlier: Earlier, w: Workload) -> tuple[Value, ...]:
        threads = number(earlier["threads"] or 1)
        words = _words(earlier, w, number(earlier["registers"] or 1))
        used = OTHER_REGISTERS + words * (number(earlier["unroll"] or 1) + 1)
        most = min(gpu.threads, gpu.registers // used)
        return powers(max(1, WARP // threads), max(1, WARP // threads, most // threads))

    return narrow


def _stages(gpu: GpuSpec) -> Narrow:
    def narrow(earlier: Earlier, w: Workload) -> tuple[Value, ...] | None:
        nest = _Nest(w)
        if (earlier["threads"] or 1) == 1 or nest.along:
            return None
        kinds = [k for k in ("none", "indices", "values", "both") if _allows(earlier, w, "stage", k)]
        fits = [k for k in kinds if k == "none" or _longest_stage(gpu, earlier, w, k) >= SHORTEST_STAGE]
        return tuple(fits) if len(kinds) > 1 else None

    return narrow


def _nnz_tiles(gpu: GpuSpec) -> Narrow:
    def narrow(earlier: Earlier, w: Workload) -> tuple[Value, ...] | None:
        if earlier["stage"] in ("none", None):
            return None
        longest = _longest_stage(gpu, earlier, w, str(earlier["stage"]))
        return powers(SHORTEST_STAGE, min(LONGEST_STAGE, longest))

    return narrow


def _longest_stage(gpu: GpuSpec, earlier: Earlier, w: Workload, kind: str) -> int:
    """Entries that each team of a block can stage; one is left free, so that teams find theirs in different banks."""
    sizes = {"indices": 4, "values": w.dtype.itemsize, "both": 4 + w.dtype.itemsize}
    shared = min(gpu.shared_bytes, MOST_SHARED_BYTES)
    return shared // (sizes[kind] * number(earlier["teams"])) - 1


def _words(earlier: Earlier, w: Workload, registers: int) -> int:
    """Registers that the accumulators of a thread take."""
    components = len(w.assignment.monoid.components)
    return components * registers * number(earlier["vector"] or 1) * w.dtype.itemsize // 4


def _several_strips(earlier: Earlier, w: Workload) -> bool:
    nest = _Nest(w)
    if earlier["threads"] is None or not _allows(earlier, w, "strips", True):
        return False
    return nest.extent > number(earlier["threads"]) * number(earlier["vector"]) * number(earlier["registers"])


# -- defaults ------------------------------------------------------------------------------------------


def _default_balance(earlier: Earlier, w: Workload) -> Value:
    """Few graphs have rows of one length, and cutting none costs nothing."""
    return "split" if "split" in (_balances(earlier, w) or ()) else "none"


def _default_threads(earlier: Earlier, w: Workload) -> Value:
    """A warp of them at most, each with the longest vector; a few where sums go through shuffles."""
    nest = _Nest(w)
    if nest.along:
        return min(WARP, max(2, _power_above(w.entries.nnz // max(1, w.entries.shape[0])) // 2))
    most = WARP if nest.tiled in nest.kept else FEW_LANES
    return min(most, _power_above(-(-nest.extent // _longest_vector(nest))))


def _default_vector(earlier: Earlier, w: Workload) -> Value:
    return max(map(number, _vectors(earlier, w) or (1,)))


def _default_registers(earlier: Earlier, w: Workload) -> Value:
    width = number(earlier["threads"] or 1) * number(earlier["vector"] or 1)
    return 1 if _Nest(w).along else min(4, _power_above(-(-_Nest(w).extent // width)))


def _default_teams(earlier: Earlier, w: Workload) -> Value:
    return 256 // number(earlier["threads"] or 1)


def _power_above(extent: int) -> int:
    """The smallest power of two that is not below ``extent``, at least 1."""
    return 1 << max(0, extent - 1).bit_length()


__getattr__ = forward_names(__name__, {"Gpu": f"{__name__}:GpuSpec"})
