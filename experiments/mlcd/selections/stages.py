"""What is left of a benchmark, or of the networks: measured for a while, and judged once all of it is there."""

import json
import time
from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from benchmarks.corpus import digests, machine, same_machine, write_json
from selections.gpu import links
from selections.judging import judged, repeated
from selections.measuring import known, measure, take_up, twice
from selections.networks import drawn, kernels_of_networks, swept
from selections.networks import measure as measure_kernels
from selections.placing import Measured
from selections.placing import judged as judged_networks
from selections.table import described_s, selection
from tensorwise.front.terminal import progress_bar
from tensorwise.model.cases import Cases
from tensorwise.model.choosing import TreeModel
from tensorwise.plan.graph import Link
from tensorwise.store.parquet import write_records
from tensorwise.store.store import Store

NETWORKS = 40
"""Networks on synthetic graphs, besides those of the data sets and of Figure 7."""


def benchmark(
    name: str,
    path: Path,
    values: Mapping[str, Any],
    *,
    full: bool,
    samples: int,
    budget_s: float,
    libraries: bool,
    judge: bool,
) -> str:
    """Measure inputs of a benchmark; when all are known, or with ``judge``, learn, judge, and write PATH.json and PATH.

    Args:
        name: of the benchmark.
        path: of records, model and result, without an ending.
        values: ``values.toml``.
        full: the paper's ranges.
        samples: inputs in all.
        budget_s: seconds for measuring now.
        libraries: with versions of libraries.
        judge: measure nothing, and judge what was exported.

    Returns:
        What was done, in words.
    """
    ranges, held = values["full" if full else "scaled"], path.with_suffix(".json")
    before = json.loads(held.read_text()) if held.exists() else {}
    took_s = before.get("described_s")
    if not judge:
        same_machine(held, before)
        end = time.monotonic() + budget_s
        met = measure(
            name, path, ranges, values["settings"], samples=samples, budget_s=budget_s, libraries=libraries
        )
        left_s = end - time.monotonic()
        if met < samples or left_s <= 0:
            return f"{name}: {met} of {samples} inputs are measured"
        again = measure(
            name, twice(path), ranges, values["settings"],
            samples=met, budget_s=left_s, libraries=libraries, of=path,
        )  # fmt: skip
        if again < met:
            return f"{name}: {again} of {met} inputs are measured at another time, too"
        if before.get("measured") == met == (before["again"] or {}).get("inputs"):
            return f"{name}: done"
        took_s = described_s(selection(name, ranges, libraries))
    times = known(path)
    cases = Cases.of(chain(*times))
    model = TreeModel()
    model.fit_cases(cases)
    model.save(path)
    about = {
        "benchmark": name, "full": full, "measured": len(cases), "described_s": took_s,
        "machine": before.get("machine", machine()) if judge else machine(), "inputs": _inputs(path),
        **judged(cases, values["settings"], values["initial"][name]),
        "again": repeated(*times) if times[1] else None,
    }  # fmt: skip
    write_json(held, about)
    return f"{name}: judged by {len(cases)} inputs"


def _inputs(path: Path) -> dict[str, str]:
    """Digests of the records that a judgement follows from."""
    return digests(
        one for one in (path.with_suffix(".parquet"), twice(path).with_suffix(".parquet")) if one.exists()
    )


def networks(path: Path, values: Mapping[str, Any], *, full: bool, budget_s: float, judge: bool) -> str:
    """Measure kernels of networks, place those networks that are known whole, and write PATH.json; see ``benchmark``.

    The tree is that of GEMM, which lies beside ``path``.
    """
    given, held = values["full" if full else "scaled"]["gnn"], path.with_suffix(".json")
    every = drawn(given, NETWORKS, values["settings"]["seed"])
    before = json.loads(held.read_text()) if held.exists() else {}
    if not judge:
        same_machine(held, before)
        kernels = [kernel for some in every.values() for kernel in some]
        end, count = time.monotonic() + budget_s, len({kernel.key for kernel in kernels})
        for where in (path, twice(path)):
            with Store(where.with_suffix(".sqlite")) as store, progress_bar(where.name) as progress:
                take_up(store, where.with_suffix(".parquet"))
                measure_kernels(kernels, budget_s=end - time.monotonic(), store=store, progress=progress)
                some = list(store.query(space=kernels_of_networks().space.name))
                write_records(where.with_suffix(".parquet"), some)
            if len({record.provenance["input"] for record in some}) < count or time.monotonic() > end:
                break
    tree = path.with_name(path.name.replace("gnn", "gemm"))
    if not (tree.is_dir() and path.with_suffix(".parquet").is_file()):
        return f"gnn: waits for {tree} and its own records"
    measured = Measured(chain(*known(path)), TreeModel.load(tree), values["gpu"])
    whole = {
        name: some for name, some in every.items() if all(kernel.key in measured.took for kernel in some)
    }
    if not whole:
        return "gnn: no network has all of its kernels measured yet"
    ways = (links() if measured.has_gpu else None) or [
        Link(*ends, **before.get("links", {}).get(ends[0], values["link"]))
        for ends in (("cpu", "gpu"), ("gpu", "cpu"))
    ]
    report = {
        "gnn": judged_networks(whole, measured, ways, swept(given)), "measured gpu": measured.has_gpu,
        "networks": len(whole), "of": len(every),
        "machine": before.get("machine", machine()) if judge else machine(), "inputs": _inputs(path),
        "links": {way.source: {"latency_s": way.latency_s, "bytes_per_s": way.bytes_per_s} for way in ways},
    }  # fmt: skip
    write_json(held, report)
    return f"gnn: {len(whole)} of {len(every)} networks are placed"
