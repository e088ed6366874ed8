"""What is loaded is this user's alone: folders and files are made so, and looked at before anything is loaded."""

import os
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tensorwise.device.roofline import MEMORY_LEVELS, Roofline, _read_figures, _write_figures
from tensorwise.model.finding import bundled_folders, calibrated, find_models, roots
from tensorwise.store.store import Store
from tensorwise.toolchain.cache import KernelCache
from tensorwise.toolchain.compiler import CompilerError
from tensorwise.toolchain.places import distrusted, private_dir
from tensorwise.toolchain.shelf import Shelf
from tensorwise.writing import replacing

KEY = "00" + "a" * 30
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give folders away")


@pytest.fixture(params=[0o000, 0o002, 0o022, 0o077, 0o277], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    old = os.umask(request.param)
    yield request.param
    os.umask(old)


def _modes(top: Path) -> dict[str, int]:
    places = [top, *top.rglob("*")]
    return {str(place.relative_to(top)): stat.S_IMODE(place.lstat().st_mode) for place in places}


def test_all_that_is_kept_is_the_users_alone_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    top = tmp_path / "home" / "cache"
    shelf = Shelf(top / "kernels", top)
    shelf.publish(b"library", [KEY])
    with shelf.locked([KEY], 1.0):
        pass
    rates = dict.fromkeys(MEMORY_LEVELS, 1e9)
    _write_figures(top / "roofline.json", Roofline(1, rates, {"float32": 1.0, "float64": 1.0}, {"16": 1.0}))
    with Store(top / "data" / "records.sqlite") as store:
        list(store)
        modes = _modes(tmp_path / "home")
    made = {
        "cache",
        "cache/kernels/00",
        "cache/kernels/tmp",
        "cache/roofline.json",
        "cache/data/records.sqlite",
    }
    assert made <= set(modes)
    assert {name: oct(mode) for name, mode in modes.items() if mode & 0o077} == {}
    assert shelf.find(KEY)


def test_folders_that_are_there_stay_as_they_are(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir(mode=0o755)
    private_dir(shared / "a" / "b")
    assert [stat.S_IMODE((shared / name).stat().st_mode) for name in (".", "a", "a/b")] == [
        0o755,
        0o700,
        0o700,
    ]
    with replacing(shared / "file") as file:
        file.write(b"x")
    assert stat.S_IMODE((shared / "file").stat().st_mode) & 0o044, "a file that others may read stays one"
    (shared / "taken").write_text("x")
    with pytest.raises(OSError, match=r"taken"):
        private_dir(shared / "taken" / "below")


def _give(path: Path) -> None:
    os.chown(path, 12345, -1)


def _open(mode: int) -> Callable[[Path], None]:
    return lambda path: path.chmod(mode)


def _link(path: Path) -> None:
    elsewhere = path.with_name(f"{path.name}.elsewhere")
    path.rename(elsewhere)
    path.symlink_to(elsewhere)


FOLDERS = ["", "kernels", "kernels/00"]
ENTRY = f"kernels/00/{KEY}.so"


def _plants(*places: str) -> list[Any]:
    """Ways in which a folder or an entry may be another user's, each with an id."""
    found = []
    for place in places:
        for mode in (0o777, 0o770, 0o722):
            found.append(pytest.param(place, _open(mode), id=f"{place or 'top'} {mode:o}"))
        found.append(pytest.param(place, _give, id=f"{place or 'top'} of another", marks=as_root))
        if place:
            found.append(pytest.param(place, _link, id=f"{place} a link"))
    return found


@pytest.mark.parametrize(("place", "spoil"), _plants(*FOLDERS, ENTRY))
def test_no_planted_library_is_found(tmp_path: Path, place: str, spoil: Callable[[Path], None]) -> None:
    top = tmp_path / "cache"
    shelf = Shelf(top / "kernels", top)
    shelf.publish(b"library", [KEY])
    assert shelf.find(KEY)
    spoil(top / place)
    assert shelf.find(KEY) is None
    assert Shelf(top / "kernels", top).find(KEY) is None


@pytest.mark.parametrize(("place", "spoil"), _plants(*FOLDERS))
def test_nothing_is_published_where_others_may_write(
    tmp_path: Path, place: str, spoil: Callable[[Path], None]
) -> None:
    top = tmp_path / "cache"
    shelf = Shelf(top / "kernels", top)
    shelf.publish(b"library", [KEY])
    spoil(top / place)
    with pytest.raises(OSError, match=r"others may write|belongs to user|symbolic link"):
        shelf.publish(b"library", [KEY])


def test_a_planted_library_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole way: a kernel is compiled anew, though the folder has a sealed library of its name."""
    text = "int TW_SYMBOL(void *const *buffers, const int64_t *sizes) { return 7; }\n"
    try:
        key = KernelCache(tmp_path).key(text)
    except CompilerError as error:
        pytest.skip(str(error))
    with monkeypatch.context() as other:
        other.setattr(KernelCache, "key", lambda self, text: key)
        (evil,) = KernelCache(tmp_path / "evil").get([text.replace("7", "8")])
    for mode, said in ((0o700, 8), (0o777, 7)):  # in a folder of the user's own it is trusted
        top = tmp_path / f"{mode:o}"
        folder = private_dir(top / "kernels" / key[:2])
        shutil.copy2(evil.path, folder / evil.path.name)
        folder.chmod(mode)
        (kernel,) = KernelCache(top / "kernels", top=top).get([text])
        assert kernel.function(None, None) == said


def test_figures_and_models_of_others_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSORWISE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr("tensorwise.model.finding.roots", roots)  # as it is: other tests have none
    place = private_dir(calibrated() / "spmm-1")
    for name in ("model.json", "model.safetensors"):
        (place / name).write_text("{}")
    (place / "model.json").chmod(0o600)
    assert place in find_models()
    (place / "model.json").chmod(0o666)
    assert place not in find_models()
    (place / "model.json").chmod(0o600)
    calibrated().parent.chmod(0o777)
    assert roots() == bundled_folders()
    assert "others may write" in str(distrusted(place))


def test_planted_figures_of_the_machine_are_a_miss(tmp_path: Path) -> None:
    top = private_dir(tmp_path / "cache")
    path = top / "roofline.json"
    from tensorwise.device.roofline import _REALS, _widths

    rates, flops = dict.fromkeys(MEMORY_LEVELS, 1e9), dict.fromkeys(_REALS, 1e9)
    _write_figures(path, Roofline(1, rates, flops, dict.fromkeys(_widths(), 1e9)))
    assert _read_figures(path, 1) is not None
    path.chmod(0o666)
    assert _read_figures(path, 1) is None
    path.chmod(0o600)
    top.chmod(0o777)
    assert _read_figures(path, 1) is None
