"""Which model is taken when nobody names one."""

import subprocess
import sys
from pathlib import Path

import pytest

from tensorwise.device.host import host
from tensorwise.model import MeanModel
from tensorwise.model.finding import PACKAGED, calibrated, calibrated_for, shipped, shipped_for
from tensorwise.model.model import DESCRIPTION
from tensorwise.program.einsum import Einsum
from tensorwise.space.cpu import cpu_space
from tensorwise.tuning.advice import Advisor

SPMM = "C[i,j] += A[i,k] * B[k,j]"


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Where calibrated models and those that came along are looked for."""
    found = tmp_path / "calibrated", tmp_path / "shipped"
    monkeypatch.setattr("tensorwise.model.finding.roots", lambda: found)
    return found


def put(folder: Path, **card: object) -> Path:
    model = MeanModel()
    model.card = card
    model.save(folder)
    return folder


def test_without_any_there_is_none(folders: tuple[Path, Path]) -> None:
    assert shipped() == []
    assert shipped_for("spmm", SPMM, 1) == []


def test_the_nearest_number_of_threads_and_then_the_calibrated_one_comes_first(
    folders: tuple[Path, Path],
) -> None:
    here, packaged = folders
    one = put(packaged / "spmm", einsum=SPMM, threads=1)
    two = put(packaged / "spmm-2", einsum=SPMM, threads=2)
    own = put(here / "spmm-0123abcd", einsum=SPMM, threads=2)
    put(packaged / "spmm_t", einsum="C[k,j] += A[i,k] * B[i,j]", threads=2)
    assert shipped_for("spmm", SPMM, 2) == [own, two, one]
    assert shipped_for("spmm", SPMM, 1)[0] == one
    assert shipped_for("spmm", SPMM, 64) == [own, two, one]
    assert len(shipped_for("spmm_t", "C[k,j] += A[i,k] * B[i,j]", 1)) == 1
    assert shipped()[0] == own
    assert len(shipped()) == 4


def test_an_operation_may_stand_for_several_einsums(folders: tuple[Path, Path]) -> None:
    first = put(folders[1] / "mttkrp", einsum="first", threads=1)
    second = put(folders[1] / "mttkrp-mode1", einsum="second", threads=1)
    assert shipped_for("mttkrp", "second", 1) == [second]
    assert shipped_for("mttkrp", "first", 1) == [first]
    assert shipped_for("mttkrp", "third", 1) == []


def test_a_damaged_one_comes_last(folders: tuple[Path, Path]) -> None:
    broken, sound = put(folders[0] / "spmm", einsum=SPMM), put(folders[1] / "spmm", einsum=SPMM, threads=64)
    for text in (
        "{",
        '{"kind": "mean"}',
        '{"kind": "mean", "card": 7}',
        '{"kind": "mean", "card": {"threads": "two"}}',
    ):
        (broken / DESCRIPTION).write_text(text)
        assert shipped_for("spmm", SPMM, 1) == [sound, broken]


def test_where_models_are(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TENSORWISE_CACHE_DIR", str(tmp_path))
    assert calibrated() == tmp_path / "models" / host().id
    places = {
        calibrated_for("spmm", SPMM, 1),
        calibrated_for("spmm", SPMM, 2),
        calibrated_for("spmm", "another", 1),
    }
    assert len(places) == 3
    assert {place.parent for place in places} == {calibrated()}
    assert PACKAGED.parent == Path(__file__).parents[3] / "tensorwise" / "model"


@pytest.mark.parametrize(
    "folder", [path.parent for path in sorted(PACKAGED.glob(f"*/{DESCRIPTION}"))], ids=lambda p: p.name
)
def test_what_comes_along_can_be_used(folder: Path) -> None:
    """A model for an older table of choices may be used; one for a quite different table has to be trained again."""
    advisor = Advisor.load(folder)
    card = advisor.model.card
    assert advisor.model.misfit(cpu_space(Einsum.parse(card["einsum"]).single)) is None
    assert folder.name.partition("-")[0] == card["op"]
    assert card["machine"] is not None
    assert advisor.graph is None or len(advisor.graph)


def test_a_kind_of_model_is_imported_when_it_is_used() -> None:
    code = """
import sys
import tensorwise.model as models
assert "tensorwise.model.transfer" not in sys.modules
assert models.TransferModel is models.MODELS["transfer"]
assert set(models.__all__) <= {*dir(models), *models._LAZY_CLASSES}
try:
    models.OracleModel
except AttributeError as error:
    assert "OracleModel" in str(error)
else:
    raise SystemExit("there is no such model")
"""
    subprocess.run([sys.executable, "-c", code], check=True)
