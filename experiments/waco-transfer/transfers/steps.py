"""The steps: a search under each setting, then all choices under each setting."""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.bench import Bench
from benchmarks.corpus import Item
from tensorwise.errors import InputError
from transfers.measure import Setting, Settings, compared, searched

Runs = Mapping[str, Mapping[str, Any]]
Step = Callable[[], dict[str, Any]]


@dataclass(frozen=True)
class Steps:
    """The steps; each setting has a process of its own.

    Attributes:
        benches: one for each setting.
    """

    benches: Mapping[Setting, Bench]
    settings: Settings

    def planned(self, items: Sequence[Item], ops: Sequence[str], runs: Runs) -> dict[str, Step]:
        """Return the steps, matrix by matrix; ``runs`` are the results so far, as they grow."""
        found: dict[str, Step] = {}
        for item in items:
            for op in ops:
                for setting in self.benches:
                    key = f"search {op} {item.name} {setting.name}"
                    found[key] = functools.partial(self.search, op, item, setting)
                for setting in self.benches:
                    key = f"compare {op} {item.name} {setting.name}"
                    found[key] = functools.partial(self.compare, op, item, setting, runs)
        return found

    def search(self, op: str, item: Item, setting: Setting) -> dict[str, Any]:
        """Search under a setting."""
        return self.benches[setting].call(searched, item.path, op, setting, self.settings)

    def compare(self, op: str, item: Item, setting: Setting, runs: Runs) -> dict[str, Any]:
        """Run what was chosen under each setting under one of them."""
        chosen = {}
        for other in self.benches:
            held = runs[f"search {op} {item.name} {other.name}"]
            if "error" in held:
                raise InputError(f"nothing was chosen under {other.name}: {held['error']}")
            chosen[other.name] = held
        told = self.benches[setting].call(compared, item.path, op, setting, chosen, self.settings)
        return {"op": op, "matrix": item.name, "family": item.family, "setting": setting.name, **told}
