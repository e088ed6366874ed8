"""Factors documents into 40 topics: ``python nmf.py MATRIX OUT``."""

import sys
import warnings

import numpy as np
import scipy.sparse as sp
from sklearn.decomposition import NMF
from sklearn.exceptions import ConvergenceWarning

X = abs(sp.load_npz(sys.argv[1]))
warnings.simplefilter("ignore", ConvergenceWarning)
model = NMF(n_components=40, init="nndsvd", max_iter=30, random_state=0)
weights = model.fit_transform(X)
np.savez(sys.argv[2], weights=weights, topics=model.components_)
