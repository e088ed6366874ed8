"""What holds for every featurizer of patterns."""

import dataclasses
import importlib.util
from pathlib import Path

import numpy as np
import pytest

from tensorwise.analysis.featurizer import Featurizer, Field
from tensorwise.analysis.matrix import MatrixPattern
from tensorwise.analysis.patterns import PATTERNS
from tests.unit.analysis.cases import drawn

ROOT = Path(__file__).parents[3]
EXAMPLES = {"matrix-pattern": drawn((60, 50), 300), "tensor-pattern": drawn((9, 8, 7), 100)}


@pytest.mark.parametrize("name", PATTERNS)
def test_a_number_for_each_field_the_same_every_time(name: str) -> None:
    pattern = PATTERNS[name]()
    numbers = pattern.features(EXAMPLES[name])
    assert pattern.name == name
    assert numbers.dtype == np.float32
    assert numbers.shape == (len(pattern.fields),)
    np.testing.assert_array_equal(numbers, PATTERNS[name]().features(EXAMPLES[name]))
    assert numbers.flags.owndata


@pytest.mark.parametrize("name", PATTERNS)
def test_every_field_has_a_name_of_its_own_a_unit_and_a_sentence(name: str) -> None:
    fields = PATTERNS[name]().fields
    assert len({field.name for field in fields}) == len(fields)
    for field in fields:
        assert "." in field.name
        assert field.unit
        assert len(field.doc.split()) > 2
        assert not field.doc.endswith(".")


def test_the_id_follows_name_version_and_fields() -> None:
    class Other(MatrixPattern):  # type: ignore[misc]
        pass

    def changed(**members: object) -> Featurizer:
        return type("Changed", (MatrixPattern,), members)()

    pattern = MatrixPattern()
    first, *others = pattern.fields
    assert Other().id == pattern.id == MatrixPattern().id
    ids = {
        pattern.id,
        changed(name="other").id,
        changed(version=pattern.version + 1).id,
        changed(fields=tuple(others)).id,
        changed(fields=(*others, first)).id,
        *(
            changed(fields=(dataclasses.replace(first, **{part: "other"}), *others)).id
            for part in ("name", "unit", "doc")
        ),
    }
    assert len(ids) == 8
    assert isinstance(first, Field)


def test_the_page_lists_the_fields() -> None:
    path = ROOT / "docs" / "field_tables.py"
    spec = importlib.util.spec_from_file_location("field_tables", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert (ROOT / "docs" / "features.md").read_text() == module.page(), (
        f"run: python {path.relative_to(ROOT)}"
    )
