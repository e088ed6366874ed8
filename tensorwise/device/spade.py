"""A simulated SPADE-like accelerator: compiled, deterministic, and it returns the numbers that it computes.

SPADE (Gerogiannis et al., ISCA'23) puts processing elements (PEs) for SpMM and SDDMM beside the cores of a processor. Its
simulator was never released. This one is cycle-approximate: ``spade.c`` walks through the entries in the order in
which the PEs would take them, keeps the tags of all caches, and says for each entry when it is dispatched and when its
operands are there. A machine is a file of ``machines/spade``; its comments say what is published and what assumed.

A PE takes its tiles from a control processor. Its sparse front end reads 16 entries at a time, past the caches, and makes
of each entry as many vector operations as a dense row has lines. Rows of dense operands that entries index by column come
from vector registers, L1, the L2 of a few PEs, a last-level cache or memory; those that they index by row (SpMM's result,
SDDMM's left operand) likewise, or through a bypass buffer with a victim cache. Row panels go round the PEs.

The simulation leaves out: reads of instructions, page translation, bandwidth inside the caches, banks of memory. A pass
over a strip of dense columns begins and ends with empty caches, so that equal passes take equal time: one is simulated.
"""

import ctypes
import math
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Final, final

import numpy as np

from tensorwise.device.device import Candidate, Device, Measurement
from tensorwise.device.opening import DeviceOptions
from tensorwise.errors import InputError
from tensorwise.ids import content_id
from tensorwise.program.workload import Workload
from tensorwise.reading import WRONG_DATA, parse_dataclass, printable, reading, reason
from tensorwise.runtime.kernel import GENERATED, BoundKernel, Kernel
from tensorwise.space.config import Config
from tensorwise.space.spade import LANES, SpadeSpace, TileProgram, spade_space
from tensorwise.space.strips import Processors
from tensorwise.tensor.entries import Entries
from tensorwise.tensor.orders import permutation
from tensorwise.toolchain.routines import POINTER, SIZE, Routines

MACHINES: Final = Path(__file__).parent / "machines" / "spade"
SPADES: Final = ("spade", "spade-small")
"""Machines that come with the package."""
SPADE_PROTOCOL: Final = "2"
"""Changes whenever a machine file means other seconds than before. 2: ``reorder`` breaks ties by index (decision NNNN)."""
COUNTERS: Final = (
    "cycles", "entries", "operations", "register_hits", "l1_hits", "l2_hits", "last_hits", "buffer_hits", "victim_hits",
    "row_reads", "sparse_lines", "read_lines", "written_lines", "tiles", "barriers",
)  # fmt: skip
"""What a pass counts, as in spade.c. ``row_reads`` are rows of dense matrices that came from memory, lines are 64 bytes."""
_QUEUE: Final = 64
"""Most that a queue may hold, as in spade.c."""
SIMULATOR: Final = Routines(
    "simulate an accelerator",
    "tw_spade_",
    {
        "tiles": (SIZE, (SIZE, POINTER, POINTER, *(SIZE,) * 3, *(POINTER,) * 6)),
        "run_pass": (SIZE, (POINTER,) * 10),
    },
    Path(__file__).with_suffix(".c"),
)


