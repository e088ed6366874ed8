"""Patterns on disk, and families that stay together."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from tensorwise.collect.augment import Augmentation
from tensorwise.collect.corpus import patterns, read_pattern
from tensorwise.errors import InputError
from tensorwise.store.split import split_families
from tensorwise.tensor.convert import entries_from
from tensorwise.tensor.files import write


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for family, name in (("fem", "b.mtx"), ("fem", "a.mtx.gz"), ("web", "c.npz"), ("tensors", "d.tns")):
        (tmp_path / family).mkdir(exist_ok=True)
        array = np.eye(4) if family != "tensors" else np.ones((2, 3, 2))
        write(tmp_path / family / name, entries_from(array))
    (tmp_path / "fem" / "notes.txt").write_text("no matrix")
    return tmp_path


def test_a_folder(folder: Path) -> None:
    found = patterns([folder])
    assert [(p.name, p.family, p.order) for p in found] == [
        ("a", "fem", 2), ("b", "fem", 2), ("c", "web", 2), ("d", "tensors", 3),
    ]  # fmt: skip
    assert len({p.digest for p in found}) == 4
    assert [p.name for p in patterns([folder / "web" / "c.npz", folder / "tensors"])] == ["c", "d"]


def test_a_manifest_counts_instead_of_the_files(folder: Path) -> None:
    manifest = folder / "MANIFEST.csv"
    manifest.write_text("name,file,order,nnz,group,more\nbig,fem/b.mtx,2,9,x,y\nsmall,web/c.npz,2,4,z,y\n")
    for source in (folder, manifest):
        assert [(p.name, p.family, p.nnz) for p in patterns([source])] == [("small", "z", 4), ("big", "x", 9)]


def test_a_link_is_of_the_family_of_its_own_folder(folder: Path, tmp_path: Path) -> None:
    """Not of the folder that it leads to: a corpus of links is sorted by those who made the links."""
    file = next(path for path in folder.rglob("*.mtx"))
    (tmp_path / "cfd").mkdir()
    (tmp_path / "cfd" / "flow.mtx").symlink_to(file)
    (found,) = patterns([tmp_path / "cfd"])
    assert (found.name, found.family, found.path) == ("flow", "cfd", file.resolve())
    (again,) = patterns([tmp_path / "cfd" / ".." / "cfd" / "flow.mtx"])
    assert again.family == "cfd"


@pytest.mark.parametrize(
    "text", ["name,file\na,b\n", "name,file,order,nnz,group\na,b,two,3,x\n", "name,file,order,nnz,group\na\n"]
)
def test_a_malformed_manifest_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "list.csv").write_text(text)
    with pytest.raises(InputError, match=r"list\.csv"):
        patterns([tmp_path / "list.csv"])


def test_what_is_not_there_or_twice_there_is_refused(folder: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        patterns([folder / "nothing"])
    (folder / "empty").mkdir()
    with pytest.raises(InputError, match="no matrix or tensor"):
        patterns([folder / "empty"])
    with pytest.raises(InputError, match=r"such as 'b' .*rename"):
        patterns([folder / "fem", folder / "fem" / "b.mtx"])


def test_reading(folder: Path) -> None:
    assert read_pattern(folder / "fem" / "b.mtx").dtype == np.float32
    assert read_pattern(folder / "fem" / "b.mtx", Augmentation((2, 2), (8, 8))).nnz == 16
    (folder / "z.mtx").write_text("%%MatrixMarket matrix coordinate complex general\n2 2 1\n1 2 3.0 4.0\n")
    assert read_pattern(folder / "z.mtx").values.tolist() == [3.0]


def test_families_are_never_divided() -> None:
    families = ["fem"] * 60 + ["lp"] * 70 + ["web"] * 10 + ["qp"] * 26 + [f"f{k}" for k in range(30)]
    for seed in range(20):
        split = split_families(families, np.random.default_rng(seed))
        assert split == split_families(reversed(families), np.random.default_rng(seed))
        assert split.keys() == set(families)
        assert set(split.values()) == {"train", "validation", "test"}
    held = Counter(split_families([f"f{k}" for k in range(100)], np.random.default_rng(0)).values())
    assert held == {"train": 80, "validation": 10, "test": 10}
    with pytest.raises(InputError, match="add up"):
        split_families(families, np.random.default_rng(0), {"train": 0.5})
