"""Fits ridge regressions of sparse documents for two penalties: ``python ridge.py MATRIX OUT``."""

import sys

import numpy as np
import scipy.sparse as sp
from sklearn.linear_model import Ridge

X = sp.load_npz(sys.argv[1])
rng = np.random.default_rng(0)
y = X @ rng.standard_normal(X.shape[1]) + rng.standard_normal(X.shape[0])
fits = [Ridge(alpha=alpha, tol=1e-8).fit(X, y) for alpha in (0.1, 1.0)]
np.savez(sys.argv[2], coefficients=[fit.coef_ for fit in fits], fitted=[fit.predict(X) for fit in fits])