@final
@dataclass(frozen=True)
class Machine:
    """An accelerator: the fields of a file of ``machines/spade``, which says what each of them means.

    Times are in cycles of ``clock_hz`` (``_cycles``) or in seconds (``_s``).

    Raises:
        InputError: a number that no machine can have.
    """

    name: str
    clock_hz: float
    elements: int
    cluster: int
    line_bytes: int
    registers: int
    operations: int
    stations: int
    loads: int
    sparse_loads: int
    stores: int
    arithmetic_cycles: int
    tile_cycles: int
    barrier_cycles: int
    startup_s: float
    l1_bytes: int
    l1_ways: int
    l1_cycles: int
    buffer_lines: int
    buffer_cycles: int
    victim_bytes: int
    victim_ways: int
    victim_cycles: int
    l2_bytes: int
    l2_ways: int
    l2_cycles: int
    last_bytes: int
    last_ways: int
    last_cycles: int
    memory_bytes_per_s: float
    memory_usable: float
    memory_s: float
    memory_queue_s: float
    slice_cycles: int
    reorder: str
    row_panels: tuple[int, ...]
    column_panels: tuple[int, ...]
    splits: tuple[int, ...]
    row_panel: int

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            whole = one.type is int
            if whole and (isinstance(value, bool) or not isinstance(value, int)):
                raise InputError(f"{one.name} of machine {self.name!r} must be a whole number, got {value!r}")
            if (whole or one.type is float) and not 0 <= value < 2**40:
                raise InputError(f"{one.name} of machine {self.name!r} must not be negative, got {value!r}")
        positive = ("clock_hz", "elements", "cluster", "line_bytes", "slice_cycles", "memory_bytes_per_s")
        for name in (
            *positive,
            "memory_usable",
            "l1_ways",
            "victim_ways",
            "l2_ways",
            "last_ways",
            "buffer_lines",
        ):
            if not getattr(self, name) > 0:
                raise InputError(
                    f"{name} of machine {self.name!r} must be positive, got {getattr(self, name)!r}"
                )
        for name in ("operations", "stations", "loads", "sparse_loads", "stores"):
            if not 1 <= getattr(self, name) <= _QUEUE:
                raise InputError(
                    f"{name} of machine {self.name!r} must be from 1 to {_QUEUE}, got {getattr(self, name)}"
                )
        if self.line_bytes != 4 * LANES or self.memory_usable > 1:
            raise InputError(
                f"machine {self.name!r}: expected lines of {4 * LANES} bytes and a usable share of at most 1, "
                f"got {self.line_bytes} and {self.memory_usable}"
            )

    @classmethod
    def load(cls, name: str | Path) -> "Machine":
        """Read a machine: the name of one that comes with the package, or a path of a file.

        Raises:
            InputError: there is none, or the file lacks a field or has one too many.
        """
        path = MACHINES / f"{name}.toml" if name in SPADES else Path(name)
        try:
            given = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, *WRONG_DATA) as error:
            raise InputError(
                f"{printable(str(path))}: is no machine file ({reason(error)}); known names: {', '.join(SPADES)}"
            ) from error
        with reading(f"{path}: a machine with impossible numbers"):
            return parse_dataclass(cls, given, f"{path}: machine")

    @cached_property
    def id(self) -> str:
        """Content id of all that the seconds depend on."""
        numbers = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "name"}
        return content_id(["spade", SPADE_PROTOCOL, repr(sorted(numbers.items()))])

    @cached_property
    def space(self) -> SpadeSpace:
        """What can be chosen on this machine."""
        shared = ((self.l1_bytes, 1), (self.l2_bytes, self.cluster), (self.last_bytes, self.elements))
        processors = Processors(self.elements, tuple((max(size, 1), sharers) for size, sharers in shared))
        panels = self.row_panels, self.column_panels
        return spade_space(self.name, *panels, self.splits, self.row_panel, processors)

    @cached_property
    def numbers(self) -> np.ndarray:
        """The fields as spade.c has them, (31,) int64: times in whole cycles, memory in lines a cycle times 65536."""
        peak = self.memory_bytes_per_s / self.clock_hz / self.line_bytes * 65536
        memory = [round(seconds * self.clock_hz) for seconds in (self.memory_s, self.memory_queue_s)]
        return np.array([
            self.elements, self.cluster, self.line_bytes, self.registers, self.stations, self.operations, self.loads,
            self.sparse_loads, self.stores, self.arithmetic_cycles, self.l1_bytes, self.l1_ways, self.l1_cycles,
            self.buffer_lines, self.buffer_cycles, self.victim_bytes, self.victim_ways, self.victim_cycles, self.l2_bytes,
            self.l2_ways, self.l2_cycles, self.last_bytes, self.last_ways, self.last_cycles, *memory,
            max(1, round(peak * self.memory_usable)), max(1, round(peak)), self.tile_cycles, self.barrier_cycles,
            self.slice_cycles,
        ], np.int64)  # fmt: skip


