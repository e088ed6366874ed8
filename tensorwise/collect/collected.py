"""Collected: how a collection stands."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import final

from tensorwise.moved import renamed
from tensorwise.store.record import Record


@final
@dataclass
class Collected:
    """How a collection stands.

    Attributes:
        planned: jobs in all; before: those that the store had when this run began.
        jobs: jobs finished in this run; records: their records; statuses: how those ended.
        failed: why jobs could not be run; they are tried again by the next run.
        lost: jobs whose workers or nodes were lost each time; nothing is recorded, and the next run tries them again.
        mixed: of which kinds of machines jobs were measured on devices that differ; see ``mixed_kinds``.
        redone: how often a job was begun again after its worker or node was lost, or was late.
        elsewhere: jobs that other drivers of the same store finished, or gave up, during this run.
        dropped: results that were not used because the job had one already, such as from a node that was taken for lost.
        seconds: since this run began.
        interrupted: whether it was ended by hand.
    """

    planned: int
    before: int
    jobs: int = 0
    records: int = 0
    statuses: Counter[str] = field(default_factory=Counter)
    failed: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    mixed: list[str] = field(default_factory=list)
    redone: int = 0
    elsewhere: int = 0
    dropped: int = 0
    seconds: float = 0.0
    interrupted: bool = False

    @property
    def num_left(self) -> int:
        """Jobs neither done, nor failed, nor lost."""
        return self.planned - self.before - self.elsewhere - self.ended

    left = renamed("num_left")

    @property
    def ended(self) -> int:
        """Jobs of this run that are done, failed or lost."""
        return self.jobs + len(self.failed) + len(self.lost)

    @property
    def left_s(self) -> float:
        """Seconds that what is left will take at the pace so far; infinite before the first job is done."""
        return self.num_left * self.seconds / self.ended if self.ended else math.inf

    @property
    def per_minute(self) -> float:
        """Records a minute."""
        return 60 * self.records / self.seconds if self.seconds else 0.0

    def note(self, records: Sequence[Record]) -> None:
        """Count a finished job."""
        self.jobs += 1
        self.records += len(records)
        self.statuses.update(record.status for record in records)

    def to_json(self) -> dict[str, object]:
        """Return a JSON object; numbers may be infinite."""
        return {
            "planned": self.planned,
            "before": self.before,
            "jobs": self.jobs,
            "left": self.num_left,
            "records": self.records,
            "statuses": dict(self.statuses.most_common()),
            "failed": self.failed,
            "lost": self.lost,
            "mixed": self.mixed,
            "redone": self.redone,
            "elsewhere": self.elsewhere,
            "dropped": self.dropped,
            "seconds": self.seconds,
            "records_per_minute": self.per_minute,
            "left_s": self.left_s,
        }
