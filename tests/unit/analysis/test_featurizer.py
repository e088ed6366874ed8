"""What holds for every featurizer of patterns."""

import dataclasses
import importlib.util
from pathlib import Path

import numpy as np
import pytest

from tensorwise.analysis.ast import LEAVES
from tensorwise.analysis.code import CODE
from tensorwise.analysis.featurizer import FORMER_IDS, Featurizer, Field
from tensorwise.analysis.hardware import HARDWARE
from tensorwise.analysis.matrix import MatrixPattern
from tensorwise.analysis.nest import ProgramNest
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
            for part in ("name", "unit")
        ),
    }
    assert len(ids) == 7
    assert isinstance(first, Field)
    reworded = changed(fields=(dataclasses.replace(first, doc="other"), *others))
    assert reworded.id == pattern.id, "a sentence does not decide a number"


FEATURIZERS: tuple[Featurizer, ...] = (
    *(pattern() for pattern in PATTERNS.values()),
    ProgramNest(),
    LEAVES,
    CODE,
    HARDWARE,
)


def test_ids_of_models_that_were_saved_before_sentences_left_the_id_are_known() -> None:
    """Drop a line of FORMER_IDS when the version of its featurizer increases: then it no longer names these numbers."""
    assert sorted(FORMER_IDS.values()) == sorted(one.id for one in FEATURIZERS)
    for former, id_ in FORMER_IDS.items():
        (one,) = (one for one in FEATURIZERS if one.id == id_)
        assert one.has_id(id_)
        assert one.has_id(former)
        assert not any(other.has_id(former) for other in FEATURIZERS if other is not one)
        later = type("Later", (type(one),), {"version": one.version + 1})()
        assert not later.has_id(former)
    assert not HARDWARE.has_id(None)
    assert not HARDWARE.has_id(["list"])


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
