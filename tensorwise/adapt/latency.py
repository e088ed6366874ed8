"""A latency model brought to another device by what a few tasks take there (CDMPP, section 5.4)."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

from tensorwise.model.latency import LatencyModel, errors, fine_tuned
from tensorwise.model.programs import Programs

if TYPE_CHECKING:
    from tensorwise.model.latency_training import LatencyTraining

TRAINING: Final[dict[str, Any]] = {"epochs": 10, "learning_rate": 3e-4, "moments": 0.0}
"""Of `LatencyTraining`: a few epochs, at a lower rate than a first training's."""


@final
@dataclass(frozen=True, eq=False)
class Adapted:
    """What an adaptation came to.

    Attributes:
        model: the adapted one.
        before, after: ``model.latency.errors`` on the measured programs, of the model before and of the adapted one; there
            each program is predicted by a member that was not trained on it (but whose epoch it helped to choose).
    """

    model: LatencyModel
    before: dict[str, Any]
    after: dict[str, Any]

    @property
    def better(self) -> bool:
        """Whether it is less far off than before, by more than a hundredth."""
        return bool(self.after["mape"] < 0.99 * self.before["mape"])


def adapt_latency(model: LatencyModel, measured: Programs, settings: "LatencyTraining") -> Adapted:
    """Return the model after it has learned from programs that were measured on another device. Needs torch.

    It is a model of that device only. Training on the old data as well would make it less accurate there.

    Args:
        measured: all programs of some tasks on the device, or on several settings of it; see ``adapt.tasks``.

    Raises:
        InputError: there are too few tasks.
        MissingExtraError: torch is not installed.
    """
    tuned = fine_tuned(model, Programs(()), measured, None, settings)
    return Adapted(
        tuned.model, errors(model.of(measured).seconds, measured), errors(tuned.unseen(measured), measured)
    )
