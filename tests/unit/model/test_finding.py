"""Which model is taken when nobody names one."""

import subprocess
import sys
from importlib.metadata import EntryPoint
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from tensorwise.device.host import host
from tensorwise.errors import InputError
from tensorwise.front.api import tune
from tensorwise.front.cli import app
from tensorwise.model import MeanModel
from tensorwise.model.finding import (
    MODEL_FOLDERS,
    NOT_INSTALLED,
    bundled_folders,
    bundled_model,
    calibrated,
    calibrated_for,
    find_models,
    find_models_for,
    roots,
)
from tensorwise.model.model import DESCRIPTION
from tensorwise.program.einsum import Einsum
from tensorwise.program.workload import workload
from tensorwise.space.cpu import cpu_space
from tensorwise.tensor.convert import entries_from
from tensorwise.tensor.files import write
from tensorwise.tuning.advice import Advisor, load_bundled_advisors

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
    assert find_models() == []
    assert find_models_for("spmm", SPMM, 1) == []


def test_the_nearest_number_of_threads_and_then_the_calibrated_one_comes_first(
    folders: tuple[Path, Path],
) -> None:
    here, packaged = folders
    one = put(packaged / "spmm", einsum=SPMM, threads=1)
    two = put(packaged / "spmm-2", einsum=SPMM, threads=2)
    own = put(here / "spmm-0123abcd", einsum=SPMM, threads=2)
    put(packaged / "spmm_t", einsum="C[k,j] += A[i,k] * B[i,j]", threads=2)
    assert find_models_for("spmm", SPMM, 2) == [own, two, one]
    assert find_models_for("spmm", SPMM, 1)[0] == one
    assert find_models_for("spmm", SPMM, 64) == [own, two, one]
    assert len(find_models_for("spmm_t", "C[k,j] += A[i,k] * B[i,j]", 1)) == 1
    assert find_models()[0] == own
    assert len(find_models()) == 4


def test_an_operation_may_stand_for_several_einsums(folders: tuple[Path, Path]) -> None:
    first = put(folders[1] / "mttkrp", einsum="first", threads=1)
    second = put(folders[1] / "mttkrp-mode1", einsum="second", threads=1)
    assert find_models_for("mttkrp", "second", 1) == [second]
    assert find_models_for("mttkrp", "first", 1) == [first]
    assert find_models_for("mttkrp", "third", 1) == []


def test_a_damaged_one_comes_last(folders: tuple[Path, Path]) -> None:
    broken, sound = put(folders[0] / "spmm", einsum=SPMM), put(folders[1] / "spmm", einsum=SPMM, threads=64)
    for text in (
        "{",
        '{"kind": "mean"}',
        '{"kind": "mean", "card": 7}',
        '{"kind": "mean", "card": {"threads": "two"}}',
    ):
        (broken / DESCRIPTION).write_text(text)
        assert find_models_for("spmm", SPMM, 1) == [sound, broken]


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


@pytest.mark.parametrize("name", ["mttkrp", "sddmm", "spmm", "spmv"])
def test_bundled_models_can_be_used(name: str) -> None:
    """A model for an older table of choices may be used; one for a quite different table has to be trained again."""
    advisor = Advisor.load(bundled_model(name))
    card = advisor.model.card
    assert advisor.model.misfit(cpu_space(Einsum.parse(card["einsum"]).single)) is None
    assert name == card["op"]
    assert card["machine"] is not None
    assert advisor.graph is None or len(advisor.graph)


def test_no_bundled_model_is_left_out_of_these_tests() -> None:
    (folder,) = bundled_folders()
    known = {path.name for path in folder.iterdir() if path.is_dir() and path.name[0] not in "._"}
    assert known == {"latency", "mttkrp", "sddmm", "spmm", "spmv"}


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> dict[str, EntryPoint]:
    """The entry points of the group ``tensorwise.model_folders``, which a test changes."""
    points: dict[str, EntryPoint] = {}
    monkeypatch.setattr(MODEL_FOLDERS, "_installed", points)
    monkeypatch.setattr(MODEL_FOLDERS, "_rows", {})
    monkeypatch.setattr("tensorwise.model.finding.roots", roots)  # as it is: other tests have none
    return points


def entry_point(name: str, value: str) -> EntryPoint:
    return EntryPoint(name, value, "tensorwise.model_folders")


def test_models_of_other_packages_are_found_by_their_entry_points(
    installed: dict[str, EntryPoint], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENSORWISE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "packaged_models.py").write_text(
        "from pathlib import Path\nFOLDER = Path(__file__).parent / 'some'\nTEXT = 'some'\n"
    )
    one = put(tmp_path / "some" / "spmm", einsum=SPMM, threads=1)
    installed["mine"] = entry_point("mine", "packaged_models:FOLDER")
    assert bundled_folders() == (one.parent,)
    assert find_models_for("spmm", SPMM, 1) == [one]
    (one / DESCRIPTION).chmod(0o666)  # whoever may write into an installed package may do anything
    assert find_models() == [one]
    assert bundled_model("spmm") == one
    with pytest.raises(InputError, match=r"no bundled model is called 'spmv'; looked in .*some"):
        bundled_model("spmv")
    installed["broken"] = entry_point("broken", "packaged_models:TEXT")
    with pytest.warns(RuntimeWarning, match="is no Path; it is left out"):
        assert find_models_for("spmm", SPMM, 1) == [one]


def test_without_bundled_models_who_needs_one_is_told_what_to_install(
    installed: dict[str, EntryPoint], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENSORWISE_CACHE_DIR", str(tmp_path / "cache"))
    problems: list[str] = []
    work = workload("spmm", entries_from(np.eye(3, dtype=np.float32)), n=8)
    assert load_bundled_advisors(work, 1, problems) == []
    assert problems == [NOT_INSTALLED]
    found = tune(work.entries, "spmm", n=8, trials=2, threads=1, store=False)
    assert [note for note in found.result.notes if "pip install tensorwise-models" in note]
    with pytest.raises(InputError, match="pip install tensorwise-models"):
        bundled_model("spmm")
    write(tmp_path / "a.mtx", work.entries)
    torch_is_installed = find_spec("torch") is not None  # without it, that is said first
    for command in (
        ["model"],
        ["calibrate", str(tmp_path / "a.mtx"), "--op", "spmm", "--n", "8", "--device", "null"],
        *([["tasks", "adapt", "--folder", str(tmp_path)]] if torch_is_installed else []),
    ):
        said = " ".join(CliRunner().invoke(app, command).stderr.split())
        assert said.count("pip install tensorwise-models") == 1, said


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
