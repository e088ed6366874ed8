"""The steps of the experiment: each trains one method on one split, and says how far off it is on what was held out."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

import numpy as np

from latencies import baselines
from latencies.baselines import Predict
from latencies.judging import errors, whole
from tensorwise.adapt.tasks import clustered_tasks, random_tasks
from tensorwise.model.latency import LatencyModel, fine_tuned, parts, train_latency
from tensorwise.model.latency_training import LatencyTraining
from tensorwise.model.program_net import shapes
from tensorwise.model.programs import Programs

CHOOSE: Final = {"kmeans": clustered_tasks, "random": random_tasks}
Found = Mapping[str, Any]


@final
@dataclass(frozen=True)
class Experiment:
    """What all steps share.

    Attributes:
        programs: all that is measured; values: ``values.toml``.
        folder: of checkpoints and models; ends: value of ``time.monotonic`` at which training stops, to go on later.
        networks: whole networks as they were measured, each what `tensorwise tasks measure --json` says of it.
    """

    programs: Programs
    values: Mapping[str, Any]
    folder: Path
    ends: float
    networks: Sequence[Mapping[str, Any]] = ()

    def steps(self) -> dict[str, Callable[[], Found | None]]:
        """Return all steps by name; one that returns None is not over, and goes on when it is called again."""
        values, found = self.values, dict[str, Callable[[], Found | None]]()
        found["data"] = self._data
        for name in ("mean", "roofline"):
            found[f"model|{name}"] = lambda name=name: self._fixed(name)  # type: ignore[misc]
        # TLP reads schedules alone, and nothing of their code.
        for name, read, code in (
            ("trees", baselines.flat, True),
            ("primitives", baselines.primitives, False),
        ):
            for k, settings in enumerate(values["boosted"]):
                found[f"model|{name}|{k}"] = lambda args=(read, code, settings): self._boosted(*args)  # type: ignore[misc]
        for name, variant in values["networks"].items():
            found[f"model|cdmpp|{name}"] = lambda name=name, variant=variant: self._network(name, variant)  # type: ignore[misc]
        found["model|lstm"] = self._lstm
        for name, variant in values["studies"].items():
            found[f"study|{name}"] = lambda name=name, variant=variant: self._network(
                f"study-{name}", variant
            )  # type: ignore[misc]
        for device in values["cross"]["devices"] or self.programs.devices:
            found[f"device|{device}|source"] = lambda device=device: self._source(device)  # type: ignore[misc]
            for way in ("scaled", "trees"):
                found[f"device|{device}|{way}"] = lambda device=device, way=way: self._other(device, way)  # type: ignore[misc]
            for seed in range(values["cross"]["seeds"]):
                for moments in (True, False):
                    for count in values["cross"]["tasks"] if moments else values["cross"]["tasks"][-1:]:
                        for choose in CHOOSE:
                            name = f"device|{device}|{choose}|{count}|{'cmd' if moments else 'plain'}|{seed}"
                            found[name] = lambda args=(device, choose, count, moments, seed): self._tuned(
                                *args
                            )  # type: ignore[misc]
        return found

    # -- across networks ------------------------------------------------------------------------------

    def _split(self) -> tuple[Programs, Programs, Programs, Programs]:
        """Training, what chooses, what calibrates, and what is held out."""
        known, held = self.programs.without(self.values["held_out"])
        return (*parts(known, self.values["validation"], self.values["seed"]), held)

    def _data(self) -> Found:
        programs = self.programs
        training, _, _, held = self._split()
        return {
            "programs": len(programs), "tasks": len(programs.tasks), "noise": _plain(programs.noise),
            "training": len(training), "held out": len(held), "held-out tasks": len(held.tasks),
            "devices": {device: len(programs.on([device])) for device in programs.devices},
            "ranks": {
                one: {other: _plain(programs.ranks_apart(one, other)) for other in programs.devices if other != one}
                for one in programs.devices
            },
        }  # fmt: skip

    def _judged(self, predict: Predict, **more: Any) -> Found:
        _, chosen, _, held = self._split()
        predicted = predict(held)
        return {
            "validation": float(np.abs(predict(chosen) / chosen.seconds - 1).mean()) if len(chosen) else None,
            **errors(held, predicted, self.values["held_out"], self.values["seed"]),
            "whole": whole(self.networks, held, predicted), **more,
        }  # fmt: skip

    def _fixed(self, name: str) -> Found:
        return self._judged(getattr(baselines, name)(self._split()[0]))

    def _boosted(
        self, read: Callable[[Programs], np.ndarray], code: bool, settings: Mapping[str, Any]
    ) -> Found:
        def seen(programs: Programs) -> Programs:
            return programs if code else programs.uncompiled()

        predict = baselines.boosted(read, seen(self._split()[0]), settings, self.values["seed"])
        return self._judged(lambda programs: predict(seen(programs)))

    def _training(self, variant: Mapping[str, Any]) -> LatencyTraining:
        return LatencyTraining(
            **{**self.values["training"], **variant.get("training", {})}, seed=self.values["seed"]
        )

    def _trained(self, name: str, programs: Programs, variant: Mapping[str, Any]) -> LatencyModel | None:
        """A model from its folder, or trained now; None when the time is over."""
        folder = self.folder / name
        if (folder / "latency.json").exists():
            return LatencyModel.load(folder)
        model = train_latency(
            programs, self._training(variant), sizes={**self.values["sizes"], **variant.get("sizes", {})},
            labels=variant.get("labels", "box-cox"), members=variant.get("members", self.values["members"]),
            validation=self.values["validation"], checkpoints=folder / "checkpoints",
            budget_s=self.ends - time.monotonic(),
        )  # fmt: skip
        if model is not None:
            model.save(folder)
        return model

    def _network(self, name: str, variant: Mapping[str, Any]) -> Found | None:
        known, held = self.programs.without(self.values["held_out"])
        if not variant.get("code", True):
            known = known.uncompiled()  # a model that has learned from no code looks at none
        if (model := self._trained(name, known, variant)) is None:
            return None
        weights = sum(int(np.prod(size)) for size in shapes(model.shape).values())
        found = model.latencies([row.ast for row in held], [row.hardware for row in held])
        return self._judged(
            predictor(model), weights=weights, programs_per_s=model.card["programs"] / model.card["epoch_s"],
            **found.covering(held.seconds),
        )  # fmt: skip

    def _lstm(self) -> Found:
        from latencies.lstm import train

        training, chosen, _, _ = self._split()
        minutes = self.values["lstm"]["minutes"]
        predict, about = train(
            training,
            chosen,
            self._training({}),
            self.values["lstm"]["width"],
            time.monotonic() + 60 * minutes,
        )
        return self._judged(predict, **about)

    # -- across devices -------------------------------------------------------------------------------

    def _across(self, device: str) -> tuple[Programs, Programs, Programs]:
        """Programs on the other devices, and of the target's what may be measured, and what is judged."""
        target = self.programs.on([device])
        source = self.programs.where([row.device != device for row in self.programs])
        offered, kept = target.divided(
            self.values["cross"]["judged"], np.random.default_rng(self.values["seed"])
        )
        return source, offered, kept

    def _source(self, device: str) -> Found | None:
        source, _, kept = self._across(device)
        unseen = source.where([row.task not in set(kept.tasks) for row in source])
        if (model := self._trained(f"source-{device}", unseen, {})) is None:
            return None
        return errors(kept, predictor(model)(kept), (), self.values["seed"])

    def _other(self, device: str, way: str) -> Found:
        """Habitat's scaling has seen the same programs on the other devices, as in the paper; trees have what we have."""
        source, offered, kept = self._across(device)
        if way == "scaled":
            return errors(kept, baselines.scaled(source)(kept), (), self.values["seed"])
        rng = np.random.default_rng(self.values["seed"])
        tasks = set(clustered_tasks(offered, self._few(offered, self.values["cross"]["tasks"][-1]), rng))
        unseen = source.where([row.task not in set(kept.tasks) for row in source])
        measured = offered.where([row.task in tasks for row in offered])
        both = Programs(unseen.rows + measured.rows * max(1, len(unseen) // (4 * len(measured))))
        predict = baselines.boosted(baselines.flat, both, self.values["boosted"][0], self.values["seed"])
        return errors(kept, predict(kept), (), self.values["seed"])

    def _few(self, offered: Programs, count: int) -> int:
        return min(count, len(offered.tasks))

    def _tuned(self, device: str, choose: str, count: int, moments: bool, seed: int) -> Found | None:
        source, offered, kept = self._across(device)
        unseen = source.where([row.task not in set(kept.tasks) for row in source])
        if (model := self._trained(f"source-{device}", unseen, {})) is None:
            return None
        tasks = set(CHOOSE[choose](offered, self._few(offered, count), np.random.default_rng(seed)))
        measured = offered.where([row.task in tasks for row in offered])
        own = {**self.values["cross"]["training"], **({} if moments else {"moments": 0.0})}
        settings = LatencyTraining(**{**self.values["training"], **own}, seed=seed)
        tuned = fine_tuned(model, unseen, measured, kept, settings)
        found = tuned.latencies([row.ast for row in kept], [row.hardware for row in kept])
        return {
            **errors(kept, found.seconds, (), self.values["seed"]), "measured": len(measured),
            **found.covering(kept.seconds),
        }  # fmt: skip


def predictor(model: LatencyModel) -> Predict:
    """Return the model as a function of programs."""
    return lambda programs: (
        model.latencies([row.ast for row in programs], [row.hardware for row in programs]).seconds
    )


def _plain(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
