"""A cache of the domains of a space for one workload.

A search asks for the domain of every Param for each config that it makes or judges, but ``narrow`` reads only a few of the
earlier choices. Which one it reads next depends only on the values that it has read before. So the cache is a tree: each
node is a choice that is read, each branch one of its values, each leaf a domain.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, TypeAlias, final

from tensorwise.space.config import Value
from tensorwise.space.domain import Domain
from tensorwise.space.param import Earlier, Param

if TYPE_CHECKING:
    from tensorwise.program.workload import Workload


@final
class Domains:
    """The domains that were asked for so far, all of one workload."""

    def __init__(self) -> None:
        self._trees: dict[str, _Node | None] = {}

    def find(self, param: Param, earlier: Earlier) -> Domain | None:
        """Return ``param.domain(earlier, workload)`` where it was computed before, else None."""
        node = self._trees.get(param.name)
        while isinstance(node, _Choice):
            node = node.then.get(earlier.get(node.name))
        return node

    def of(self, param: Param, earlier: Earlier, workload: "Workload") -> Domain:
        """Return ``param.domain(earlier, workload)``, from the cache if the choices that it reads had these values before.

        Raises:
            InputError: as ``Param.domain``.
        """
        found = self.find(param, earlier)
        if found is None:
            seen = _Seen(earlier)
            found = param.domain(seen, workload)
            self._trees[param.name] = _grown(self._trees.get(param.name), [*seen.read.items()], found)
        return found


@final
class _Choice:
    """An earlier choice that ``narrow`` looks at, and what follows from each of its values."""

    __slots__ = ("name", "then")

    def __init__(self, name: str) -> None:
        self.name = name
        self.then: dict[Value, _Node] = {}


_Node: TypeAlias = "_Choice | Domain"


def _grown(node: "_Node | None", path: list[tuple[str, Value]], domain: Domain) -> "_Node":
    """Return ``node`` with ``domain`` at the end of ``path``."""
    if not path:
        return domain
    (name, value), *others = path
    choice = node if isinstance(node, _Choice) else _Choice(name)
    choice.then[value] = _grown(choice.then.get(value), others, domain)
    return choice


@final
class _Seen(Mapping[str, Value]):
    """Earlier choices, and which of them were looked at, in the order in which they were."""

    def __init__(self, earlier: Earlier) -> None:
        self._earlier = earlier
        self.read: dict[str, Value] = {}

    def __getitem__(self, name: str) -> Value:
        value = self.read[name] = self._earlier[name]
        return value

    def get(self, name: str, default: Value = None) -> Value:  # type: ignore[override]  # Mapping's own takes twice as long
        return self[name] if name in self._earlier else default

    def __contains__(self, name: object) -> bool:
        return name in self._earlier  # the same for all configs of a space

    def __iter__(self) -> Iterator[str]:
        return iter(self._earlier)  # iterating over the names also reads the values

    def __len__(self) -> int:
        return len(self._earlier)
