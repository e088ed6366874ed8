"""The background search: its child, what the child answers, and that nothing outlives the user's process."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp

from tensorwise.device.cpu import CpuDevice
from tensorwise.space.portfolio import portfolio
from tensorwise.sparse import children
from tensorwise.sparse import library as libraries
from tensorwise.sparse import search as searches
from tensorwise.sparse.given import GivenArrays
from tensorwise.sparse.kernels import COMPRESSED_KERNELS
from tensorwise.sparse.outcomes import BETTER, outcome_facts, record_of, record_outcome
from tensorwise.sparse.search import FormatSearch
from tensorwise.store.store import Store

LIMIT_S = 120.0
OTHER = SimpleNamespace(poll=lambda: None)
"""A child process that works."""


@pytest.fixture(autouse=True)
def _own_store(tmp_path, monkeypatch):
    monkeypatch.setenv("TENSORWISE_STORE", str(tmp_path / "records.sqlite"))
    monkeypatch.setattr(searches, "machine_is_busy", lambda: None)


def a_matrix(kind=sp.csr_array, size=400):
    return kind(sp.random_array((size, size), density=0.05, format="csr", rng=np.random.default_rng(0)))


def finished(search):
    until = time.monotonic() + LIMIT_S
    while (found := search.poll()) is None:
        assert time.monotonic() < until, "the search does not end"
        time.sleep(0.02)
    return found


def descendants(pid):
    """Processes below a process; a zombie is none."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
            except OSError:
                continue
            if state != "Z":
                parents[int(entry.name)] = int(parent)
    found, left = [], [pid]
    while left:
        children = [one for one, parent in parents.items() if parent == left[0]]
        left = left[1:] + children
        found += children
    return found


def child_of(search):
    """The child process of a search, as soon as there is one; other tests of this process may have children, too."""
    while search._child is None:
        assert search.poll() is None
        time.sleep(0.005)
    return search._child.pid


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def left_behind(user=None):
    """Folders of a process's searches in shared memory and the temporary folder; those of other tests are theirs."""
    import tempfile

    names = f"tensorwise-search-*-{user or os.getpid()}-*"
    return {p for place in ("/dev/shm", tempfile.gettempdir()) for p in Path(place).glob(names)}


def test_a_search_measures_beside_the_product_in_place_and_remembers():
    matrix = a_matrix()
    search = FormatSearch(matrix, "spmv", None, 1, 1e-4, 10.0)
    assert search.poll() is None
    found = finished(search)
    x = np.random.default_rng(1).standard_normal(matrix.shape[1])
    for product in found:
        out = np.full(matrix.shape[0], np.nan)
        product.run(x, out)
        np.testing.assert_allclose(out, matrix @ x, rtol=1e-12)
        assert 0 < product.expected_s < BETTER * 1e-4
    with Store() as store:
        records = list(store)
    measured = [r for r in records if "in_place_ratio" in r.provenance]
    assert measured, search.note
    assert all(r.provenance["measured_by"] == "background" and not r.is_isolated for r in records)
    assert search.cpu_s > 0.1
    assert not left_behind()
    search.stop()


def known_record(matrix, operation, columns, threads, ratio, wanted):
    """Remember that the first config of the portfolio that ``wanted`` takes is fast; return its program."""
    given = GivenArrays.of(matrix, operation, columns)
    work = given.workload
    with CpuDevice(threads) as device, Store() as store:
        space = device.space(work)
        config = next(c for c in portfolio(space, work) if wanted(space.program(work, c)))
        facts = outcome_facts(work, device, space, config, 100.0)
        store.append([record_of(facts, "background", ratio, 1.0)])
        return space.program(work, config)


