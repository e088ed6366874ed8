"""Tune two real matrices of finite element problems and solve a system with one of the tuned operators.

Run by ``make demo``. The data come with pyamg (MIT): nothing is downloaded. About a minute.

1. ``bar``: linear elasticity of a 3-D bar, as shipped: 600 unknowns in 3 x 3 blocks.
2. ``airfoil``: a time step of heat flow on the shipped triangle mesh, refined three times.
"""

import argparse
import os
import time

# NumPy's OpenBLAS and MKL both keep threads that wait by spinning. On few cores they stand in each other's way
# as soon as a solver alternates between them, which would be timed below. So vectors get one thread.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import scipy.sparse as sp
from pyamg.gallery import load_example
from pyamg.gallery.fem import refine2dtri
from scipy.sparse.linalg import cg

import tensorwise as tw


def bar() -> sp.csr_array:
    """Return the stiffness matrix of the bar, (600, 600), float64, symmetric positive definite."""
    return sp.csr_array(load_example("bar")["A"])


def airfoil(refinements: int) -> sp.csr_array:
    """Return mass + step * stiffness for linear triangles, float64, symmetric positive definite."""
    mesh = load_example("airfoil")
    vertices, triangles = mesh["vertices"], mesh["elements"].astype(np.int64)
    for _ in range(refinements):
        vertices, triangles = refine2dtri(vertices, triangles)
    corner = vertices[triangles]
    edge = np.roll(corner, -1, axis=1) - np.roll(corner, 1, axis=1)  # the one opposite to each corner
    area = 0.5 * np.abs(edge[:, 0, 0] * edge[:, 1, 1] - edge[:, 0, 1] * edge[:, 1, 0])
    stiffness = np.einsum("tad,tbd->tab", edge, edge) / (4 * area)[:, None, None]
    mass = (np.ones((3, 3)) + np.eye(3)) / 12 * area[:, None, None]
    rows = np.broadcast_to(triangles[:, :, None], stiffness.shape)
    cols = np.broadcast_to(triangles[:, None, :], stiffness.shape)
    step = 0.1
    entries = ((mass + step * stiffness).ravel(), (rows.ravel(), cols.ravel()))
    return sp.coo_array(entries, shape=(len(vertices), len(vertices))).tocsr()


def solve_both(A: sp.csr_array, spmv: tw.Operator) -> None:
    """Solve with both operators in turn, and say what the difference is made of."""
    b, steps = np.ones(A.shape[0]), list[int]()
    took = dict[str, float]()
    for _ in range(3):  # the fastest of three solves counts: the first one wakes threads and fills caches
        for name, operator in (("SciPy's matrix", A), ("tuned operator", spmv)):
            steps.clear()
            start = time.perf_counter()
            x, failed = cg(operator, b, rtol=1e-8, callback=lambda _: steps.append(1))
            took[name] = min(took.get(name, np.inf), time.perf_counter() - start)
            error = np.linalg.norm(A @ x - b) / np.linalg.norm(b)
            if failed or error > 1e-6:
                raise SystemExit(f"cg with {name} did not converge")
    for name, seconds in took.items():
        print(f"   cg with {name}: {seconds * 1e3:.1f} ms, {len(steps)} iterations")
    ours, theirs = took["tuned operator"], took["SciPy's matrix"]
    product_s = spmv.result.best.seconds if spmv.result is not None else np.inf
    share = f", {len(steps) * product_s * 1e3:.1f} ms of the tuned solve" if np.isfinite(product_s) else ""
    print(
        f"   A solve is {len(steps)} products{share}; the rest is vector work in NumPy, which tuning does not change."
    )
    if ours >= theirs:
        print(
            f"   The tuned operator does not pay here: its solve took {ours / theirs:.2f} times as long. A product of this "
            "matrix is so short that vector work, the call through SciPy's LinearOperator and waking threads count as much. "
            "Larger matrices, or several right-hand sides at once (parts 1 and 2), are what to tune for."
        )
    else:
        print(
            f"   One solve saves {(theirs - ours) * 1e3:.1f} ms; the table above says when tuning has paid."
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--report", default="demo-report.html", help="where to write the page about the airfoil"
    )
    parser.add_argument("--budget", type=float, default=20.0, help="seconds for the longest of the tunings")
    options = parser.parse_args()

    print("1. Elasticity of a bar, SpMM with 256 columns, float32")
    small = tw.tune(bar().astype(np.float32), "spmm", n=256, budget_s=options.budget / 2)
    print(small.report(), end="\n\n")

    print("2. Heat flow around airfoils, SpMM with 256 columns, float32")
    A = airfoil(refinements=3)
    op = tw.tune(A.astype(np.float32), "spmm", n=256, budget_s=options.budget, report=options.report)
    print(op.report(), end="\n\n")

    print("3. The same system solved by conjugate gradients, SpMV, float64")
    spmv = tw.tune(A, "spmv", budget_s=options.budget / 2)
    print(spmv.report())
    solve_both(A, spmv)
    print(f"\nThe report on the second tuning: {options.report}")


if __name__ == "__main__":
    main()
