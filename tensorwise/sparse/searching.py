"""The child process of a search: names packed kernels that are faster than a product in place.

``python -m tensorwise.sparse.searching FOLDER`` reads ``request.json`` and three arrays in FOLDER. It writes a line when it
would end with its parent, and answers with a line of JSON. What the store knows of the workload is named without measuring.
Otherwise the tuner searches within a small budget of CPU time, the best meet the product in place in rounds, and all
measurements go to the store.
"""

import contextlib
import json
import os
import re
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, final

from tensorwise.device.cpu import CpuDevice
from tensorwise.errors import StoreError, TensorwiseError
from tensorwise.lower.program import Program, program_for
from tensorwise.program.workload import Workload
from tensorwise.space.config import Config
from tensorwise.space.cpu import CpuSpace, cpu_space_of
from tensorwise.space.hybrids import HYBRID_PARAM
from tensorwise.sparse.budget import budget_s, needed_s
from tensorwise.sparse.children import process_seconds, serve_parent, take_lowest_priority
from tensorwise.sparse.forked import start_worker
from tensorwise.sparse.given import GivenArrays, read_request
from tensorwise.sparse.kernels import gather_for, scatter_for, schedule_of
from tensorwise.sparse.outcomes import BETTER, Known, known_outcome, outcome_facts, record_of
from tensorwise.sparse.packed import ROUTINES, masked_texts
from tensorwise.store.record import MEASURED_BY, Record
from tensorwise.store.store import Store
from tensorwise.system import cpu_seconds
from tensorwise.toolchain.cache import default_cache
from tensorwise.toolchain.deadline import within
from tensorwise.toolchain.routines import load_all
from tensorwise.tuning.limits import Guidance, TuningLimits
from tensorwise.tuning.searching import Search
from tensorwise.units import SHORTEST_S

MOST_NAMED: Final = 3
"""Most products named: each is packed, and tried on the user's calls."""
WALL: Final = 30.0
"""Wall seconds that a search may take for each CPU second of its budget: other programs come first."""
LEAST_ROUNDS_S: Final = 0.15
"""Least seconds of the rounds that decide."""


def main() -> None:
    """Search, answer, and remove the folder; nothing is answered where the parent is gone."""
    take_lowest_priority()
    folder = Path(sys.argv[1])
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever is printed must not get between answers
    try:
        search = _ChildSearch(folder)
        serve_parent()  # a thread: the worker is forked by now
        answers.write("serving\n")
        answer = search.run()
        answers.write(json.dumps({**answer, "cpu_s": cpu_seconds()}) + "\n")
        answers.close()
    except KeyboardInterrupt:
        pass
    except (TensorwiseError, MemoryError, OSError, ValueError) as error:
        with contextlib.suppress(OSError):
            answers.write(json.dumps({"found": [], "note": f"{type(error).__name__}: {error}"}) + "\n")
            answers.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)  # the parent may be gone


