"""Reduces documents to 100 components: ``python truncated_svd.py MATRIX OUT``."""

import sys

import numpy as np
import scipy.sparse as sp
from sklearn.decomposition import TruncatedSVD

X = sp.load_npz(sys.argv[1])
svd = TruncatedSVD(n_components=100, n_iter=10, random_state=0)
reduced = svd.fit_transform(X)
np.savez(sys.argv[2], singular_values=svd.singular_values_, lengths=np.linalg.norm(reduced, axis=1))
