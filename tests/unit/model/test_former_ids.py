"""Models that were saved when the ids of features depended on sentences are read as before."""

import shutil
from pathlib import Path

import pytest

from tensorwise.analysis.featurizer import FORMER_IDS
from tensorwise.errors import InputError
from tensorwise.model import load_model
from tensorwise.model.finding import bundled_model
from tensorwise.model.latency import LATENCY, LatencyModel
from tensorwise.model.model import DESCRIPTION


def copied(name: str, folder: Path, ids: dict[str, str]) -> Path:
    """Copy a bundled model, with the ids of features in its description replaced."""
    shutil.copytree(bundled_model(name), folder)
    path = folder / (LATENCY.files[0] if name == "latency" else DESCRIPTION)
    text = path.read_text()
    assert sum(id_ in text for id_ in ids) >= 2
    for id_, other in ids.items():
        text = text.replace(id_, other)
    path.write_text(text)
    return folder


@pytest.mark.parametrize("name", ["spmm", "mttkrp", "latency"])
def test_a_model_with_former_ids_is_read_and_one_with_others_is_refused(name: str, tmp_path: Path) -> None:
    load = LatencyModel.load if name == "latency" else load_model
    load(copied(name, tmp_path / "former", {id_: former for former, id_ in FORMER_IDS.items()}))
    others = {id_: former[::-1] for former, id_ in FORMER_IDS.items()}
    with pytest.raises(InputError, match="train it again"):
        load(copied(name, tmp_path / "other", others))
