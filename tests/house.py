"""Measures the package: import circles, names that stand for several things, and the size of the core.

Run in the project's root: ``python -m tests.house`` prints the figures that `tests/test_house.py` limits,
``python -m tests.house --core`` also lists the modules of the core and the imports that bring in most lines.
"""

import ast
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
PACKAGE: Final = "tensorwise"
CORE_STARTS: Final = (f"{PACKAGE}.tuning.tune", f"{PACKAGE}.device.cpu")
"""The modules whose imports, and theirs, are the core: all that one reads to follow one ``tune`` of a matrix in memory.

The tuner opens the device of the CPU by its name, as any other: it is listed here."""
VAGUE_NAME: Final = re.compile(
    r"_?(told|least|read|excess|said|kept|keeps?|beside|meets?|dealt|halved|asked|seen|given|known|found|meant|left|stood|standing"
    r"|looked|named|telling|put|made|gone|held)"
)
"""Function names that are a bare participle or adverb; STYLE: functions are verbs with an object."""
_C_FILE: Final = re.compile(r'"([\w*]*\.(?:c|h|cuh))"')


@dataclass(frozen=True)
class Module:
    """What one file says about its imports and names.

    Attributes:
        name: dotted.
        path: of the file.
        text: of the file.
        imports: dotted names, those of functions too, but not under ``if TYPE_CHECKING``.
        classes: names of public classes.
        constants: names of constants of the module.
        vague: names of functions that match `VAGUE_NAME`, with the line.
    """

    name: str
    path: Path
    text: str
    imports: frozenset[str]
    classes: tuple[str, ...]
    constants: tuple[str, ...]
    vague: tuple[str, ...]

    @property
    def num_lines(self) -> int:
        return self.text.count("\n")

    def c_files(self) -> set[Path]:
        """Return the C and header files beside the module that its text names (``"pack.c"``, ``".c"``, ``"*.h"``)."""
        found: set[Path] = set()
        for name in _C_FILE.findall(self.text):
            found |= (
                {self.path.with_suffix(name)} if name.startswith(".") else set(self.path.parent.glob(name))
            )
        return {path for path in found if path.is_file()}


def read_module(path: Path, root: Path) -> Module:
    """Parse one file."""
    parts = path.relative_to(root).with_suffix("").parts
    name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    text = path.read_text()
    imports: set[str] = set()
    classes, vague = [], []
    tree = ast.parse(text)
    for node in _statements(tree.body):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            imports |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            imports |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            classes.append(node.name)
        elif isinstance(node, ast.FunctionDef) and VAGUE_NAME.fullmatch(node.name):
            vague.append(f"{path.relative_to(root)}:{node.lineno} {node.name}")
    constants = [name for node in tree.body for name in _assigned(node) if name.isupper()]
    return Module(name, path, text, frozenset(imports), tuple(classes), tuple(constants), tuple(vague))


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield statements, nested ones too, but none that only type checkers see."""
    for node in body:
        yield node
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            yield from _statements(node.orelse)
            continue
        for field in ("body", "orelse", "finalbody"):
            yield from _statements(getattr(node, field, []))
        for handler in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
            yield from _statements(handler.body)


def _assigned(node: ast.stmt) -> list[str]:
    """Return the name that a statement of a module assigns to."""
    target = node.target if isinstance(node, ast.AnnAssign) else None
    if isinstance(node, ast.Assign):
        target = node.targets[0]  # type: ignore[assignment]
    return [target.id] if isinstance(target, ast.Name) else []


@dataclass(frozen=True)
class House:
    """A package's modules by dotted name, and what can be measured of them."""

    modules: Mapping[str, Module]

    @cached_property
    def graph(self) -> dict[str, set[str]]:
        """Module -> modules of the package that it imports; ``from a.b import c`` is a.b.c if that is a module, else a.b."""
        graph: dict[str, set[str]] = {}
        for name, module in self.modules.items():
            whole = {one if one in self.modules else one.rpartition(".")[0] for one in module.imports}
            graph[name] = {one for one in whole if one in self.modules and one != name}
        return graph

    def circles(self) -> list[list[str]]:
        """Return the groups of modules that import each other (strongly connected components, Tarjan's algorithm)."""
        index: dict[str, int] = {}
        low: dict[str, int] = {}
        stack: list[str] = []
        found: list[list[str]] = []

        def visit(node: str) -> None:
            index[node] = low[node] = len(index)
            stack.append(node)
            for to in sorted(self.graph[node]):
                if to not in index:
                    visit(to)
                    low[node] = min(low[node], low[to])
                elif to in stack:
                    low[node] = min(low[node], index[to])
            if low[node] == index[node]:
                place = stack.index(node)
                if len(stack) - place > 1:
                    found.append(sorted(stack[place:]))
                del stack[place:]

        for node in self.graph:
            if node not in index:
                visit(node)
        return found

    def repeated_classes(self) -> dict[str, list[str]]:
        """Return public class names that stand for several classes, with their modules."""
        return self._repeated("classes", 2)

    def repeated_constants(self) -> dict[str, list[str]]:
        """Return names of constants that three modules and more define, with these modules."""
        return self._repeated("constants", 3)

    def _repeated(self, what: str, least: int) -> dict[str, list[str]]:
        modules: dict[str, list[str]] = defaultdict(list)
        for module in self.modules.values():
            for name in getattr(module, what):
                modules[name].append(module.name)
        return {name: homes for name, homes in sorted(modules.items()) if len(homes) >= least}

    def vague_functions(self) -> list[str]:
        """Return the functions whose name is a bare participle or adverb, with file and line."""
        return [one for module in self.modules.values() for one in module.vague]

    def closure(
        self, starts: Collection[str] = CORE_STARTS, without: Collection[tuple[str, str]] = ()
    ) -> dict[str, str]:
        """Return the modules that ``starts`` and their functions import, directly or not, each with who imports it first.

        The packages that hold a module are imported with it.

        Args:
            without: imports (importer, imported) that are left out.
        """
        found: dict[str, str] = {}
        pending = [(start, "") for start in starts]
        while pending:
            name, importer = pending.pop(0)
            if name in found or name not in self.modules:
                continue
            found[name] = importer
            pending.append((name.rpartition(".")[0], name))
            pending += [(to, name) for to in sorted(self.graph[name]) if (name, to) not in without]
        return found

    def num_lines(self, names: Collection[str]) -> int:
        """Return the lines of modules, docstrings included, and of the C and header files that they load."""
        c_files = {path for name in names for path in self.modules[name].c_files()}
        return sum(self.modules[name].num_lines for name in names) + sum(
            path.read_text().count("\n") for path in c_files
        )