@pytest.mark.parametrize(("kind", "operation", "columns"), [
    (sp.csr_array, "spmv", None), (sp.csr_array, "spmm_t", 8), (sp.csc_array, "spmm", 8), (sp.csc_matrix, "spmv_t", None),
])  # fmt: skip
def test_what_the_store_knows_is_named_without_measuring(kind, operation, columns):
    matrix = a_matrix(kind)
    program = known_record(
        matrix, operation, columns, 2, 0.5, lambda p: any(f.padded for f in p.formats.values())
    )
    search = FormatSearch(matrix, operation, columns, 2, 1e-3, 1.0)
    (product,) = finished(search)
    assert product.name == program.name
    assert product.expected_s == pytest.approx(0.5e-3)
    with Store() as store:
        assert len(store) == 1
    whole = matrix.T if operation.endswith("_t") else matrix
    shape = () if columns is None else (columns,)
    x = np.random.default_rng(1).standard_normal((whole.shape[1], *shape))
    for special in (None, np.nan, np.inf):
        if special is not None:
            x[7] = special
        out = np.empty((whole.shape[0], *shape))
        product.run(x, out)
        np.testing.assert_allclose(out, whole @ x, rtol=1e-12)


def test_an_outcome_on_users_calls_overrides_what_a_search_measured():
    matrix = a_matrix()
    known_record(matrix, "spmv", None, 1, 0.5, lambda p: True)
    (product,) = finished(FormatSearch(matrix, "spmv", None, 1, 1e-3, 1.0))
    record_outcome(product, 2e-3, 1e-3, calls=5)
    with Store() as store:
        last = list(store)[-1]
    assert not last.is_isolated
    assert last.provenance["in_place_ratio"] == pytest.approx(2.0)
    assert last.provenance["calls"] == 5
    assert finished(FormatSearch(matrix, "spmv", None, 1, 1e-3, 1.0)) == []


def test_a_much_larger_budget_searches_again():
    matrix = a_matrix()
    given = GivenArrays.of(matrix, "spmv", None)
    with CpuDevice(1) as device, Store() as store:
        space = device.space(given.workload)
        facts = outcome_facts(given.workload, device, space, space.default(given.workload), 0.05)
        store.append([record_of(facts, "background", 3.0, 1.0)])
    finished(FormatSearch(matrix, "spmv", None, 1, 1e-4, 10.0))
    with Store() as store:
        assert len(store) > 1


def test_no_search_while_the_machine_is_busy_or_another_one_runs(monkeypatch):
    matrix = a_matrix()
    first = FormatSearch(matrix, "spmv", None, 1, 1e-4, 10.0)
    second = FormatSearch(matrix, "spmv", None, 1, 1e-4, 10.0)
    assert second.poll() == []
    assert "another search" in second.note
    first.stop()
    assert first.poll() == []
    monkeypatch.undo()
    monkeypatch.setattr(os, "getloadavg", lambda: (1e6, 1.0, 1.0))
    third = FormatSearch(matrix, "spmv", None, 1, 1e-4, 10.0)
    assert third.poll() == []
    assert "load" in third.note
    assert third.cpu_s == 0
    third.stop()


def test_one_child_at_most_works_in_the_background(monkeypatch):
    """It searches or compiles kernels; the other waits."""
    started = []
    finder = libraries._Finder(COMPRESSED_KERNELS)
    monkeypatch.setattr(finder, "look", lambda: None)
    monkeypatch.setattr(finder, "_look_elsewhere", lambda: started.append("elsewhere"))
    monkeypatch.setattr(libraries, "_LOOK_AGAIN_S", 0.0)
    monkeypatch.setattr(
        children, "_start", lambda *given: started.append("child") or SimpleNamespace(poll=lambda: 0)
    )
    children._started.append(OTHER)
    try:
        for _ in range(2):
            assert finder.find(wait=False) is None
        assert started == ["elsewhere"], "once, and no child"
        search = FormatSearch(a_matrix(), "spmv", None, 1, 1e-4, 10.0)
        assert (search.poll(), search.note) == ([], searches.COMPILING)
        monkeypatch.setattr(searches, "background_work", lambda: None)
        search = FormatSearch(a_matrix(), "spmv", None, 1, 1e-4, 10.0)
        assert (finished(search), search.note) == ([], searches.COMPILING), "it began in between"
    finally:
        children._started.clear()
    for _ in range(3):
        assert finder.find(wait=False) is None
    assert started == ["elsewhere", "child"], "once"


