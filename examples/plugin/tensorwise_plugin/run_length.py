"""The level R: runs of neighbouring coordinates, as in banded and blocked matrices."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np

from tensorwise.tensor.levels import Compressed, Level
from tensorwise.tensor.levels.level import ArrayFacts, PackingState, at_most, larger, smaller
from tensorwise.tensor.primitives import EntryPositions


@final
@dataclass(frozen=True)
class RunLength(Level):
    """Coordinates ``start[r], start[r] + 1, ...`` stand at the positions ``first[r] .. first[r + 1]``.

    ``pos[p] .. pos[p + 1]`` are the runs below parent p. Two runs that are empty end the arrays, so that the run behind the
    last one can be read. Coordinates are read in order: the cursor is the number of the run.
    """

    letter: ClassVar[str] = "R"
    sequential: ClassVar[bool] = True
    proposed: ClassVar[bool] = True
    appends: ClassVar[bool] = True
    arrays: ClassVar[tuple[str, ...]] = ("pos", "start", "first")

    def first(self, arrays: Mapping[str, Any], parent: Any) -> Any:
        """Return where the first run of ``parent`` begins."""
        return arrays["first"][arrays["pos"][parent]]

    def cursor(self, arrays: Mapping[str, Any], parent: Any) -> Any:
        """Return the first run of ``parent``."""
        return arrays["pos"][parent]

    def _run(self, arrays: Mapping[str, Any], parent: Any, cursor: Any) -> Any:
        """The cursor, inside of the arrays whatever a register holds: proofs do not follow it."""
        return larger(smaller(cursor, arrays["pos"][parent + 1]), 0)

    def coordinate(
        self, arrays: Mapping[str, Any], parent: Any, position: Any, extent: Any, cursor: Any = None
    ) -> Any:
        """Count from where the run starts, to the end of the axis at most."""
        run = self._run(arrays, parent, cursor)
        start = arrays["start"][run]
        return start + smaller(larger(position - arrays["first"][run], 0), extent - 1 - start)

    def advance(self, arrays: Mapping[str, Any], parent: Any, position: Any, cursor: Any) -> Any:
        """Go on to the next run behind the last position of this one."""
        return cursor + at_most(arrays["first"][self._run(arrays, parent, cursor) + 1], position + 1)

    def open_fiber(self, arrays: Mapping[str, list[int]], position: int) -> None:
        """Append the number of the next run."""
        arrays["pos"].append(len(arrays["start"]))

    def append(self, arrays: Mapping[str, list[int]], position: int, coordinate: int) -> None:
        """Continue the fiber's last run, or begin one."""
        start, first = arrays["start"], arrays["first"]
        if len(start) == arrays["pos"][-1] or coordinate != start[-1] + position - first[-1]:
            start.append(coordinate)
            first.append(position)

    def close_last_fiber(self, arrays: Mapping[str, list[int]], positions: int) -> None:
        """Append the end of the last parent's runs, and the two empty runs."""
        arrays["pos"].append(len(arrays["start"]))
        arrays["start"].extend((0, 0))
        arrays["first"].extend((positions, positions))

    def facts(
        self, parents: Any, positions: Any, extent: Any, unknown: Callable[[str], Any]
    ) -> Mapping[str, ArrayFacts]:
        """Runs are numbered from 0; two more end the arrays."""
        runs = unknown("runs")
        return {
            "pos": ArrayFacts(parents + 1, 0, runs, ascending=True),
            "start": ArrayFacts(runs + 2, 0, extent - 1),
            "first": ArrayFacts(runs + 2, 0, positions, ascending=True),
        }

    def ascend(
        self, arrays: Mapping[str, np.ndarray], positions: np.ndarray, extent: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Search the runs of positions, and the parents of runs."""
        run = np.searchsorted(arrays["first"][:-2], positions, side="right") - 1
        parents = np.searchsorted(arrays["pos"], run, side="right") - 1
        return parents, (arrays["start"][run] + positions - arrays["first"][run]).astype(np.int64)

    def build(self, stage: PackingState) -> tuple[dict[str, np.ndarray], EntryPositions]:
        """List the coordinates as C does, then keep where runs begin."""
        listed, form = Compressed(self.axis).build(stage)
        pos, coordinates = listed["pos"], listed["crd"]
        begins = np.ones(len(coordinates), bool)
        begins[1:] = coordinates[1:] != coordinates[:-1] + 1
        begins[pos[pos < len(coordinates)]] = True
        first = np.flatnonzero(begins)
        stage.reserve(len(first), f"runs in {self}")
        end = np.full(2, len(coordinates))
        return {
            "pos": np.searchsorted(first, pos).astype(pos.dtype),
            "start": np.append(coordinates[first], np.zeros(2, coordinates.dtype)),
            "first": np.append(first, end).astype(pos.dtype),
        }, form
