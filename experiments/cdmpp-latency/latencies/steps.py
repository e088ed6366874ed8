"""The steps of the experiment: each trains one method on one split, and says how far off it is on what was held out."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

import numpy as np

from latencies import baselines
from latencies.baselines import Predict
from latencies.judging import dotted, errors, whole
from tensorwise.adapt.cross_device import CrossDeviceCorrection
from tensorwise.adapt.tasks import clustered_tasks, random_tasks
from tensorwise.model.latency import LatencyModel, fine_tuned, parts, train_latency
from tensorwise.model.latency_training import LatencyTraining
from tensorwise.model.program_net import shapes
from tensorwise.model.programs import Programs
from tensorwise.tasks.cpu import machine_of

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
        cross = values["cross"]
        for machine in cross["machines"] or sorted({machine_of(device) for device in self.programs.devices}):
            for way in ("scaled", "trees"):
                found[f"device|{machine}|{way}"] = lambda args=(machine, way): self._other(*args)  # type: ignore[misc]
            for way in ("source", "unknown"):
                found[f"device|{machine}|{way}"] = lambda args=(machine, way): self._source(*args)  # type: ignore[misc]
            last = cross["tasks"][-1]
            ways = [(choose, count, "alone") for count in cross["tasks"] for choose in CHOOSE]
            ways += [("kmeans", last, "cmd"), ("kmeans", last, "plain"), ("unknown", last, "alone")]
            for seed in range(cross["seeds"]):
                for choose, count, kind in ways:
                    name = f"device|{machine}|{choose}|{count}|{kind}|{seed}"
                    found[name] = lambda args=(machine, choose, count, kind, seed): self._tuned(*args)  # type: ignore[misc]
        return found

    # -- across networks ------------------------------------------------------------------------------

    def _split(self) -> tuple[Programs, Programs, Programs, Programs]:
        """What a first network learns from, what chooses, what calibrates, and what is held out."""
        known, held = self.programs.without(self.values["held_out"])[0], self._held()
        return (*parts(known, self.values["validation"], self.values["seed"]), held)

    def _held(self) -> Programs:
        """The programs that figures are of; of other networks of their families nothing is learned, either."""
        return self.programs.without(self.values["judged"])[1]

    def _data(self) -> Found:
        programs = self.programs
        training, _, _, held = self._split()
        return {
            "programs": len(programs), "tasks": len(programs.tasks), "noise": _plain(programs.noise),
            "training": len(training), "held out": len(held), "held-out tasks": len(held.tasks),
            "devices": {device: len(programs.on([device])) for device in programs.devices},
            "ranks": self._ranks(within_tasks=False), "ranks within tasks": self._ranks(within_tasks=True),
        }  # fmt: skip

    def _ranks(self, *, within_tasks: bool) -> dict[str, dict[str, float | None]]:
        """How alike two devices rank programs, for each two of them."""
        programs = self.programs
        return {
            one: {
                other: _plain(programs.ranks_apart(one, other, within_tasks=within_tasks))
                for other in programs.devices
                if other != one
            }
            for one in programs.devices
        }

    def _judged(self, predict: Predict, **more: Any) -> Found:
        """How far off it is on what is held out, and, unless ``more`` says so, on what chooses."""
        _, chosen, _, held = self._split()
        predicted = predict(held)
        if "validation" not in more:
            off = np.abs(predict(chosen) / chosen.seconds - 1)
            more["validation"] = float(off.mean()) if len(chosen) else None
        return {
            **errors(held, predicted, self.values["judged"], self.values["seed"]),
            "dots": dotted(held, predicted, self.values["seed"]), "whole": whole(self.networks, held, predicted), **more,
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
        known, held = self.programs.without(self.values["held_out"])[0], self._held()
        if not variant.get("code", True):
            known = known.uncompiled()  # a model that has learned from no code looks at none
        if (model := self._trained(name, known, variant)) is None:
            return None
        weights = sum(int(np.prod(size)) for size in shapes(model.shape).values())
        found = model.of(held)
        return self._judged(
            predictor(model), weights=weights, programs_per_s=model.card["programs_per_s"],
            validation=model.card["validation"], **found.covering(held.seconds),
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

    def _across(self, machine: str, *, unknown: bool = False) -> tuple[Programs, Programs, Programs]:
        """Programs on other machines, those of the target that may be measured, and those that are judged.

        The latter are of the networks that are held out, none of which is measured on the target. As in the paper they are
        known from other machines, or ``unknown`` there, too.
        """
        inside = [machine_of(row.device) == machine for row in self.programs]
        source = self.programs.where([not one for one in inside])
        there = self.programs.where(inside)
        offered, judged = there.without(self.values["held_out"])[0], there.without(self.values["judged"])[1]
        if unknown:
            tasks = set(judged.tasks)
            source = source.where([row.task not in tasks for row in source])
        return source, offered, judged

    def _judged_on(self, judged: Programs, predicted: np.ndarray, **more: Any) -> Found:
        found = errors(judged, predicted, (), self.values["seed"])
        return {**found, "whole": whole(self.networks, judged, predicted), **more}

    def _source_model(self, machine: str, source: Programs, *, unknown: bool) -> LatencyModel | None:
        cross = self.values["cross"]
        variant = {"members": cross["members"], "sizes": cross["sizes"]}
        return self._trained(f"source-{machine}{'-unknown' if unknown else ''}", source, variant)

    def _source(self, machine: str, way: str) -> Found | None:
        """What is said of a machine of which nothing was measured."""
        unknown = way == "unknown"
        source, _, judged = self._across(machine, unknown=unknown)
        if (model := self._source_model(machine, source, unknown=unknown)) is None:
            return None
        return self._judged_on(judged, predictor(model)(judged))

    def _other(self, machine: str, way: str) -> Found:
        source, offered, judged = self._across(machine)
        if way == "scaled":
            return self._judged_on(judged, baselines.scaled(source)(judged))
        measured = self._measured(offered, "kmeans", self.values["cross"]["tasks"][-1], self.values["seed"])
        both = Programs(source.rows + measured.rows * max(1, len(source) // (4 * len(measured))))
        predict = baselines.boosted(baselines.flat, both, self.values["boosted"][0], self.values["seed"])
        return self._judged_on(judged, predict(judged))

    def _measured(self, offered: Programs, choose: str, count: int, seed: int) -> Programs:
        """The programs of some tasks."""
        few = min(count, len(offered.tasks))
        tasks = set(CHOOSE[choose](offered.by_task, few, np.random.default_rng(seed)))
        return offered.where([row.task in tasks for row in offered])

    def _tuned(self, machine: str, choose: str, count: int, kind: str, seed: int) -> Found | None:
        """What is said after some tasks were measured.

        Args:
            kind: ``alone``: nothing else is learned from; ``plain``: what other machines took is seen again, and ``cmd``:
                embeddings are drawn towards each other, too, as in the paper.
        """
        unknown = choose == "unknown"
        source, offered, judged = self._across(machine, unknown=unknown)
        if (model := self._source_model(machine, source, unknown=unknown)) is None:
            return None
        measured = self._measured(offered, "kmeans" if unknown else choose, count, seed)
        own = {**self.values["cross"]["training"], **({} if kind == "cmd" else {"moments": 0.0})}
        settings = LatencyTraining(**{**self.values["training"], **own}, seed=seed)
        seen, foreign = (Programs(()), None) if kind == "alone" else (source, judged)
        tuned = fine_tuned(model, seen, measured, foreign, settings)
        found = tuned.model.of(judged)
        beside: dict[str, Any] = {}
        last = not unknown and count == self.values["cross"]["tasks"][-1]
        # A GPU's programs run nowhere else.
        if last and {row.key for row in measured} & {row.key for row in source}:
            known = CrossDeviceCorrection.fitted(tuned, model, source, measured)
            said = known.latencies(judged)
            beside["elsewhere"] = self._judged_on(
                judged, said.seconds, share=known.share, **said.covering(judged.seconds)
            )
        return self._judged_on(
            judged, found.seconds, measured=len(measured), **found.covering(judged.seconds), **beside
        )


def predictor(model: LatencyModel) -> Predict:
    """Return the model as a function of programs."""
    return lambda programs: model.of(programs).seconds


def _plain(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