def test_a_forked_process_has_no_child_of_its_parents():
    children._started.append(OTHER)
    try:
        pid = os.fork()
        if pid == 0:
            os._exit(int(children.child_is_running()))
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert children.child_is_running()
    finally:
        children._started.clear()


@pytest.mark.parametrize("matrix", [
    sp.csr_array((5, 5)), sp.csr_array(np.eye(3, dtype=complex)), sp.coo_array(np.eye(3)),
    sp.csr_array((np.ones(1), np.array([7]), np.array([0, 1])), shape=(1, 9)),
])  # fmt: skip
def test_what_cannot_be_searched_is_not_offered(matrix):
    if matrix.shape == (1, 9):
        matrix.indices[0] = 100
    assert finished(FormatSearch(matrix, "spmv", None, 1, 1e-4, 10.0)) == []


def test_a_matrix_that_hardly_fits_into_memory_is_not_searched(monkeypatch):
    monkeypatch.setattr("tensorwise.tensor.memory.available_bytes", lambda: 1000)
    search = FormatSearch(a_matrix(), "spmv", None, 1, 1e-4, 10.0)
    assert finished(search) == []
    assert "memory" in search.note
    assert search.cpu_s == 0


def test_a_request_that_cannot_be_read_is_answered(monkeypatch):
    monkeypatch.setattr("tensorwise.sparse.given.write_request", lambda folder, given, **told: None)
    search = FormatSearch(a_matrix(), "spmv", None, 1, 1e-4, 10.0)
    assert finished(search) == []
    assert "request.json" in search.note


def test_a_killed_child_ends_the_search():
    search = FormatSearch(a_matrix(size=2000), "spmv", None, 1, 1e-4, 1000.0)
    child = child_of(search)
    below = [child, *descendants(child)]
    os.kill(child, signal.SIGKILL)
    assert finished(search) == []
    assert "status -9" in search.note
    time.sleep(1.0)
    assert not any(map(is_alive, below))
    assert not left_behind()


def test_stop_ends_the_child_and_may_be_called_again():
    search = FormatSearch(a_matrix(size=2000), "spmv", None, 1, 1e-4, 1000.0)
    child = child_of(search)
    time.sleep(1.0)
    below = [child, *descendants(child)]
    search.stop()
    search.stop()
    assert search.poll() == []
    time.sleep(1.0)
    assert not any(map(is_alive, below))


@pytest.mark.parametrize("how", ["return", "os._exit", "kill", "fork"])
def test_nothing_outlives_the_process(how, tmp_path):
    ending = {"return": "", "os._exit": "os._exit(0)", "kill": "os.kill(os.getpid(), 9)", "fork": textwrap.dedent("""
        if os.fork() == 0:
            assert search.poll() == []
            search.stop()
            time.sleep(20)
            os._exit(0)
        os.kill(os.getpid(), 9)""")}[how]  # fmt: skip
    script = f"""
import os, time
import numpy as np
import scipy.sparse as sp
from tensorwise.sparse import search as searches
searches.machine_is_busy = lambda: None
matrix = sp.random_array((3000, 3000), density=0.05, format="csr", rng=np.random.default_rng(0))
search = searches.FormatSearch(matrix, "spmv", None, 2, 1e-4, 1000.0)
while search._child is None:
    time.sleep(0.01)
time.sleep(2.0)
print(search._child.pid, flush=True)
time.sleep(1.0)
{ending}
"""
    user = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    child = int(user.stdout.readline())
    assert left_behind(user.pid)
    below = {child, *descendants(child)}
    user.wait(30)
    until = time.monotonic() + 25.0
    while any(map(is_alive, below)) and time.monotonic() < until:
        below.update(descendants(child))
        time.sleep(0.1)
    assert not [pid for pid in below if is_alive(pid)]
    assert not left_behind(user.pid)