@final
@dataclass(frozen=True)
class Simulation:
    """What a run took, and what it computed.

    Attributes:
        seconds: at the machine's clock.
        counters: what all passes together counted; see COUNTERS.
        output: the result, of the shape that the workload says; None where no operands were given.
    """

    seconds: float
    counters: Mapping[str, int]
    output: np.ndarray | None = field(default=None, repr=False)


@final
class SpadeDevice(Device[Workload]):
    """Simulates programs on a machine; the same question gets the same answer everywhere.

    Args:
        machine: the accelerator, a name of SPADES or a path of a machine file.
    """

    deterministic: ClassVar[bool] = True
    routines: ClassVar[tuple[Routines, ...]] = (SIMULATOR,)

    def __init__(self, machine: Machine | str | Path = "spade") -> None:
        self.machine = machine if isinstance(machine, Machine) else Machine.load(machine)
        self.name = self.machine.name
        self.id = self.machine.id
        self._stage: _Stage | None = None

    @cached_property
    def provenance(self) -> Mapping[str, object]:
        """What a Record says about the device besides the times."""
        return {"simulated": True, "machine": self.name, "cache": "cold"}

    def space(self, workload: Workload) -> SpadeSpace:
        """Return the choices of this machine, the same for all workloads."""
        return self.machine.space

    def kernel(self, workload: Workload, candidate: Candidate) -> Kernel:
        """Return a kernel that computes by simulation."""
        if isinstance(candidate, str):
            raise InputError(f"there is no library {candidate!r} on {self.name}")
        return SimulatedKernel(self, candidate, self.machine.space.program(workload, candidate))

    def measure(
        self,
        workload: Workload,
        candidates: Sequence[Candidate],
        *,
        incumbent_s: float | None = None,
        limit_s: float | None = None,
    ) -> Iterator[Measurement]:
        """Yield a measurement for each config: simulated seconds. See :class:`Device`.

        Numbers are not computed here (``run`` does); that each entry was worked on once is checked.
        """
        for config in candidates:
            if isinstance(config, str):
                yield Measurement.failed("refused", f"there is no library {config!r} on {self.name}")
                continue
            try:
                simulation = self.run(workload, config)
            except InputError as error:
                yield Measurement.failed("refused", str(error))
                continue
            worked, passes = (
                simulation.counters["entries"],
                self.machine.space.program(workload, config).strips,
            )
            if worked != workload.entries.nnz * sum(times for _, times in passes):
                yield Measurement.failed("wrong", f"worked on {worked} entries")
                continue
            yield Measurement.of([simulation.seconds], f"simulated: {self.name}")

    def run(
        self, workload: Workload, config: Config, operands: Sequence[np.ndarray] | None = None
    ) -> Simulation:
        """Simulate one config, and compute with ``operands`` where they are given.

        Args:
            operands: the dense operands, as ``Workload.operands`` draws them; float32.

        Raises:
            InputError: the accelerator cannot compute the workload, or operands do not fit it.
        """
        program = self.machine.space.program(workload, config)
        if operands is not None:
            workload.check_operands(operands)
        if self._stage is None or self._stage.workload is not workload:
            self._stage = _Stage(workload, self.machine.reorder)
        return self._stage.run(self.machine, program, operands)

    def close(self) -> None:
        self._stage = None


def open_spade(options: DeviceOptions) -> SpadeDevice:
    """Open the large accelerator; it has no use for options."""
    return SpadeDevice("spade")


def open_spade_small(options: DeviceOptions) -> SpadeDevice:
    """Open the small accelerator; it has no use for options."""
    return SpadeDevice("spade-small")


