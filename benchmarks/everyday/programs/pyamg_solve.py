"""Solves ten Poisson-like systems by smoothed aggregation multigrid: ``python pyamg_solve.py MATRIX OUT``."""

import sys

import numpy as np
import pyamg
import scipy.sparse as sp

pattern = sp.csr_matrix(sp.load_npz(sys.argv[1]))
links = abs(pattern) + abs(pattern.T)
links.setdiag(0)
degrees = np.asarray(links.sum(axis=1)).ravel()
A = sp.csr_matrix(sp.diags(degrees + 1e-4 * degrees.mean()) - links)
rng = np.random.default_rng(0)
solver = pyamg.smoothed_aggregation_solver(A)
solutions = [solver.solve(rng.standard_normal(A.shape[0]), tol=1e-8, accel="cg") for _ in range(10)]
np.savez(sys.argv[2], solutions=solutions)