def read_house(root: Path = ROOT) -> House:
    """Parse all files of the package."""
    modules = (read_module(path, root) for path in sorted((root / PACKAGE).rglob("*.py")))
    return House({module.name: module for module in modules})


def print_core(house: House) -> None:
    """Print the core by folder, its modules, and the imports without which it would have fewer lines."""
    core = house.closure()
    whole = house.num_lines(core)
    rooms: Counter[str] = Counter()
    for name in core:
        rooms[".".join(name.split(".")[:2])] += house.num_lines([name])
    print("\nby folder:", *(f"{lines:6} {room}" for room, lines in rooms.most_common()), sep="\n")
    print("\nmodules, each with the first that imports it:")
    for name, importer in sorted(core.items()):
        print(f"{house.num_lines([name]):6} {name}  <- {importer}")
    edges = ((name, to) for name in core for to in house.graph[name])
    saved = {edge: whole - house.num_lines(house.closure(without=[edge])) for edge in edges}
    print("\nimports without which the core would have fewer lines:")
    for (name, to), lines in sorted(saved.items(), key=lambda item: -item[1]):
        if lines >= 100:
            print(f"{lines:6} {name} -> {to}")


def main() -> None:
    """Print the figures."""
    house = read_house()
    circles, classes, constants = house.circles(), house.repeated_classes(), house.repeated_constants()
    vague, core = house.vague_functions(), house.closure()
    sizes = sorted(module.num_lines for module in house.modules.values())
    print(
        f"{len(sizes)} files, {sum(sizes)} lines, p90 {sizes[int(0.9 * (len(sizes) - 1))]}, longest {sizes[-1]}"
    )
    print(f"circles of imports: {len(circles)}", *map(" ".join, circles), sep="\n  ")
    print(f"class names of several classes: {len(classes)}:", ", ".join(classes))
    print(f"constants in three modules and more: {len(constants)}:", ", ".join(constants))
    print(f"functions named by a bare participle: {len(vague)}:", *vague, sep="\n  ")
    print(
        f"the core, from {' and '.join(CORE_STARTS)}: {len(core)} modules, {house.num_lines(core)} lines with C files"
    )
    if "--core" in sys.argv:
        print_core(house)


if __name__ == "__main__":
    main()
