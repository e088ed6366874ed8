"""C files that come with the package: compiled when they are needed, each apart."""

from pathlib import Path

import pytest

from tensorwise.errors import CompilerError
from tensorwise.toolchain.cache import default_cache
from tensorwise.toolchain.routines import SIZE, Routines, load_all

SIGNATURES = {"twice": (SIZE, (SIZE,)), "nothing": (None, ())}


def routines(tmp_path: Path, name: str = "some", body: str = "return 2 * x;") -> Routines:
    source = tmp_path / f"{name}.c"
    source.write_text(
        f"#include <stdint.h>\nint64_t tw_{name}_twice(int64_t x) {{ {body} }}\nvoid tw_{name}_nothing(void) {{}}\n"
    )
    return Routines("double a number", f"tw_{name}_", SIGNATURES, source)


@pytest.mark.usefixtures("own_cache_dir")
def test_they_are_compiled_when_first_called(tmp_path: Path) -> None:
    made = routines(tmp_path)
    assert default_cache().info().entries == 0
    assert made("twice", 21) == 42
    assert made("nothing") is None
    assert default_cache().info().entries == 1


def test_a_negative_number_stands_for_no_memory(tmp_path: Path) -> None:
    with pytest.raises(MemoryError, match=r"^no memory to double a number \(twice\)$"):
        routines(tmp_path)("twice", -1)


@pytest.mark.usefixtures("own_cache_dir")
def test_several_are_loaded_together(tmp_path: Path) -> None:
    load_all(*(routines(tmp_path, name) for name in ("one", "two", "three")))
    assert default_cache().info().entries == 3


def test_what_does_not_compile_is_said(tmp_path: Path) -> None:
    good, bad = routines(tmp_path, "good"), routines(tmp_path, "bad", "return nonsense;")
    with pytest.raises(CompilerError, match="nonsense"):
        load_all(good, bad)
    assert good("twice", 4) == 8
