"""Recommends by alternating least squares on implicit feedback, as ``implicit`` does: ``python als.py MATRIX OUT``.

The normal matrix of a user adds the outer products of the user's items to that of all items: a product with 256 columns.
"""

import sys

import numpy as np
import scipy.sparse as sp

FACTORS, CONFIDENCE, PENALTY, SWEEPS = 16, 40.0, 0.1, 15


def solve(interactions: sp.csr_array, factors: np.ndarray) -> np.ndarray:
    """Return the factors of the rows that fit the factors of the columns."""
    outer = (factors[:, :, None] * factors[:, None, :]).reshape(len(factors), -1)
    common = factors.T @ factors + PENALTY * np.eye(FACTORS)
    normal = common + CONFIDENCE * (interactions @ outer).reshape(-1, FACTORS, FACTORS)
    right = (1 + CONFIDENCE) * (interactions @ factors)
    return np.linalg.solve(normal, right[:, :, None])[:, :, 0]


R = sp.csr_array(sp.load_npz(sys.argv[1]) != 0, dtype=np.float64)
R_by_item = R.T.tocsr()
rng = np.random.default_rng(0)
items = 0.1 * rng.standard_normal((R.shape[1], FACTORS))
for _ in range(SWEEPS):
    users = solve(R, items)
    items = solve(R_by_item, users)
np.savez(sys.argv[2], users=users, items=items)
