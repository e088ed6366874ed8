"""Lets heat spread over a network from eight of its nodes: ``python expm.py MATRIX OUT``."""

import sys

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import expm_multiply

links = abs(sp.load_npz(sys.argv[1]))
links = links + links.T
degrees = np.asarray(links.sum(axis=1)).ravel()
A = sp.csr_array((sp.diags_array(degrees) - links) * (-1 / degrees.mean()))
sources = np.random.default_rng(0).choice(A.shape[0], 8, replace=False)
start = np.zeros((A.shape[0], 8))
start[sources, np.arange(8)] = 1
np.savez(sys.argv[2], heat=expm_multiply(A, start, start=0, stop=10, num=5))
