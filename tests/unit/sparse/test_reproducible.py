"""``TENSORWISE_REPRODUCIBLE=1``: equal inputs give equal bits, whatever the process, number of threads or call."""

import json
import os
import subprocess
import sys

CHILD = """
import hashlib
import json
import time
import numpy as np
import scipy.sparse as sp
from tensorwise.sparse import csr_array

def hashes(product):
    found, calls, end_s = set(), 0, time.perf_counter() + 0.1
    while calls < 200 or time.perf_counter() < end_s:
        found.add(product().tobytes())
        calls += 1
    return [hashlib.sha256(bits).hexdigest() for bits in found]

rng = np.random.default_rng(0)
made = sp.random_array((3000, 3000), density=0.01, format="csr", rng=rng)
x, X = rng.standard_normal(3000), rng.standard_normal((3000, 4))
results = {}
for kind, A in (("plain", csr_array(made)), ("frozen", csr_array(made).freeze())):
    results[f"{kind}: A @ x"] = hashes(lambda: A @ x)
    results[f"{kind}: A @ X"] = hashes(lambda: A @ X)
    results[f"{kind}: A.T @ x"] = hashes(lambda: A.T @ x)
print(json.dumps(results))
"""
"""Prints the hashes of all results of each product. The calls last long enough for trials of threads and of slices."""


def hashes_of_a_process(threads, reproducible):
    environment = {key: text for key, text in os.environ.items() if key != "OMP_NUM_THREADS"}
    environment |= {"TENSORWISE_NUM_THREADS": str(threads), "TENSORWISE_AUTOTUNE": "background"}
    environment |= {"TENSORWISE_REPRODUCIBLE": str(reproducible)}
    ran = subprocess.run(
        [sys.executable, "-c", CHILD], env=environment, capture_output=True, text=True, timeout=300
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def test_processes_of_one_and_two_threads_give_equal_bits():
    processes = [hashes_of_a_process(threads, reproducible=1) for threads in (1, 2)]
    assert len(processes[0]) == 6
    for product in processes[0]:
        assert len(set().union(*(found[product] for found in processes))) == 1, product


def test_without_it_these_calls_give_other_bits():
    """Else the test above would pass whatever the variable does."""
    found = hashes_of_a_process(threads=1, reproducible=0)
    assert len(found["frozen: A @ x"]) > 1
