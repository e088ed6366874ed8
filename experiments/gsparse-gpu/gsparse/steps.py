"""The steps of each stage; every one is short, and kept when it is done."""

import math
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from gsparse import sage
from gsparse.graphs import Graphs, held_out
from gsparse.peers import PEERS, installed
from tensorwise.data.record import Record
from tensorwise.data.store import Store
from tensorwise.device.cuda import CudaDevice
from tensorwise.device.cuda_worker import calls_for, sample
from tensorwise.errors import TensorwiseError
from tensorwise.model import MetricsModel
from tensorwise.program.launched import LaunchedKernel
from tensorwise.program.program import program_for
from tensorwise.program.workload import Workload, einsum_workload
from tensorwise.space.config import Config
from tensorwise.space.cuda import CudaSpace
from tensorwise.toolchain.gpu import Gpu, find_gpu
from tensorwise.tuning.gpu import promising, tune_gpu

STAGES = ("correctness", "records", "training", "tuning", "comparison", "graphsage")


class Steps:
    """What is to be done, by stage.

    Args:
        found: the graphs.
        values: ``values.toml``.
        folder: where records and models are kept.
    """

    def __init__(self, found: Graphs, values: Mapping[str, Any], folder: Path) -> None:
        self.graphs, self.folder = found, folder
        self.operations: Mapping[str, str] = values["operations"]
        self.features: Mapping[str, list[int]] = values["features"]
        self.settings: Mapping[str, Any] = values["settings"]
        self.widths: list[int] = values["graphsage"]["widths"]
        self._device: CudaDevice | None = None
        self._read = lru_cache(maxsize=1)(lambda name: self.graphs[name][1]())

    def planned(self, stage: str) -> list[str]:
        """Return the keys of a stage's steps: ``stage|graph|operation|features``."""
        if stage == "training":
            return [f"{stage}||{op}|" for op in self.operations]
        unseen = {name: held_out(name, self.settings["held_out"]) for name in self.graphs}
        if not any(unseen.values()) or all(unseen.values()):  # too few graphs for a hash: every other one
            unseen = {name: place % 2 == 1 for place, name in enumerate(self.graphs)}
        chosen = {
            "correctness": [
                n for n, (entries, _) in self.graphs.items() if entries <= self.settings["small"]
            ],
            "records": list(self.graphs),
        }.get(stage, [name for name in self.graphs if unseen[name]])
        if stage == "graphsage":
            return [f"{stage}|{name}||" for name in chosen]
        lengths = self.features["checked" if stage == "correctness" else "measured"]
        return [f"{stage}|{name}|{op}|{n}" for name in chosen for op in self.operations for n in lengths]

    def run(self, key: str) -> dict[str, Any]:
        """Do one step."""
        stage, name, op, length = key.split("|")
        if stage == "training":
            return self._train(op)
        if stage == "graphsage":
            return self._sage(name)
        work = einsum_workload(self.operations[op], {"A": self._read(name)}, {"j": int(length)})
        step = {"correctness": self._check, "records": self._record, "tuning": self._tune}.get(stage)
        return step(work, name, op) if step else self._compare(work, name, op)

    @property
    def device(self) -> CudaDevice:
        """The GPU, asked for when it is first needed."""
        self._device = self._device or CudaDevice(seed=self.settings["seed"])
        return self._device

    def close(self) -> None:
        """Let go of the GPU."""
        if self._device is not None:
            self._device.close()
        self._device = None

    def _drawn(self, work: Workload, count: int) -> tuple[CudaSpace, list[Config]]:
        """Return the space of a workload, and its default config with others that are drawn."""
        space, rng = self.device.space(work), np.random.default_rng(self.settings["seed"])
        return space, [space.default(work), *(space.sample(work, rng) for _ in range(count - 1))]

    def _check(self, work: Workload, name: str, op: str) -> dict[str, Any]:
        """Run drawn configs and count how they end."""
        space, configs = self._drawn(work, self.settings["correctness"])
        found = list(self.device.measure(work, configs))
        bad = {
            space.program(work, c).name: m.note
            for c, m in zip(configs, found)
            if m.status in ("wrong", "crash")
        }
        return {
            "statuses": {s: sum(m.status == s for m in found) for s in {m.status for m in found}},
            "failures": bad,
        }

    def _record(self, work: Workload, name: str, op: str) -> dict[str, Any]:
        """Measure drawn configs for the model to learn from."""
        space, configs = self._drawn(work, self.settings["records"])
        about = {**self.device.provenance, "pattern": name, "operation": op}
        with Store(self.folder / "records.sqlite") as store:
            found = list(self.device.measure(work, configs))
            store.append(
                [Record.of(m, work, self.device, space.name, c, about) for c, m in zip(configs, found)]
            )
        times = [m.seconds for m in found if m.ok]
        return {
            "ok": len(times),
            "of": len(found),
            "best_s": min(times, default=None),
            "default_s": _seconds(found[0]),
        }

    def _train(self, op: str) -> dict[str, Any]:
        """Train the model of an operation on the graphs that it may see; say how its predictions correlate elsewhere."""
        with Store(self.folder / "records.sqlite") as store:
            records = [r for r in store.query() if r.provenance.get("operation") == op]
        unseen = {key.split("|")[1] for key in self.planned("tuning")}
        seen = [r for r in records if r.provenance["pattern"] not in unseen]
        others = [r for r in records if r.provenance["pattern"] in unseen]
        entries = next(iter(self.graphs.values()))[1]()
        model = MetricsModel(
            self.device.space(einsum_workload(self.operations[op], {"A": entries}, {"j": 16}))
        )
        model.fit(seen)
        model.save(self.folder / f"model-{op.replace(' ', '-')}")
        return {
            "records": len(seen),
            "pearson_seen": _number(model.pearson(seen)),
            "pearson": _number(model.pearson(others)),
        }

    def _tune(self, work: Workload, name: str, op: str) -> dict[str, Any]:
        """Tune with the model and without, by genetic search, and by three of the best predicted; as many trials each."""
        trials, seed = self.settings["trials"], self.settings["seed"]
        model = MetricsModel.load(self.folder / f"model-{op.replace(' ', '-')}")
        rng, space = np.random.default_rng(seed), self.device.space(work)
        kept = promising(model, space, work, self.device, rng)
        few = [kept[place] for place in rng.permutation(len(kept))[:3]]
        three = min((m.seconds for m in self.device.measure(work, few) if m.ok), default=None)
        found: dict[str, Any] = {"three_s": three}
        for label, known in (("model", model), ("genetic", None)):
            result = tune_gpu(work, trials=trials, model=known, store=False, seed=seed, device=self.device)
            found[f"{label}_s"] = _number(result.seconds["tensorwise"])
            found[f"{label}_by_trial"] = [_seconds(trial.measurement) for trial in result.trials]
            if result.program is not None:
                found[f"{label}_format"] = result.program.format_text
                found[f"{label}_schedule"] = result.program.schedule_text
        return found

    def _compare(self, work: Workload, name: str, op: str) -> dict[str, Any]:
        """Time the tuned program, the default one and the peers in rounds of this process."""
        self.close()
        gpu, rng = find_gpu(), np.random.default_rng(self.settings["seed"])
        operands = work.operands(rng)
        out = np.empty(work.output_shape, work.output_dtype)
        calls = {}
        for label, (format, schedule) in self.programs(work, name, op).items():
            bound = LaunchedKernel(program_for(work, format, schedule), gpu).bind(work)
            calls[label] = bound.ready(operands, out)
            calls[label]()
            bound.fetch(out)
        made = {label: partial(PEERS[label], op, work, operands, gpu) for label in installed()}
        theirs, notes = _agreeing(made, out)
        return {"rounds": self._rounds(calls | theirs, gpu, rng), "notes": notes, "gpu": gpu.name}

    def _sage(self, name: str) -> dict[str, Any]:
        """Time a whole GraphSAGE with our tuned programs, with cuSPARSE and with torch, in rounds of this process."""
        self.close()
        gpu, rng = find_gpu(), np.random.default_rng(self.settings["seed"])
        graph = sage.averaging(self._read(name))
        given, weights = sage.drawn(graph.shape[0], self.widths, rng)
        wanted = sage.expected(graph, given, weights)
        features, *layers = (gpu.upload(array).reshape(array.shape) for array in (given, *weights))
        works = [
            einsum_workload(self.operations[sage.OPERATION], {"A": graph}, {"j": width})
            for width in self.widths[:-1]
        ]
        texts = [self.programs(work, name, sage.OPERATION) for work in works]
        made = {
            label: partial(sage.by_tensorwise, works, [one[label] for one in texts], features, layers, gpu)
            for label in texts[0]
        }
        theirs = {
            "cusparse (CuPy)": partial(sage.by_cusparse, graph, features, layers),
            "torch CSR": partial(sage.by_torch, graph, given, weights),
        }
        calls, notes = _agreeing(made | {label: theirs[label] for label in sage.peers()}, wanted)
        return {"rounds": self._rounds(calls, gpu, rng), "notes": notes, "gpu": gpu.name}

    def _rounds(self, calls: Mapping[str, Any], gpu: Gpu, rng: np.random.Generator) -> dict[str, list[float]]:
        """Return what calls took in interleaved rounds."""
        counts = {label: calls_for(float(np.median(gpu.seconds(call, 3)))) for label, call in calls.items()}
        rounds: dict[str, list[float]] = {label: [] for label in calls}
        for _ in range(self.settings["rounds"]):
            for place in rng.permutation(len(calls)).tolist():
                label = list(calls)[place]
                rounds[label].append(sample(gpu, calls[label], counts[label]))
        return rounds

    def programs(self, work: Workload, name: str, op: str) -> dict[str, tuple[str, str]]:
        """Return format and schedule of the tuned program, and of the default one."""
        from tensorwise.device.gpus import gpu_named
        from tensorwise.space.cuda import cuda_space

        space = cuda_space(work.assignment, "A", gpu_named(find_gpu().name))
        default = space.program(work, space.default(work))
        tuned = self.tuned.get(f"tuning|{name}|{op}|{work.sizes['j']}", {})
        label = min(("model", "genetic"), key=lambda kind: tuned.get(f"{kind}_s") or math.inf)
        if f"{label}_schedule" not in tuned:
            raise TensorwiseError(f"{name}, {op} was not tuned; run the stage tuning first")
        return {
            "tensorwise": (tuned[f"{label}_format"], tuned[f"{label}_schedule"]),
            "default": (default.format_text, default.schedule_text),
        }

    tuned: Mapping[str, Mapping[str, Any]] = {}
    """What the stage tuning found, by key; set by whoever compares."""


def _agreeing(
    made: Mapping[str, Callable[[], Any]], wanted: np.ndarray
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the calls that give what is wanted, and why others do not; where there is none, None is made."""
    calls, notes = dict[str, Any](), dict[str, str]()
    for label, make in made.items():
        try:
            call = make()
            if call is not None and (why := _differs(call(), wanted)):
                notes[label] = why
            elif call is not None:
                calls[label] = call
        except Exception as error:  # whatever one raises costs this one only
            notes[label] = f"{type(error).__name__}: {error}"[:300]
    return calls, notes


def _differs(theirs: Any, ours: np.ndarray) -> str | None:
    """Say how a peer's result differs from ours; None if it is the same up to rounding."""
    array = theirs.get() if hasattr(theirs, "get") else theirs.cpu().numpy()
    if array.size != ours.size:
        return f"its result has {array.shape}, ours {ours.shape}"
    gap = np.abs(array.reshape(ours.shape) - ours).max(initial=0.0)
    return (
        None
        if gap <= 1e-3 * max(1.0, float(np.abs(ours).max(initial=0.0)))
        else f"its result is off by {gap:.3g}"
    )


def _seconds(measurement: Any) -> float | None:
    return measurement.seconds if measurement.ok else None


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None
