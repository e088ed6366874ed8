"""Workloads of records, made again: a record names its pattern, and the patterns are in files."""

from collections.abc import Iterable, Mapping
from typing import Any, cast, final

from tensorwise.collect.augment import Augmentation
from tensorwise.collect.corpus import Pattern, read_pattern
from tensorwise.errors import InputError
from tensorwise.program.workload import Workload, einsum_workload
from tensorwise.store.record import Record
from tensorwise.tensor.elements import value_dtype


@final
class Workloads:
    """Finds the workload that a record of a collection is about.

    Args:
        patterns: where names are looked up, as ``corpus.patterns`` returns them.
    """

    def __init__(self, patterns: Iterable[Pattern]) -> None:
        self._patterns = {pattern.name: pattern for pattern in patterns}

    def has(self, record: Record) -> bool:
        """Whether the record names a pattern that is here; it is not read."""
        return _name(record)[0] in self._patterns

    def of(self, record: Record) -> Workload:
        """Read the record's pattern, augment it as it was, and return the workload.

        Raises:
            InputError: the pattern is not here, cannot be read, or is not the one that was measured.
        """
        name, change = _name(record)
        if name not in self._patterns:
            raise InputError(
                f"the pattern {name!r} of workload {record.workload_id} is in none of the sources"
            )
        path = self._patterns[name].path
        about = cast(Mapping[str, Any], record.workload)
        entries = read_pattern(path, Augmentation.parse(change) if change else None)
        entries = entries.astype(value_dtype(about.get("dtype", "float32")))
        work = einsum_workload(str(about["einsum"]), {"A": entries}, about["sizes"])
        if work.id != record.workload_id:
            raise InputError(
                f"{path} is not what was measured as {record.provenance.get('pattern')}: it is another file"
            )
        return work


def _name(record: Record) -> tuple[str, str]:
    """Name of the pattern and text of its augmentation, empty where there is none."""
    name, _, change = str(record.provenance.get("pattern", "")).partition("~")
    return name, change
