"""Names that have moved: the old place still works, and says the new one."""

from importlib import import_module

import pytest


@pytest.mark.parametrize(
    ("old", "name", "new"),
    [
        ("tensorwise.tensor.entries", "entries_from", "tensorwise.tensor.convert"),
        ("tensorwise.features", "MatrixPattern", "tensorwise.features.matrix"),
        ("tensorwise.features", "PATTERNS", "tensorwise.features.patterns"),
    ],
)
def test_a_name_that_moved_is_found_and_warned_of(old: str, name: str, new: str) -> None:
    with pytest.warns(DeprecationWarning, match=f"{old}.{name} has moved to {new}") as caught:
        found = getattr(import_module(old), name)
    assert caught[0].filename == __file__  # the line that has to be changed
    assert found is getattr(import_module(new), name)
    with pytest.raises(AttributeError, match=f"module '{old}' has no attribute 'absent'"):
        _ = import_module(old).absent