@final
class SimulatedKernel(Kernel):
    """A program of an accelerator as a Kernel: a call simulates it, and returns the numbers that it computes.

    Args:
        device: the accelerator.
        config: what it runs.
        program: the same as a program.
    """

    name = GENERATED

    def __init__(self, device: SpadeDevice, config: Config, program: TileProgram) -> None:
        self.device, self.config, self.program = device, config, program

    def bind(self, workload: Workload, threads: int = 1) -> "BoundSimulation":
        """Keep the workload; nothing is packed."""
        return BoundSimulation(self.device, workload, self.config)


@final
class BoundSimulation(BoundKernel):
    """A simulated program with its sparse operand.

    Attributes:
        last: the simulation of the last call, None before the first.
    """

    def __init__(self, device: SpadeDevice, workload: Workload, config: Config) -> None:
        self._device, self._workload, self._config = device, workload, config
        self.last: Simulation | None = None

    def run(self, operands: Sequence[np.ndarray], out: np.ndarray) -> None:
        """Simulate on ``operands``, and copy the result into ``out``. See :class:`BoundKernel`."""
        self.last = self._device.run(self._workload, self._config, operands)
        assert self.last.output is not None
        out[...] = self.last.output.reshape(out.shape)


class _Stage:
    """A workload as it was last laid out for a machine: what configs share is kept."""

    def __init__(self, workload: Workload, order: str) -> None:
        self.workload, self.order = workload, order
        self._tiles: tuple[tuple[int, int, bool], _Tiles] | None = None
        self._passes: dict[tuple[TileProgram, int], np.ndarray] = {}

    def run(
        self, machine: Machine, program: TileProgram, operands: Sequence[np.ndarray] | None
    ) -> Simulation:
        total = np.zeros(len(COUNTERS), np.int64)
        output = None
        for place, (width, times) in enumerate(program.strips):
            if operands is not None and place == 0:  # a computing pass has the numbers of all strips
                layout = self._layout(program.reorder)
                arrays, output = layout.arrays(self.workload, operands)
                counted = self._pass(machine, program, width, arrays)
                output = layout.result(self.workload, output)
            elif (program, width) in self._passes:
                counted = self._passes[program, width]
            else:
                counted = self._passes[program, width] = self._pass(machine, program, width, None)
            total += times * counted
        counters = dict(zip(COUNTERS, total.tolist(), strict=True))
        return Simulation(machine.startup_s + counters["cycles"] / machine.clock_hz, counters, output)

    def _pass(
        self, machine: Machine, program: TileProgram, width: int, arrays: Sequence[np.ndarray] | None
    ) -> np.ndarray:
        """What one pass over ``width`` dense columns counts, (len(COUNTERS),) int64."""
        tiles = self._tiled(program)
        several = sum(times for _, times in program.strips) > 1
        settings = np.array(
            [
                program.primitive == "sddmm", -(-width // LANES), program.width, program.split, program.barrier,
                program.bypass, *self.workload.entries.shape, len(tiles.start) - 1, tiles.column_panels, several,
            ],
            np.int64,
        )  # fmt: skip
        counted = np.zeros(len(COUNTERS), np.int64)
        given = None if arrays is None else (ctypes.c_void_p * 4)(*(array.ctypes.data for array in arrays))
        places = None if tiles.place is None else tiles.place.ctypes.data
        SIMULATOR(
            "run_pass", machine.numbers.ctypes.data, settings.ctypes.data, tiles.row.ctypes.data, tiles.column.ctypes.data,
            places, tiles.start.ctypes.data, tiles.tile_row.ctypes.data, tiles.tile_column.ctypes.data, given,
            counted.ctypes.data,
        )  # fmt: skip
        return counted

    def _tiled(self, program: TileProgram) -> "_Tiles":
        key = program.row_panel, program.column_panel, program.reorder
        if self._tiles is None or self._tiles[0] != key:
            self._tiles = None  # two may not fit into memory
            self._tiles = key, _Tiles.of(self._layout(program.reorder).entries, key[0], key[1])
        return self._tiles[1]

    def _layout(self, reorder: bool) -> "_Layout":
        return self._reordered if reorder else self._plain

    @cached_property
    def _plain(self) -> "_Layout":
        return _Layout(self.workload.entries)

    @cached_property
    def _reordered(self) -> "_Layout":
        entries = self.workload.entries
        rows, columns = (permutation(entries, mode, self.order) for mode in (0, 1))
        moved = [np.empty(len(order), np.int64) for order in (rows, columns)]
        for places, order in zip(moved, (rows, columns), strict=True):
            places[order] = np.arange(len(order))
        coordinates = [places[array] for places, array in zip(moved, entries.coordinates, strict=True)]
        taken = np.lexsort(coordinates[::-1])
        sorted_ = Entries(
            entries.shape, tuple(c[taken].astype(np.int32) for c in coordinates), entries.values[taken]
        )
        return _Layout(sorted_, rows, columns, taken)


@dataclass(frozen=True)
class _Layout:
    """Entries as they are tiled, and which row, column and entry of the workload stands where (None: at its own place)."""

    entries: Entries
    rows: np.ndarray | None = None
    columns: np.ndarray | None = None
    taken: np.ndarray | None = None

    def arrays(
        self, workload: Workload, operands: Sequence[np.ndarray]
    ) -> tuple[tuple[np.ndarray, ...], np.ndarray]:
        """Return values and dense matrices by rows of the layout, and the result's array among them."""
        nothing = np.empty(0, np.float32)
        if workload.op == "spmm":
            given: tuple[np.ndarray, ...] = (_rows(operands[0], self.columns), nothing)
        else:
            given = (_rows(operands[0], self.rows), _rows(operands[1].T, self.columns))
        output = np.zeros(workload.output_shape, np.float32)
        return (np.ascontiguousarray(self.entries.values), *given, output), output

    def result(self, workload: Workload, output: np.ndarray) -> np.ndarray:
        """Return the result in the workload's own order."""
        order = self.rows if workload.op == "spmm" else self.taken
        if order is None:
            return output
        own = np.empty_like(output)
        own[order] = output
        return own


@dataclass(frozen=True)
class _Tiles:
    """Entries tile by tile: row panel by row panel, in each column panel by column panel, in each row by row.

    Attributes:
        row, column: coordinates (nnz,) int32; place: which entry of the layout each is, (nnz,) int32,
            None where each is its own.
        start: of each tile and the end, (tiles + 1,) int64; tile_row, tile_column: panels of each, (tiles,) int32.
        column_panels: how many there are.
    """

    row: np.ndarray
    column: np.ndarray
    place: np.ndarray | None
    start: np.ndarray
    tile_row: np.ndarray
    tile_column: np.ndarray
    column_panels: int

    @classmethod
    def of(cls, entries: Entries, row_panel: int, column_panel: int) -> "_Tiles":
        row, column = (np.ascontiguousarray(array, np.int32) for array in entries.coordinates)
        panels = [
            max(1, -(-extent // size)) for extent, size in zip(entries.shape, (row_panel, column_panel))
        ]
        most = min(entries.nnz, math.prod(panels))
        start = np.empty(most + 1, np.int64)
        tile_row, tile_column = (np.empty(most, np.int32) for _ in range(2))
        # With one column panel entries are in order as they are; a hundred million of them are not copied then.
        taken = [np.empty(entries.nnz, np.int32) for _ in range(3)] if panels[1] > 1 else []
        addresses = [array.ctypes.data for array in taken] if taken else [None] * 3
        tiles = SIMULATOR(
            "tiles", entries.nnz, row.ctypes.data, column.ctypes.data, row_panel, column_panel, panels[1],
            *addresses, start.ctypes.data, tile_row.ctypes.data, tile_column.ctypes.data,
        )  # fmt: skip
        row, column, place = taken or (row, column, None)
        return cls(row, column, place, start[: tiles + 1], tile_row[:tiles], tile_column[:tiles], panels[1])


def _rows(matrix: np.ndarray, order: np.ndarray | None) -> np.ndarray:
    return np.ascontiguousarray(matrix if order is None else matrix[order], np.float32)
