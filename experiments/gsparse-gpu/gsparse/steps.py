"""The steps of each stage; every one is short, and kept when it is done."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from paper_models.analytic import MetricsModel

from benchmarks.splits import splits
from gsparse import sage
from gsparse.graphs import Graphs
from gsparse.peers import PEERS, installed
from tensorwise.device.cuda import CudaDevice
from tensorwise.device.cuda_worker import calls_for, repeated, sample, several
from tensorwise.device.device import Measurement
from tensorwise.lower.program import program_for
from tensorwise.program.workload import Workload, einsum_workload
from tensorwise.runtime.launched import LaunchedKernel
from tensorwise.space.config import Config
from tensorwise.space.cuda import CudaSpace
from tensorwise.store.record import Record
from tensorwise.store.store import Store
from tensorwise.toolchain.cubin import Resources
from tensorwise.toolchain.gpu import Gpu, find_gpu
from tensorwise.tuning.advice import NUM_TRIED, Advisor
from tensorwise.tuning.limits import Guidance, TuningLimits
from tensorwise.tuning.tune import tune_workload

STAGES = ("correctness", "records", "training", "subspace", "tuning", "comparison", "graphsage")

CAPTURED = ("tensorwise", "default", "cuSPARSE")
"""Single operations that are timed without what Python takes for a call; others use streams and memory of their own."""


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
        self._read = lru_cache(maxsize=1)(lambda name: self.graphs[name].read())

    def planned(self, stage: str) -> list[str]:
        """Return the keys of a stage's steps: ``stage|graph|operation|features``."""
        if stage == "training":
            return [f"{stage}||{op}|" for op in self.operations]
        learned, unseen = self._divided()
        main = self.settings["main"]
        if stage == "graphsage":
            return [f"{stage}|{name}||" for name in unseen]
        if stage == "correctness":
            few = [name for name, graph in self.graphs.items() if graph.entries <= self.settings["small"]]
            return _keys(stage, few, self.operations, self.features["checked"])
        if stage == "records":
            others, tuned = [op for op in self.operations if op not in main], self.features["tuned"]
            return sorted(
                _keys(stage, learned, main, self.features["measured"]) + _keys(stage, learned, others, tuned),
                key=lambda key: learned.index(key.split("|")[1]),
            )
        if stage == "comparison":  # those that are tuned wait for it
            keys = _keys(stage, self.graphs, main, self.features["tuned"])
            waiting = {
                key.replace("tuning", stage, 1) for key in self.planned("tuning") if key not in self.tuned
            }
            return [key for key in keys if key not in waiting]
        return _keys(stage, unseen, main, self.features["tuned"])

    def _divided(self) -> tuple[list[str], list[str]]:
        """Return the graphs that are measured for the model, and those of them that it does not see."""
        names = list(self.graphs)
        places = np.linspace(0, len(names) - 1, min(len(names), self.settings["learned"]))
        learned = [names[int(place)] for place in places.round()]
        unseen = [name for name in learned if self.graphs[name].family in splits().patterns["test"]]
        if not unseen:  # graphs that are drawn are of no family: every other one
            unseen = learned[1::2]
        return learned, unseen

    def run(self, key: str) -> dict[str, Any]:
        """Do one step."""
        stage, name, op, length = key.split("|")
        if stage == "training":
            return self._train(op)
        if stage == "graphsage":
            return self._sage(name)
        work = einsum_workload(self.operations[op], {"A": self._read(name)}, {"j": int(length)})
        step = {
            "correctness": self._check,
            "records": self._record,
            "subspace": self._exhaust,
            "tuning": self._tune,
        }.get(stage)
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
        found = self._measured(work, name, op, space, configs)
        times = [m.seconds for m in found if m.ok]
        return {
            "ok": len(times),
            "of": len(found),
            "best_s": min(times, default=None),
            "default_s": _seconds(found[0]),
        }

    def _exhaust(self, work: Workload, name: str, op: str) -> dict[str, Any]:
        """Measure all configs of a drawn subspace; say what a model would have found there with the trials of a tuning."""
        space, configs = self._drawn(work, self.settings["subspace"])
        found = self._measured(work, name, op, space, configs)
        seconds = np.array([m.seconds if m.ok else math.inf for m in found])
        taken = [Resources(m.registers, m.frame_bytes) if m.registers else None for m in found]
        predicted = self._model(op).predict(work, configs, self.device, taken)
        trials = self.settings["trials"]
        first = np.argsort(predicted, kind="stable")[:trials]
        rng = np.random.default_rng(self.settings["seed"])
        drawn = [seconds[rng.permutation(len(seconds))[:trials]].min() for _ in range(1000)]
        return {
            "best_s": _number(float(seconds.min())),
            "model_s": _number(float(seconds[first].min())),
            "first_s": _number(float(seconds[first[0]])),
            "random_s": _number(float(np.mean(drawn))),
            "default_s": _seconds(found[0]),
            "of": len(found),
        }

    def _measured(
        self, work: Workload, name: str, op: str, space: CudaSpace, configs: Sequence[Config]
    ) -> list[Measurement]:
        """Measure configs, and remember them."""
        about = {**self.device.provenance, "pattern": name, "operation": op}
        with Store(self.folder / "records.sqlite") as store:
            found = list(self.device.measure(work, configs))
            store.append(
                [Record.of(m, work, self.device, space.name, c, about) for c, m in zip(configs, found)]
            )
        return found

    def _train(self, op: str) -> dict[str, Any]:
        """Train the model of an operation on the graphs that it may see; say how its predictions correlate elsewhere."""
        with Store(self.folder / "records.sqlite") as store:
            records = [r for r in store.query() if r.provenance.get("operation") == op]
        _, unseen = self._divided()
        seen = [r for r in records if r.provenance["pattern"] not in unseen]
        others = [r for r in records if r.provenance["pattern"] in unseen]
        entries = next(iter(self.graphs.values())).read()
        model = MetricsModel(
            self.device.space(einsum_workload(self.operations[op], {"A": entries}, {"j": 16}))
        )
        model.fit(seen)
        model.save(self._model_folder(op))
        return {
            "records": len(seen),
            "pearson_seen": _number(model.pearson(seen)),
            "pearson": _number(model.pearson(others)),
        }

    def _model(self, op: str) -> MetricsModel:
        return MetricsModel.load(self._model_folder(op))

    def _model_folder(self, op: str) -> Path:
        return self.folder / f"model-{op.replace(' ', '-')}"

    def _tune(self, work: Workload, name: str, op: str) -> dict[str, Any]:
        """Tune with the model and without, by genetic search, and by three of the best predicted; as many trials each."""
        trials, seed = self.settings["trials"], self.settings["seed"]
        model = self._model(op)
        rng, space = np.random.default_rng(seed), self.device.space(work)
        kept = Advisor(model).top_configs(work, space, self.device, NUM_TRIED, rng)
        few = [kept[place] for place in rng.permutation(len(kept))[:3]]
        three = min((m.seconds for m in self.device.measure(work, few) if m.ok), default=None)
        found: dict[str, Any] = {"three_s": three}
        for label, known in (("model", model), ("genetic", None)):
            guidance = Guidance(model=known and Advisor(known), store=False, seed=seed)
            result = tune_workload(work, self.device, TuningLimits(math.inf, trials), guidance).result
            assert result is not None
            best = result.best_generated
            found[f"{label}_s"] = _number(best.seconds if best else math.inf)
            found[f"{label}_by_trial"] = [_seconds(trial.measurement) for trial in result.trials]
            if best is not None:
                found[f"{label}_format"], found[f"{label}_schedule"] = best.format, best.schedule
        return found

    def _compare(self, work: Workload, name: str, op: str) -> dict[str, Any]:
        """Time the default program, the tuned one if there is one, and the peers in rounds of this process."""
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
            if all(label in one for one in texts)
        }
        theirs = {
            "cusparse (CuPy)": partial(sage.by_cusparse, graph, features, layers),
            "torch CSR": partial(sage.by_torch, graph, given, weights),
        }
        calls, notes = _agreeing(made | {label: theirs[label] for label in sage.peers()}, wanted)
        return {"rounds": self._rounds(calls, gpu, rng, ()), "notes": notes, "gpu": gpu.name}

    def _rounds(
        self, calls: Mapping[str, Any], gpu: Gpu, rng: np.random.Generator, captured: Sequence[str] = CAPTURED
    ) -> dict[str, list[float]]:
        """Return what calls took in interleaved rounds."""
        counts = {label: calls_for(float(np.median(gpu.seconds(call, 3)))) for label, call in calls.items()}
        rounds: dict[str, list[float]] = {label: [] for label in calls}
        sampled = {
            label: several(gpu, call, counts[label]) if label in captured else repeated(call, counts[label])
            for label, call in calls.items()
        }
        for _ in range(self.settings["rounds"]):
            for place in rng.permutation(len(calls)).tolist():
                label = list(calls)[place]
                rounds[label].append(sample(gpu, sampled[label], counts[label]))
        return rounds

    def programs(self, work: Workload, name: str, op: str) -> dict[str, tuple[str, str]]:
        """Return format and schedule of the default program, and of the tuned one where there is one."""
        from tensorwise.device.gpus import gpu_named
        from tensorwise.space.cuda import cuda_space

        space = cuda_space(work.assignment, "A", gpu_named(find_gpu().name))
        default = space.program(work, space.default(work))
        tuned = self.tuned.get(f"tuning|{name}|{op}|{work.sizes['j']}", {})
        found = {"default": (default.format_text, default.schedule_text)}
        label = min(("model", "genetic"), key=lambda kind: tuned.get(f"{kind}_s") or math.inf)
        if f"{label}_schedule" in tuned:
            found["tensorwise"] = (tuned[f"{label}_format"], tuned[f"{label}_schedule"])
        return found

    tuned: Mapping[str, Mapping[str, Any]] = {}
    """What the stage tuning found, by key; set by whoever compares."""


def _keys(stage: str, names: Iterable[str], operations: Iterable[str], lengths: Sequence[int]) -> list[str]:
    return [f"{stage}|{name}|{op}|{length}" for name in names for op in operations for length in lengths]


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
