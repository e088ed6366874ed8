"""Some sequences of calls on sparse arrays, against SciPy's; and a fault is found, shortened and shown."""

import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tensorwise.sparse import arrays

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT / "benchmarks" / "robustness"))

import sequences
from sequencing.playing import KINDS, SETTINGS, counted, draw, invent, play, script, shorten

COUNT = 12
"""Sequences of each kind and setting."""


@pytest.fixture(scope="module", autouse=True)
def _library():
    sequences.prepare()


@pytest.mark.parametrize("setting", sorted(set(SETTINGS)))
@pytest.mark.parametrize("kind", sorted(set(KINDS)))
def test_sequences_end_as_with_scipy(kind, setting):
    before = counted["sequences with such matrices"]
    for number in range(COUNT):
        rng = random.Random(f"test {kind} {setting} {number}")
        lines, what = invent(rng, kind, setting, draw(rng)[2], lambda line: None)
        assert what is None, script(lines, kind, setting, what)
    assert setting == "plain" or counted["sequences with such matrices"] > before, (
        "our kernels computed nothing"
    )


LINES = [
    "B = S.coo_array(coordinates(5, 3, 3, 4, 'float64'), shape=(3, 3))",
    "A = S.csr_array(compressed(1, 6, 5, 12, 'float32', 'sorted'), shape=(6, 5))",
    "A.data *= 2",
    "x = operand(2, (5, 3), 'float32'); result = A @ x  #~ magnitude(A, x)",
]


def test_lines_of_the_test_below_do_not_differ():
    assert play(LINES, "arrays", "reproducible") is None


def test_a_wrong_number_is_found_and_shortened(monkeypatch):
    right = arrays.csr_array.__matmul__
    monkeypatch.setattr(arrays.csr_array, "__matmul__", lambda self, x: right(self, x) * (1 + 1e-5))
    number, what = play(LINES, "arrays", "reproducible")
    assert number == 3
    assert "apart where" in what
    kept = shorten(LINES, lambda lines: play(lines, "arrays", "reproducible") is not None)
    assert kept == LINES[1::2]


@pytest.mark.parametrize(
    ("name", "wrong", "said"),
    [
        ("__matmul__", lambda self, x: x, "shape"),
        ("__matmul__", lambda self, x: (self.toarray() @ x).astype(float), "dtype float64, expected float32"),
        ("__matmul__", lambda self, x: self.nothing, "AttributeError"),
        ("__imul__", lambda self, x: self, "afterwards"),
        ("copy", lambda self: self, "A afterwards"),
    ],
)
def test_other_faults_are_found(monkeypatch, name, wrong, said):
    monkeypatch.setattr(arrays.csr_array, name, wrong, raising=False)
    lines = [*LINES[1:], "A *= 2", "B = A.copy()", "B.data[:] = 1"]
    found = play(lines, "arrays", "plain")
    assert found is not None
    assert said in found[1]


def test_a_crash_ends_a_fork_and_is_told():
    assert sequences.in_fork(lambda tell: tell(7), 5.0) is None
    assert sequences.in_fork(lambda tell: (tell(7), sequences.os.abort()), 5.0) == (7, "crash: SIGABRT")
    assert sequences.in_fork(lambda tell: (tell(8), sequences.time.sleep(60)), 0.2) == (8, "hang")


def test_what_takes_scipy_itself_long_is_no_finding():
    lines = [
        "A = S.csr_matrix(numbers(1, (300, 15), 'float64'))",
        "x = operand(2, (7, 300), 'float64', 'masked'); x * A",
    ]
    assert not sequences.differs_from_itself(lines[:1], 30.0)
    assert sequences.differs_from_itself(lines, 0.01)


def test_the_program_of_a_difference_runs(tmp_path):
    program = script(LINES, "arrays", "plain", "nothing")
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "None\n"


def test_a_campaign_goes_on_where_it_stopped(tmp_path, monkeypatch, capsys):
    out = tmp_path / "out.json"
    for sequences_so_far in (3, 6):
        monkeypatch.setattr(sys, "argv", ["sequences.py", "--sequences", "6", "--out", str(out)])
        monkeypatch.setattr(sequences, "CHUNK", 3)
        taken = iter(range(sequences_so_far // 3))
        whole = sequences.chunk

        def once(seed, first, count, whole=whole, taken=taken, so_far=sequences_so_far):
            if first >= so_far:
                raise KeyboardInterrupt
            return whole(seed, first, count)

        monkeypatch.setattr(sequences, "chunk", once)
        if sequences_so_far == 3:
            with pytest.raises(KeyboardInterrupt):
                sequences.main()
        else:
            assert sequences.main() == 0
        monkeypatch.setattr(sequences, "chunk", whole)
    assert re.match("6 sequences in .* 0 with a difference", capsys.readouterr().out)
