"""What killed processes left in the temporary folder goes; what anybody may still use stays."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tensorwise.toolchain import scratch
from tensorwise.toolchain.scratch import scratch_prefix, sweep

pytestmark = pytest.mark.skipif(not scratch._system(), reason="processes cannot be told apart here")
LEAVING = """
import sys, tempfile, time
from pathlib import Path
from tensorwise.toolchain.scratch import scratch_prefix
folder = Path(tempfile.mkdtemp(prefix=scratch_prefix("operands")))
(folder / "values.npy").write_bytes(bytes(1000))
print(folder, flush=True)
time.sleep(1000)
"""


def test_the_folder_of_a_killed_process_goes_and_that_of_a_living_one_stays(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, "-c", LEAVING], stdout=subprocess.PIPE, text=True, env=environment
    ) as other:
        assert other.stdout is not None
        folder = Path(other.stdout.readline().strip())
        assert folder.parent == tmp_path
        sweep(tmp_path)
        assert (folder / "values.npy").exists()
        other.send_signal(signal.SIGKILL)
    sweep(tmp_path)
    assert not folder.exists()


def test_only_what_is_proved_to_be_left_goes(tmp_path: Path) -> None:
    system, mine = scratch._system(), scratch._start_of(os.getpid())
    gone = tmp_path / f"tensorwise-cc-{system}-{os.getpid()}-1-x"  # another process had this number before
    kept = [
        tmp_path / name
        for name in (
            f"tensorwise-cc-{system}-{os.getpid()}-{mine}-x", f"tensorwise-cc-00000000-{os.getpid()}-1-x",
            "tensorwise-cc-old", "tensorwise", f"other-cc-{system}-{os.getpid()}-1-x",
        )
    ]  # fmt: skip
    for folder in (gone, *kept):
        folder.mkdir()
    target = tmp_path / "target"
    target.mkdir()
    (target / "file").touch()
    link = tmp_path / f"tensorwise-cc-{system}-{os.getpid()}-2-link"
    link.symlink_to(target)
    file = tmp_path / f"tensorwise-cc-{system}-{os.getpid()}-3-file"
    file.touch()
    sweep(tmp_path)
    assert not gone.exists()
    assert all(folder.is_dir() for folder in kept)
    assert (target / "file").exists()
    assert link.is_symlink()
    assert file.exists()


def test_the_first_folder_of_a_process_sweeps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    left = tmp_path / f"tensorwise-operands-{scratch._system()}-{os.getpid()}-1-x"
    left.mkdir()
    scratch._sweep_once.cache_clear()
    assert scratch_prefix("operands").startswith(f"tensorwise-operands-{scratch._system()}-{os.getpid()}-")
    assert not left.exists()
