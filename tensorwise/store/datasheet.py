"""Datasheet: what a file of records holds, and what must be known to use it, as a page of Markdown."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np

from tensorwise.store.record import Record

FACTS = ("drawn", "host", "cpu", "device", "threads", "compiler", "flags", "tvm", "cache", "version")
"""Facts of records that are counted."""
MOST = 40
"""Values of a fact that are listed."""
SAMPLING = """\
A job is one pattern, one operation and one number of threads. Every batch of a job begins with the default config, the
anchor (`default`). Half of the others are drawn from the space (`random`, with `log_probability`: the natural logarithm of
the probability of that config, which is not uniform), a quarter are known good ones (`known`), and the rest are mutations
of the best so far (`mutated`, with `parent`, a config id). Where a model was given, what it names first comes besides
(`named`). So fast configs are far more frequent than in the space: what is
said about the space has to be estimated from `random` records, weighted by their probabilities.
"""
READING = """\
`seconds` is the median of one call, `spread_s` the interquartile range of the samples. A `censored` time is a lower bound:
the config was given up. Other statuses than `ok` have no time. Configs of a batch that were within four times its best ran
again in interleaved rounds, of each of which the fastest batch of calls counts: `ratio` is their time over the default
config's in the same rounds, and `ratio_error` the standard error of its natural logarithm. Compare configs of one job only,
by `ratio` where there is one, else by their time over the median of the job's default config; divide by `family`, never by
record.
"""
TASK_READING = """\
`seconds` is the fastest run of a program, operands but the first thrown out of the caches before each; the samples are the
fastest runs of its three fastest rounds, and the note says where these differ by more than 2 %. `provenance.tree` is the
program, as loops; `provenance.code` what was counted in its compiled code; `provenance.hardware` what the device is made of;
`provenance.networks` those in which the task occurs: divide by network, never by record. Devices are settings of one CPU.
"""
TASK_SAMPLING = """\
Schedules are drawn at random from the designs of TVM's meta-schedule for CPUs, the same ones for all devices. Tasks come in
an order that is drawn once, so that the first ones are a sample of all.
"""


@final
@dataclass
class Datasheet:
    """Counts over records, taken one at a time.

    Attributes:
        records: how many.
        counts: of a fact's name, how often each value occurs.
        workloads, patterns: distinct ones; families: family -> its patterns. programs: records of programs of TVM's tasks.
        twice: program on a device -> its times.
        spreads: interquartile range over median of each time.
        anchors: job -> times of its default config.
        errors: standard error of the logarithm of each ratio taken in rounds.
        log_probabilities: of the configs drawn from the space.
        first, last: when the records were made.
    """

    records: int = 0
    counts: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    workloads: set[str] = field(default_factory=set)
    families: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    spreads: list[float] = field(default_factory=list)
    anchors: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    errors: list[float] = field(default_factory=list)
    log_probabilities: list[float] = field(default_factory=list)
    programs: int = 0
    twice: defaultdict[tuple[str, str, str], list[float]] = field(default_factory=lambda: defaultdict(list))
    first: str = ""
    last: str = ""

    def watch(self, records: Iterable[Record]) -> Iterator[Record]:
        """Yield the records and count them."""
        for record in records:
            self.add(record)
            yield record

    def add(self, record: Record) -> None:
        """Count one more record."""
        facts: Mapping[str, Any] = record.provenance
        self.records += 1
        self.workloads.add(record.workload_id)
        self.programs += "tree" in facts
        if "pattern" in facts:
            self.families[str(facts.get("family", ""))].add(str(facts["pattern"]))
        self.counts["status"][record.status] += 1
        self.counts["operation"][_operation(record)] += 1
        for name in FACTS:
            if name in facts:
                self.counts[name][str(facts[name])] += 1
        when = str(facts.get("when", ""))
        self.first, self.last = min(self.first or when, when), max(self.last, when)
        if record.ok and record.seconds > 0:
            self.spreads.append(record.spread_s / record.seconds)
            if "tree" in facts:
                self.twice[record.workload_id, record.config.text, record.device_id].append(record.seconds)
            if facts.get("drawn") == "default":
                self.anchors[str(facts.get("job"))].append(record.seconds)
        if isinstance(facts.get("ratio_error"), float):
            self.errors.append(facts["ratio_error"])
        if isinstance(facts.get("log_probability"), float):
            self.log_probabilities.append(facts["log_probability"])

    @property
    def repeats(self) -> list[float]:
        """Of each job that timed its default config more than once, the slowest of its times over the fastest."""
        return [max(times) / min(times) for times in self.anchors.values() if len(times) > 1]

    @property
    def repeat_errors(self) -> list[float]:
        """Relative excess of the slower time over the faster, for each program that was timed twice."""
        return [max(times) / min(times) - 1 for times in self.twice.values() if len(times) > 1]

    def text(self, title: str) -> str:
        """Return the page."""
        patterns = sum(map(len, self.families.values()))
        of = f" on {patterns} patterns of {len(self.families)} families" if patterns else ""
        tasks, command = self.programs > 0, "tasks collect" if self.programs else "collect"
        lines = [
            f"# {title}",
            "",
            f"{self.records} measurements of {len(self.workloads)} workloads{of}, "
            f"from {self.first[:19] or 'unknown'} to {self.last[:19] or 'unknown'} (UTC). "
            f"Made by `tensorwise {command}`, written by `tensorwise store export`.",
            "",
        ]
        lines += ["## What", "", *_table("operation", self.counts["operation"])]
        lines += [*_table("status", self.counts["status"])]
        lines += _table(
            "family", Counter({name: len(some) for name, some in self.families.items()}), "patterns"
        )
        lines += ["## How to read it", "", TASK_READING if tasks else READING]
        lines += ["## How configs were drawn", "", TASK_SAMPLING if tasks else SAMPLING]
        lines += _table("drawn", self.counts["drawn"])
        if self.log_probabilities:
            low, median, high = np.quantile(self.log_probabilities, (0.05, 0.5, 0.95)) / math.log(10)
            lines += [
                f"Probability of a `random` config: 10^{median:.1f} (from 10^{low:.1f} to 10^{high:.1f}).",
                "",
            ]
        lines += ["## Where", ""]
        for name in FACTS:
            if name != "drawn":
                lines += _table(name, self.counts[name])
        lines += ["## Noise", "", *self._noise()]
        return "\n".join(lines)

    def _noise(self) -> list[str]:
        lines = []
        for numbers, what in (
            (self.spreads, "interquartile range over median, of the samples of one time"),
            (self.repeat_errors, "by what share the slower of two times of a program exceeds the faster one"),
            (self.repeats, "slowest over fastest time of the default config, of those of one job"),
            (self.errors, "standard error of the logarithm of a ratio taken in rounds"),
        ):
            if numbers:
                median, high = np.quantile(numbers, (0.5, 0.9))
                lines.append(f"- {what}: {median:.3f} in the median, {high:.3f} in nine of ten")
        return [*lines, ""]


def _operation(record: Record) -> str:
    about: Mapping[str, Any] = record.workload
    if "einsum" not in about:
        return record.op
    stored, sizes = math.prod(about.get("shape", ())), math.prod(about.get("sizes", {}).values())
    extent = f" with n = {sizes // stored}" if sizes > stored > 0 else ""
    return f"{record.op} {about.get('einsum')}{extent}, {about.get('dtype')}"


def _table(name: str, counts: Counter[str], unit: str = "records") -> list[str]:
    """Nothing where nothing was counted; of many values the last ones together."""
    rows = [f"| {value} | {count} |" for value, count in counts.most_common(MOST)]
    if rest := counts.total() - sum(count for _, count in counts.most_common(MOST)):
        rows.append(f"| {len(counts) - MOST} others | {rest} |")
    return [] if not rows else [f"| {name} | {unit} |", "|---|---|", *rows, ""]