@final
class _ChildSearch:
    """One search, from the request to the answer."""

    def __init__(self, folder: Path) -> None:
        self.given, told = read_request(folder)
        self.threads, spent_s, call_s = (
            int(told["threads"]),
            float(told["spent_s"]),
            float(told["baseline_s"]),
        )
        needed = needed_s(len(self.given.data), call_s, self.threads)
        self.budget_s = budget_s(spent_s, needed)
        self.calls = max(1.0, spent_s / max(call_s, SHORTEST_S))
        """Calls so far; as many again are expected."""
        self.notes: list[str] = []
        self.worker = start_worker(self.threads) if self.budget_s >= needed else None
        self.work = self.given.workload
        self.space = without_hybrids(cpu_space_of(self.work))

    def run(self) -> dict[str, Any]:
        """Return the answer: ``found`` (the fastest first) and ``note``."""
        load_all(*ROUTINES)
        with contextlib.ExitStack() as opened:
            device = opened.enter_context(CpuDevice(self.threads))
            device.take_worker(self.worker)
            device.provenance = {**device.provenance, MEASURED_BY: "background"}
            store: Store | None = None
            try:
                store = opened.enter_context(Store())
            except StoreError as error:
                self.notes.append(f"nothing is remembered: {error}")
            known = None
            if store is not None:
                records = store.query(self.work.id, device.id, self.space.name)
                known = known_outcome(records, self.work, self.space, self.budget_s)
            if known is None:
                known = [] if self.worker is None else self._searched(device, store)
            found = [
                self._describe(one, device)
                for one in known[:MOST_NAMED]
                if self._is_compiled(one.program, device)
            ]
        return {"found": found, "note": "; ".join(self.notes)}

    def _describe(self, known: Known, device: CpuDevice) -> dict[str, Any]:
        """What the parent needs of a product."""
        return {
            "formats": known.program.format_texts,
            "schedule": known.program.schedule_text,
            "ratio": known.ratio,
            "facts": outcome_facts(self.work, device, device.space(self.work), known.config, self.budget_s),
        }

    def _is_compiled(self, program: Program, device: CpuDevice) -> bool:
        """Compile what the parent may need of a program, its masked form included; whether that worked."""
        if device.compile(self.work, [program]):
            return False
        return None not in default_cache().get(masked_texts(program, self.work), on_error="none")

    def _searched(self, device: CpuDevice, store: Store | None) -> list[Known]:
        """Search, and compare the fastest with the product in place."""

        def clock() -> float:
            return cpu_seconds() + sum(map(process_seconds, device.workers))

        limits = TuningLimits(self.budget_s, None, self.calls, clock(), clock)
        with within(WALL * self.budget_s):
            guidance = Guidance(store=store or False)
            search = Search(self.work, device, limits, guidance, space=self.space)
            search.run(libraries=False)
            self.notes += search.notes
            if search.interrupted:
                raise KeyboardInterrupt
            if search.worker_lost:
                return []
            return self._compared(search, device, store)

    def _compared(self, search: Search, device: CpuDevice, store: Store | None) -> list[Known]:
        """Time the fastest candidates and the product in place in turn; remember and return those that are faster."""
        in_place = in_place_program(self.given, self.work, self.threads)
        tried = [one for one in search.trials if one.measurement.ok]
        ranked = sorted(tried, key=lambda trial: search.cost(trial.measurement))
        same = [trial for trial in ranked if trial.program == in_place]
        if same and ranked == same:
            self._remember(store, [self._record(device, same[0].config, same[0].measurement.seconds, 1.0)])
        ranked = [trial for trial in ranked if trial not in same][:MOST_NAMED]
        if not ranked:
            return []
        candidates = {str(place): trial.program for place, trial in enumerate(ranked)}
        left_s = max(LEAST_ROUNDS_S, search.limits.left_s / self.threads)
        rounds = device.rounds(
            self.work, {"in place": in_place, **candidates}, budget_s=left_s, max_rounds=15
        )
        table = rounds.table
        if table is None or "in place" in rounds.failed or "in place" not in table.names:
            self.notes.append("the product in place could not be timed")
            return []
        found, records = [], []
        for place, trial in enumerate(ranked):
            name = str(place)
            if name not in table.names or name in rounds.failed:
                continue
            ratio = table.ratio(name, "in place").median
            found.append(Known(trial.config, trial.program, ratio))
            records.append(self._record(device, trial.config, table.median(name), ratio, table.spread(name)))
        self._remember(store, records)
        return sorted((one for one in found if one.ratio < BETTER), key=lambda one: one.ratio)

    def _record(
        self,
        device: CpuDevice,
        config: Config,
        seconds: float,
        ratio: float,
        spread_s: float = 0.0,
    ) -> Record:
        facts = outcome_facts(self.work, device, self.space, config, self.budget_s)
        return record_of(facts, "background", seconds, seconds / ratio, spread_s)

    def _remember(self, store: Store | None, records: Sequence[Record]) -> None:
        if store is not None:
            try:
                store.append(records)
            except StoreError as error:
                self.notes.append(f"nothing is remembered: {error}")


def without_hybrids(space: CpuSpace) -> CpuSpace:
    """Return a space without hybrids, whose calls take two kernels; to find those that apply takes long, too."""
    params = (
        replace(param, narrow=lambda earlier, workload: ("none",)) if param.name == HYBRID_PARAM else param
        for param in space.params
    )
    return replace(space, params=tuple(params))


def in_place_program(given: GivenArrays, work: Workload, threads: int) -> Program:
    """Return the program of the product in place: of its format, with the schedule of the library's kernel."""
    lines = len(given.indptr) - 1
    if given.is_gather:
        shape = gather_for(given.columns, len(given.indices) / max(1, lines))
        return program_for(work, "(i,k) -> U(i) C(k)", schedule_of(shape, work.elem)[2])
    schedule = schedule_of(scatter_for(given.columns, threads > 1), work.elem)[2]
    swapped = re.sub(r"\b[ik]\b", lambda name: "i" if name[0] == "k" else "k", schedule)
    return program_for(work, "(i,k) -> U(k) C(i)", swapped)


if __name__ == "__main__":
    main()
