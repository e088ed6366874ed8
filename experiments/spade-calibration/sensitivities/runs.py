"""What is run: one config of one kernel on one graph and machine, and the list of all that the published figures need."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, final

from tensorwise.device.spade import Machine, SpadeDevice
from tensorwise.program.workload import workload
from tensorwise.tensor.entries import Entries


@final
@dataclass(frozen=True)
class Run:
    """A run; its name is the key of its result."""

    graph: str
    machine: str
    kernel: str
    width: int
    row_panel: int
    column_panel: int | str = "all"
    barrier: bool = False
    bypass: bool = False

    @property
    def name(self) -> str:
        """For people, and unique."""
        said = (" barrier" if self.barrier else "") + (" bypass" if self.bypass else "")
        return f"{self.graph} {self.machine} {self.kernel} {self.width}: {self.row_panel} x {self.column_panel}{said}"


def machine(name: str, values: Mapping[str, Any]) -> Machine:
    """Return a machine of the papers: the package's, with the numbers of ``values``."""
    given: dict[str, Any] = {
        key: tuple(v) if isinstance(v, list) else v for key, v in values["machines"][name].items()
    }
    return replace(Machine.load("spade"), name=name, **given)


def simulate(run: Run, entries: Entries, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the seconds of a run, and what it counted."""
    device = SpadeDevice(machine(run.machine, values))
    work = workload(run.kernel, entries, n=run.width)
    choices = {name: getattr(run, name) for name in ("row_panel", "column_panel", "barrier", "bypass")}
    # Dense rows are not split in the papers: the smallest split that has all columns.
    choices["split"] = next(split for split in device.machine.splits if split >= run.width)
    found = device.run(work, device.space(work).complete(choices, work, strict=True))
    return {"seconds": found.seconds, **found.counters}


def planned(values: Mapping[str, Any]) -> Iterator[Run]:
    """Yield what can be run at once, graph by graph."""
    given, panels = values["barriers"], values["panels"]
    for graph in values["hottiles"]["graphs"]:
        for name in values["hottiles"]["machines"]:
            yield Run(graph, name, "spmm", 32, 64, bypass=True)
    for graph in given["graphs"]:
        for kernel, width in kernels(values):
            for barrier in (False, True):
                columns = given["column_panels"][str(width)]
                yield Run(f"{graph}/8", "isca/8", kernel, width, given["row_panel"], columns, barrier)
    for graph in panels["graphs"]:
        for rows in panels["row_panels"]:
            for columns in panels["column_panels"]:
                yield Run(f"{graph}/8", "isca/8", "spmm", 32, rows, columns)
    for graph in values["bypass"]["graphs"]:
        yield past_caches(graph, values)


def past_caches(graph: str, values: Mapping[str, Any]) -> Run:
    """Return the run with bypassing at the panels that the paper has in its Table 6."""
    given = values["bypass"]
    return Run(f"{graph}/8", "isca/8", "spmm", 32, given["row_panel"], given["column_panel"], bypass=True)


def bypassing(
    values: Mapping[str, Any], results: Mapping[str, Mapping[str, Any]]
) -> Iterator[tuple[Run, Run]]:
    """Yield for each graph and kernel its fastest run, and the same with bypassing; all of ``planned`` must have run."""
    for graph in values["barriers"]["graphs"]:
        for kernel, width in kernels(values):
            like = [
                run
                for run in planned(values)
                if (run.graph, run.kernel, run.width, run.bypass) == (f"{graph}/8", kernel, width, False)
            ]
            best = min(like, key=lambda run: results[run.name]["seconds"])
            yield best, replace(best, bypass=True)


def kernels(values: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """Yield kernels and dense columns."""
    for width in values["barriers"]["column_panels"]:
        for kernel in values["barriers"]["kernels"]:
            yield kernel, int(width)
