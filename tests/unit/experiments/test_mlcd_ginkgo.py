"""The recorded selection problem: rows of CSV become records of devices."""

import gzip
import math
from pathlib import Path

import pytest
from recordings.ginkgo import Transfers, records

from tensorwise.errors import InputError
from tensorwise.model.cases import Cases, config_name
from tensorwise.runtime.call import Call
from tensorwise.space.config import Config
from tensorwise.store.recorded import RecordedDevice

FIELDS = ("rows", "cols", "row_skewness")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with gzip.open(tmp_path / "matrices.csv.gz", "wt") as file:
        file.write("group,name,rows,cols,row_skewness\nG,a,1000,1000,0.5\nG,b,2000,2000,\nH,c,10,10,nan\n")
    with gzip.open(tmp_path / "spmv_times.csv.gz", "wt") as file:
        file.write(
            "device,executor,group,name,format,time_s,storage_bytes,completed\n"
            "V,cuda,G,a,Csr,1e-5,12000,True\nV,cuda,G,a,Ell,2e-5,24000,True\nV,cuda,G,b,Csr,3e-5,24000,True\n"
            "V,cuda,G,b,Ell,,0,False\nV,cuda,H,c,Csr,1e-6,100,True\nX,omp,H,c,Csr,2e-6,100,True\n"
            "V,cuda,G,zzz,Csr,1e-5,1,True\nV,cuda,G,a,Csrc,1e-9,1,True\n"
        )
    return tmp_path


def test_each_device_is_a_problem_of_its_own(folder: Path) -> None:
    found = records(folder, FIELDS, ("csr", "ell"))
    cases = Cases.of(found["V"])
    assert [config_name(config) for config in cases.configs] == ["csr", "ell"]
    assert cases.seconds.tolist() == [[1e-5, 2e-5], [3e-5, math.inf], [1e-6, math.inf]]
    assert cases.fields == ("cols", "row_skewness", "rows")
    assert cases.features.tolist() == [[1000, 0.5, 1000], [2000, 0, 2000], [10, 0, 10]]
    assert cases.groups == ("G", "G", "H")
    assert len(found["X"]) == 1
    device = RecordedDevice(found["V"])
    call = Call("spmv", {"rows": 1000.0, "cols": 1000.0, "row_skewness": 0.5})
    assert [one.seconds for one in device.measure(call, cases.configs)] == [1e-5, 2e-5]
    with pytest.raises(InputError, match="2 devices"):
        RecordedDevice([*found["V"], *found["X"]])


def test_transfers_are_part_of_a_version_elsewhere(folder: Path) -> None:
    transfers = Transfers(latency_s=1e-5, bytes_per_s=1e9, calls=10.0, devices=("V", "X"), hosts=("X",))
    cases = Cases.of(records(folder, FIELDS, ("csr", "ell"), transfers)["all"])
    place = {config: k for k, config in enumerate(cases.configs)}
    on_v, on_x = (Config({"version": f"csr on {device}"}) for device in "VX")
    assert cases.seconds[2, place[on_x]] == 2e-6
    assert cases.seconds[2, place[on_v]] == pytest.approx(1e-6 + 2e-5 + (100 / 10 + 8 * 20) / 1e9)


def test_missing_files_and_columns_are_said(folder: Path) -> None:
    with pytest.raises(InputError, match="lacks the column 'nonzeros'"):
        records(folder, ("rows", "nonzeros"), ("csr",))
    with pytest.raises(InputError, match="is not there"):
        records(folder / "nowhere", FIELDS, ("csr",))
