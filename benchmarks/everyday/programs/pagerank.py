"""Ranks the nodes of a graph for two dampings: ``python pagerank.py MATRIX OUT``."""

import sys

import networkx as nx
import numpy as np
import scipy.sparse as sp

graph = nx.from_scipy_sparse_array(abs(sp.load_npz(sys.argv[1])), create_using=nx.DiGraph)
ranks = [nx.pagerank(graph, alpha=alpha, tol=1e-10, max_iter=500) for alpha in (0.85, 0.95)]
np.savez(sys.argv[2], ranks=[list(found.values()) for found in ranks])
