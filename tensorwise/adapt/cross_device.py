"""Predict run times on a device, corrected by run times of the same programs on others (CDMPP, section 2.2: CDPP)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self, final

import numpy as np

from tensorwise.device.hardware import Hardware
from tensorwise.errors import InputError
from tensorwise.model.latency import LEAST, FineTuned, Latencies, LatencyModel, covered
from tensorwise.model.programs import ProgramKey, Programs
from tensorwise.moved import forward_names

SHARES: Final = np.linspace(0, 1, 21)


@final
@dataclass(frozen=True, eq=False)
class CrossDeviceCorrection:
    """A latency model of a device that is corrected by measurements on other devices.

    A model's error for a program correlates across devices. The mean log error on the devices most similar to the target,
    times ``share``, therefore corrects the prediction for the target. Some measured programs of the target give the
    similarity of devices.

    Attributes:
        model: of the target.
        off: for each program (`Measured.key`) the devices where it was measured, and the log error of the model of
            these devices there.
        share: the fraction of such an error that is expected on the target, 0 to 1.
        times: factor of the logarithms of intervals' ends, for programs that were measured on other devices.
    """

    model: LatencyModel
    off: Mapping[ProgramKey, tuple[tuple[Hardware, float], ...]]
    share: float
    times: float

    @classmethod
    def fitted(cls, tuned: FineTuned, before: LatencyModel, known: Programs, measured: Programs) -> Self:
        """Return the model of ``tuned``, corrected by ``known`` run times of programs on other devices.

        Args:
            before: the model of those devices, from which ``tuned`` was fine-tuned.
            measured: the programs of the fine-tuning; they give the share, and calibrate intervals.

        Raises:
            InputError: too few of them were measured on other devices.
        """
        off: dict[ProgramKey, tuple[tuple[Hardware, float], ...]] = {}
        for row, error in zip(known, _errors(before, known), strict=True):
            off[row.key] = (*off.get(row.key, ()), (row.hardware, float(error)))
        found = cls(tuned.model, off, 0.0, 1.0)
        there = found._is_known(measured)
        inside = ~np.isnan(there)
        if inside.sum() < LEAST:
            raise InputError(
                f"{inside.sum()} of the measured programs are known from other devices, at least {LEAST} must be"
            )
        here, there = np.log(measured.seconds / tuned.unseen(measured))[inside], there[inside]
        share = float(min(SHARES, key=lambda one: np.abs(here - one * there).mean()))
        said = tuned.model.of(measured)
        within = np.log(said.high / said.seconds)[inside]
        return cls(tuned.model, off, share, covered((here - share * there) / within))

    def latencies(self, programs: Programs) -> Latencies:
        """Return predicted run times of programs on their devices; measured seconds in ``programs`` are ignored.

        Programs without measurements on other devices get the model's prediction.
        """
        said = self.model.of(programs)
        there = self._is_known(programs)
        known = ~np.isnan(there)
        seconds = said.seconds * np.exp(np.where(known, self.share * there, 0.0))
        within = np.log(said.high / said.seconds) * np.where(known, self.times, 1.0)
        return Latencies(
            seconds, seconds * np.exp(-within), seconds * np.exp(within), said.shared, said.level
        )

    def _is_known(self, programs: Programs) -> np.ndarray:
        """Return (n,) mean log errors on the devices most similar to each program's; NaN without measurements."""
        found = np.full(len(programs), np.nan)
        for place, row in enumerate(programs):
            if some := self.off.get(row.key):
                distances = [_distance(row.hardware, hardware) for hardware, _ in some]
                found[place] = np.mean(
                    [
                        error
                        for away, (_, error) in zip(distances, some, strict=True)
                        if away == min(distances)
                    ]
                )
        return found


def _errors(model: LatencyModel, programs: Programs) -> np.ndarray:
    found: np.ndarray = np.log(programs.seconds / model.of(programs).seconds)
    return found


def _distance(one: Hardware, other: Hardware) -> float:
    """Return the distance of two devices, 0 for the same width of vectors and number of cores (in octaves)."""
    return float(abs(np.log2(one.vector_bytes / other.vector_bytes)) + abs(np.log2(one.cores / other.cores)))


__getattr__ = forward_names(__name__, {"Elsewhere": f"{__name__}:CrossDeviceCorrection"})
