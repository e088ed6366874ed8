"""Solves a linear program by the primal-dual hybrid gradient method: ``python pdhg.py MATRIX OUT``.

Minimise c x where A x = b and x >= 0; right side and costs are made so that a solution is known to exist.
"""

import sys

import numpy as np
import scipy.sparse as sp

STEPS = 2500
A = sp.csr_array(sp.load_npz(sys.argv[1]))
rng = np.random.default_rng(0)
solution = np.where(rng.random(A.shape[1]) < 0.1, rng.random(A.shape[1]), 0.0)
b, c = A @ solution, A.T @ rng.standard_normal(A.shape[0]) + (solution == 0) * rng.random(A.shape[1])
guess = rng.standard_normal(A.shape[1])
for _ in range(20):
    guess = A.T @ (A @ (guess / np.linalg.norm(guess)))
step = 0.9 / np.sqrt(np.linalg.norm(guess))
x, y = np.zeros(A.shape[1]), np.zeros(A.shape[0])
for _ in range(STEPS):
    before = x
    x = np.maximum(x - step * (c - A.T @ y), 0)
    y = y + step * (b - A @ (2 * x - before))
np.savez(sys.argv[2], x=x, activities=A @ x, costs=[c @ x])
