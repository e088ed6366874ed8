"""The house: no module imports itself in a circle, names stand for one thing, and the core stays small enough to be read.

The figures below are limits that may only be lowered: whoever makes one smaller writes the new figure here. What they
count, and where, is printed by ``python -m tests.house --core``.
"""

import ast
from pathlib import Path
from typing import Final

import pytest

import tensorwise
from tensorwise.tensor.levels import LEVELS
from tests.house import CORE_STARTS, ROOT, House, read_house

PACKAGE: Final = Path(tensorwise.__file__).parent
MAX_REPEATED_CLASSES: Final = 0
"""Public class names that stand for several classes; target: 0."""
MAX_REPEATED_CONSTANTS: Final = 0
"""Names of constants that three modules and more define; target: 0."""
MAX_VAGUE_FUNCTIONS: Final = 1
"""Functions whose name is a bare participle or adverb; the one left is the verb of ``tensorwise.read``."""
MAX_CORE_LINES: Final = 29_000
"""Lines of all that a CPU ``tune`` imports, docstrings and C files included, rounded up to a hundred; target: 20,000."""


@pytest.fixture(scope="module")
def house() -> House:
    return read_house()


def test_no_modules_import_each_other_in_a_circle(house: House) -> None:
    assert house.circles() == []


def test_a_class_name_stands_for_one_class(house: House) -> None:
    found = house.repeated_classes()
    assert len(found) <= MAX_REPEATED_CLASSES, found


def test_a_constant_has_one_home(house: House) -> None:
    found = house.repeated_constants()
    assert len(found) <= MAX_REPEATED_CONSTANTS, found


def test_functions_are_verbs(house: House) -> None:
    found = house.vague_functions()
    assert len(found) <= MAX_VAGUE_FUNCTIONS, found


def test_the_core_does_not_grow(house: House) -> None:
    core = house.closure()
    assert house.num_lines(core) <= MAX_CORE_LINES, (
        "python -m tests.house --core lists what is imported by whom"
    )


LEVEL_CLASSES: Final = frozenset(kind.__name__ for kind in LEVELS.values())


def test_what_a_device_or_a_level_can_do_is_asked_and_not_its_class() -> None:
    """Other packages add devices and levels: no code outside of their rooms may know the classes."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        room = path.relative_to(PACKAGE).parts[0]
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id == "isinstance"
            ):
                names = {one.id for one in ast.walk(node.args[1]) if isinstance(one, ast.Name)}
                device = room != "device" and any(name.endswith("Device") for name in names)
                if device or (room != "tensor" and names & LEVEL_CLASSES):
                    found.append(f"{path}:{node.lineno} {ast.unparse(node)}")
    assert found == []


def test_what_is_counted(tmp_path: Path) -> None:
    """A small package: circles also through functions, what a core consists of, C files, and names."""
    files = {
        "__init__.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from tensorwise.checked import X\n",
        "tuning/__init__.py": "",
        "tuning/tune.py": 'def put() -> None:\n    from tensorwise.one import Thing\nSOURCE = "fast.c"\nN = 1\n',
        "tuning/fast.c": "int a;\nint b;\n",
        "tuning/other.c": "int c;\n",
        "device/cpu.py": "\n",
        "one.py": "import tensorwise.two\nclass Thing: ...\nclass _Own: ...\nN: int = 2\n",
        "two.py": "try:\n    from tensorwise import three\nfinally:\n    pass\nN = 3\n",
        "three.py": "class Thing:\n    def told(self) -> None:\n        from tensorwise.one import Thing\nclass _Own: ...\n",
        "checked.py": "from tensorwise.tuning import tune\n" + "#\n" * 100,
        "apart.py": "\n",
    }
    for name, text in files.items():
        path = tmp_path / "tensorwise" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    house = read_house(tmp_path)
    assert house.circles() == [["tensorwise.one", "tensorwise.three", "tensorwise.two"]]
    core = house.closure()
    assert core == {
        CORE_STARTS[0]: "",
        CORE_STARTS[1]: "",
        "tensorwise.tuning": CORE_STARTS[0],
        "tensorwise": "tensorwise.tuning",
        "tensorwise.one": CORE_STARTS[0],
        "tensorwise.two": "tensorwise.one",
        "tensorwise.three": "tensorwise.two",
    }
    assert house.num_lines(core) == 4 + 0 + 3 + 4 + 5 + 4 + 2 + 1
    assert "tensorwise.three" not in house.closure(without=[("tensorwise.two", "tensorwise.three")])
    assert house.repeated_classes() == {"Thing": ["tensorwise.one", "tensorwise.three"]}
    assert house.repeated_constants() == {"N": ["tensorwise.one", "tensorwise.tuning.tune", "tensorwise.two"]}
    assert house.vague_functions() == ["tensorwise/three.py:2 told", "tensorwise/tuning/tune.py:1 put"]


SCRIPTS: Final = sorted(
    path
    for folder in ("benchmarks", "examples", "experiments", "tests")
    for path in (ROOT / folder).rglob("*.py")
)


def _names(path: Path) -> set[str]:
    """Return all that a module binds at its top level, and names of the modules of a package."""
    found = {file.stem for file in path.parent.iterdir()} if path.name == "__init__.py" else set()
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.Name(id=name, ctx=ast.Store()):
                found.add(name)
            case ast.alias(name=name, asname=alias):
                found.add(alias or name.partition(".")[0])
            case ast.Constant(value=str(name)):  # names that are imported when they are asked for
                found.add(name)
    return found


def _file(module: str) -> Path:
    base = PACKAGE.parent.joinpath(*module.split("."))
    return base / "__init__.py" if base.is_dir() else base.with_suffix(".py")


def _bound(tree: ast.Module) -> set[str]:
    """Return what else names may stand for in a script: what it assigns, takes as arguments, or imports from others."""
    found = set[str]()
    for node in ast.walk(tree):
        match node:
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()):
                found.add(name)
            case ast.ImportFrom(module=str(module)) if module.partition(".")[0] == PACKAGE.name:
                pass
            case ast.Import() | ast.ImportFrom():
                found |= {alias.asname or alias.name.rpartition(".")[2] for alias in node.names}
    return found


def test_scripts_import_names_that_exist() -> None:
    """Benchmarks and experiments are not run by the tests: a name that was renamed must still be found."""
    missing, names = [], dict[Path, set[str]]()
    for script in SCRIPTS:
        tree = ast.parse(script.read_text())
        modules = dict[str, str]()
        asked = list[tuple[int, str, str]]()
        for node in ast.walk(tree):
            if not isinstance(node, ast.ImportFrom) or node.level or not node.module:
                continue
            if node.module.partition(".")[0] != PACKAGE.name:
                continue
            asked += [(node.lineno, node.module, alias.name) for alias in node.names]
            modules |= {
                alias.asname or alias.name: f"{node.module}.{alias.name}"
                for alias in node.names
                if _file(f"{node.module}.{alias.name}").is_file()
            }
        certain = modules.keys() - _bound(tree) if modules else set()
        asked += [
            (node.lineno, modules[node.value.id], node.attr)
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id in certain
            and not node.attr.startswith("__")
        ]
        for line, module, name in asked:
            path = _file(module)
            if path not in names:
                names[path] = _names(path) if path.is_file() else set()
            if name not in names[path] and "__getattr__" not in names[path]:
                missing.append(f"{script.relative_to(ROOT)}:{line}: {module}.{name}")
    assert missing == []
