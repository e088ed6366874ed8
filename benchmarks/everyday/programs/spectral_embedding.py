"""Embeds the nodes of a graph by the eigenvectors of its Laplacian: ``python spectral_embedding.py MATRIX OUT``."""

import sys

import numpy as np
import scipy.sparse as sp
from sklearn.manifold import spectral_embedding

graph = abs(sp.load_npz(sys.argv[1]))
graph = sp.csr_matrix(graph + graph.T)
found = spectral_embedding(graph, n_components=8, eigen_solver="lobpcg", random_state=0, eigen_tol=1e-8)
distances = np.linalg.norm(found[:1000, None] - found[None, :1000], axis=2)
np.savez(sys.argv[2], distances=distances)
