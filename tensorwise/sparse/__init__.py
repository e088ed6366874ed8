"""Sparse arrays that are SciPy's, with fast products that are tuned by being used."""

from tensorwise.sparse.arrays import asarray as asarray
from tensorwise.sparse.arrays import bsr_array as bsr_array
from tensorwise.sparse.arrays import bsr_matrix as bsr_matrix
from tensorwise.sparse.arrays import coo_array as coo_array
from tensorwise.sparse.arrays import coo_matrix as coo_matrix
from tensorwise.sparse.arrays import csc_array as csc_array
from tensorwise.sparse.arrays import csc_matrix as csc_matrix
from tensorwise.sparse.arrays import csr_array as csr_array
from tensorwise.sparse.arrays import csr_matrix as csr_matrix
from tensorwise.sparse.files import read_binsparse as read_binsparse
from tensorwise.sparse.limits import limit_threads as limit_threads
from tensorwise.sparse.limits import reproducible as reproducible
from tensorwise.sparse.patching import patch_scipy as patch_scipy
from tensorwise.sparse.patching import unpatch_scipy as unpatch_scipy
from tensorwise.sparse.products import warm_up as _warm_up
from tensorwise.sparse.profile import profile_products as profile_products

_warm_up()
