"""Heats an L-shaped plate, by finite elements and implicit steps: ``python heat.py REFINEMENTS OUT``."""

import sys

import numpy as np
import skfem
from scipy.sparse.linalg import cg
from skfem.models.poisson import laplace, mass, unit_load

STEPS, STEP_S = 20, 0.01
mesh = skfem.MeshTri.init_lshaped().refined(int(sys.argv[1]))
basis = skfem.Basis(mesh, skfem.ElementTriP2())
stiffness, masses, load = laplace.assemble(basis), mass.assemble(basis), unit_load.assemble(basis)
inner = basis.complement_dofs(basis.get_dofs())
M = masses[inner][:, inner]
A = (M + STEP_S * stiffness[inner][:, inner]).tocsr()
heat = np.zeros(len(inner))
for _ in range(STEPS):
    heat, info = cg(A, M @ heat + STEP_S * load[inner], heat, rtol=1e-10)
    assert info == 0
np.savez(sys.argv[2], heat=heat)
