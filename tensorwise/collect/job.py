"""Job: one workload and how many configs to try on it; the plan is a list of them.

Jobs are small, the same JSON on every machine, and known by their content, so that what is done can be told from
what is left wherever a collection goes on.
"""

import dataclasses
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, final

import numpy as np

from tensorwise.collect import measuring
from tensorwise.collect.augment import MOST_ENTRIES, Augmentation
from tensorwise.collect.corpus import Pattern, read_pattern
from tensorwise.device.device import Device
from tensorwise.device.opening import DEVICES, DeviceOptions, open_device
from tensorwise.errors import InputError
from tensorwise.ids import content_id
from tensorwise.program.einsum import Einsum
from tensorwise.program.ops import NAMED, mttkrp
from tensorwise.program.workload import Workload, workload
from tensorwise.reading import parse_dataclass, shown
from tensorwise.store.record import Record
from tensorwise.tensor.elements import ELEMS, EXPECTED, value_dtype

JOB_VERSION: Final = 1
"""Version of what a job measures. Raise it when the same job would try other configs, or time them otherwise: jobs get
other ids then, and jobs that were planned before are refused instead of being mixed with new ones."""
MOST_THREADS: Final = 4096
"""Most threads of a call that a job may ask for."""
MOST_TERMS: Final = 30_000_000
"""Most multiplications of a workload (nnz times n): above it a sample takes a quarter of a second and more."""

NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""How kinds of machines and workers are called."""
_HEXADECIMAL: Final = re.compile("[0-9a-f]{1,64}")  # a digest


@final
@dataclass(frozen=True)
class Job:
    """One workload on one device, and how many configs to try. Small, and the same JSON everywhere.

    Attributes:
        name: of the pattern; path: its file; digest: of the file's bytes; family: see ``corpus``.
        variant: 0 for the pattern as it is, k for its k-th augmentation.
        op, n, mode: the operation, as in ``tensorwise.program.workload``.
        device: a name of DEVICES; threads: of a call.
        samples: configs to try, besides anchors.
        seed: of augmentation and configs.
        sample_s: time limit in seconds of a config's packing and of its first run; beyond it the config is killed.
        most_terms: a larger workload is refused.
        named: texts of configs to try besides, such as those that a model would have a tuning try.
        dtype: of all operands, a name of ELEMS.
        asked: name of the model that gives ``named`` and how many it gives; the job's id does not depend on its answer.
            Empty: none.
        kind: of the machines that it is for, by a name that the planner of the jobs gives; empty: machines are all alike.
        version: JOB_VERSION of the package that planned it.
    """

    name: str
    path: str
    digest: str
    family: str
    op: str
    n: int | None = None
    mode: int = 0
    variant: int = 0
    device: str = "cpu"
    threads: int = 1
    samples: int = 100
    seed: int = 0
    sample_s: float = 10.0
    most_terms: int = MOST_TERMS
    named: tuple[str, ...] = ()
    asked: str = ""
    kind: str = ""
    dtype: str = "float32"
    version: int = JOB_VERSION

    def __post_init__(self) -> None:
        if self.device not in DEVICES:
            raise InputError(f"unknown device {self.device!r}; known: {', '.join(DEVICES)}")
        if self.dtype not in ELEMS:
            raise InputError(f"unknown dtype {shown(self.dtype)}; expected {EXPECTED}")
        if self.samples < 1 or not 1 <= self.threads <= MOST_THREADS or not self.sample_s > 0:
            raise InputError(
                f"samples, threads (up to {MOST_THREADS}) and seconds a sample must be positive, "
                f"got {self.samples}, {self.threads}, {self.sample_s}"
            )
        if self.kind and not NAME.fullmatch(self.kind):
            raise InputError(f"a kind is up to 64 letters, digits, '.', '_' and '-', got {shown(self.kind)}")
        if min(self.seed, self.variant, self.mode) < 0 or not _HEXADECIMAL.fullmatch(self.digest):
            raise InputError(
                "seed, variant and mode must not be negative, and the digest hexadecimal, "
                f"got {self.seed}, {self.variant}, {self.mode}, {shown(self.digest)}"
            )

    @cached_property
    def id(self) -> str:
        """Content id of all that decides what is measured; where the file lies does not."""
        facts = {name: value for name, value in self.to_json().items() if name not in ("path", "family")}
        for name, follows in (
            ("named", not self.named or self.asked), ("asked", not self.asked), ("kind", not self.kind),
            ("dtype", self.dtype == "float32"), ("version", self.version == 1),
        ):  # fmt: skip
            if follows:  # from the rest; and jobs had ids before there were such
                del facts[name]
        return content_id([json.dumps(facts, sort_keys=True)])

    @property
    def label(self) -> str:
        """For people: ``celegans spmm n=32``."""
        parts = [
            self.name,
            self.op,
            f"n={self.n}" if self.n else "",
            f"mode={self.mode}" if self.mode else "",
            self.dtype if self.dtype != "float32" else "",
            f"on {self.kind}" if self.kind else "",
        ]
        return " ".join(part for part in [*parts, f"variant {self.variant}" if self.variant else ""] if part)

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object."""
        return {**dataclasses.asdict(self), "named": list(self.named)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Job":
        """Read back what ``to_json`` returned.

        Raises:
            InputError: a field is missing, unknown or has the wrong type.
        """
        if isinstance(data, Mapping):  # what a spool holds may be anything
            data = {"version": 1, **data}  # earlier plans do not name it
        return parse_dataclass(cls, data, "job")

    def open(self) -> Device:
        """Return the device; nothing is started yet."""
        return open_device(self.device, DeviceOptions(self.threads, first_run_s=self.sample_s))

    def measured(self, beat: measuring.Beat = lambda: None) -> list[Record]:
        """Measure the job: see ``measuring.measured``.

        Raises:
            InputError: it was planned for another version of what jobs measure.
        """
        if self.version != JOB_VERSION:
            raise InputError(
                f"the job was planned as version {self.version} of what jobs measure, and this Tensorwise measures version "
                f"{JOB_VERSION}; plan the collection again, or install the release that planned it"
            )
        return measuring.measured(self, beat)

    def load(self) -> tuple[str, Workload]:
        """Read the pattern, augment it, and return its name (``NAME~AUGMENTATION``) and the workload.

        Raises:
            InputError: the file cannot be read, the operation does not fit it, or the workload is too large.
            MissingExtraError: the dtype is bfloat16, and ml_dtypes is not installed.
        """
        entries, name = read_pattern(self.path).astype(value_dtype(self.dtype)), self.name
        if self.variant:
            rng = np.random.default_rng([int(self.digest, 16), self.variant, self.seed])
            most = min(MOST_ENTRIES, self.most_terms // (self.n or 1))
            fibres = not _takes(self.op, entries.order)
            change = Augmentation.draw(entries.shape, entries.nnz, rng, most, fibres=fibres)
            entries, name = change.apply(entries), f"{name}~{change}"
        work = workload(self.op, entries, n=self.n, mode=self.mode)
        if work.terms > self.most_terms:
            raise InputError(
                f"{name}: {work.terms} multiplications, more than {self.most_terms}; choose a smaller n, or allow more"
            )
        work.check_memory(*work.dense, work.assignment.output.tensor)
        return name, work


def plan(
    patterns: Iterable[Pattern],
    ops: Sequence[str],
    *,
    n: Sequence[int] = (),
    modes: Sequence[int] = (0,),
    threads: Sequence[int] = (1,),
    kinds: Sequence[str] = ("",),
    variants: int = 0,
    most_terms: int = MOST_TERMS,
    seed: int = 0,
    left_out: list[str] | None = None,
    **settings: Any,
) -> list[Job]:
    """Return the jobs in a random order that depends on ``seed`` alone: the first few are as good a sample as any.

    Args:
        patterns: what to measure. A pattern is left out of operations that take another number of dimensions, but variants
            of matrices are made into tensors for operations on tensors (see ``augment``).
        ops: names of operations.
        n: extents of the index that only dense operands have, if any; default 64, or 16 from three dimensions on.
        modes: output modes of MTTKRP; a tensor is left out of those that it does not have.
        threads: numbers of threads of a call; each makes a job.
        kinds: names of kinds of machines; each makes a job.
        variants: how many augmented patterns are made of each pattern.
        most_terms: workloads with more multiply-adds are left out, where their number is known before the file is read.
        seed: of the order of the jobs, of augmentation and of configs.
        left_out: list to which a sentence is appended for each file that cannot be read; None: the first one raises.
        settings: further fields of :class:`Job`.

    Raises:
        InputError: unknown operation, a file that cannot be read, or nothing is left to do.
    """
    jobs = []
    for op in dict.fromkeys(ops):
        if op not in NAMED and op != "mttkrp":
            raise InputError(f"unknown operation {op!r}; known: {', '.join([*NAMED, 'mttkrp'])}")
    for pattern in patterns:
        wanted = _wanted(pattern, ops, n, most_terms)
        try:
            digest = pattern.digest if wanted else ""
        except InputError as error:
            if left_out is None:
                raise
            left_out.append(str(error))
            continue
        jobs += [
            Job(
                pattern.name, str(pattern.path), digest, pattern.family, op, extent, mode,
                variant=variant, threads=count, most_terms=most_terms, seed=seed, kind=kind, **settings,
            )
            for op, order, extent in wanted
            for mode in (dict.fromkeys(modes) if op == "mttkrp" else (0,))
            if mode < order
            for variant in range(int(order > pattern.order), variants + 1)
            for count in threads
            for kind in kinds
        ]  # fmt: skip
    if not jobs:
        raise InputError(
            f"{left_out[0]}; no other pattern is left"
            if left_out
            else f"there is nothing to measure: no pattern is of the order that {', '.join(ops) or 'no operation'} takes, "
            f"with at most {most_terms} multiplications"
        )
    return [jobs[int(place)] for place in np.random.default_rng(seed).permutation(len(jobs))]


def _wanted(
    pattern: Pattern, ops: Sequence[str], n: Sequence[int], most_terms: int
) -> list[tuple[str, int, int | None]]:
    """Return what is measured on a pattern: operations, the order in which each takes it, and extents."""
    orders = [(op, pattern.order + (not _takes(op, pattern.order))) for op in dict.fromkeys(ops)]
    return [
        (op, order, extent)
        for op, order in orders
        if _takes(op, order)
        for extent in _extents(op, order, n)
        if (pattern.nnz or 0) * (extent or 1) <= most_terms
    ]


def _takes(op: str, order: int) -> bool:
    """Whether an operation takes patterns of ``order``."""
    if op == "mttkrp":
        return 3 <= order <= 5
    return len(Einsum.parse(NAMED[op]).single.access("A").indices) == order


def _extents(op: str, order: int, n: Sequence[int]) -> Sequence[int | None]:
    """The dense-only extents to try."""
    assignment = Einsum.parse(mttkrp(order) if op == "mttkrp" else NAMED[op]).single
    if set(assignment.access("A").indices) == set(assignment.indices):
        return (None,)
    return tuple(dict.fromkeys(n)) or (64 if order == 2 else 16,)
