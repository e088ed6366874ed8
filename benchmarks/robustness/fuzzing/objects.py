"""Doors of objects: SciPy's, NumPy's and torch's, tuples, edges, operands, sizes."""

import functools
import random
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from fuzzing import mutate, texts
from tensorwise.front.gnn import Graph
from tensorwise.program.workload import einsum_workload, workload
from tensorwise.tensor.convert import entries_from


@functools.cache
def _arrays() -> tuple[Any, ...]:
    matrix = sp.random_array((6, 8), density=0.3, rng=np.random.default_rng(0), format="csr")
    return (
        matrix,
        matrix.tocsc(),
        matrix.tocoo(),
        sp.bsr_array(matrix, blocksize=(2, 2)),
        matrix.todia(),
        matrix.tolil(),
        matrix.todok(),
        sp.coo_array(np.ones((2, 3, 4))) if hasattr(sp.coo_array, "coords") else matrix,
    )


PARTS = {
    "csr": ("indptr", "indices", "data"),
    "csc": ("indptr", "indices", "data"),
    "bsr": ("indptr", "indices", "data"),
    "coo": ("coords", "data"),
    "dia": ("offsets", "data"),
    "lil": ("rows", "data"),
    "dok": ("_dict",),
}


def scipy_matrix(rng: random.Random, folder: Path) -> object:
    matrix = rng.choice(_arrays()).copy()
    for _ in range(rng.choice((1, 1, 2))):
        name = rng.choice((*PARTS[matrix.format], "_shape"))
        value = getattr(matrix, name, None)
        if name == "_shape":
            matrix._shape = rng.choice(
                (
                    (6, 9),
                    (0, 0),
                    (-1, 8),
                    (2**40, 8),
                    (6,),
                    (6.5, 8),
                    None,
                    (10**30, 2),
                    ("6", 8),
                    (6, 8, 1),
                    (True, 8),
                )
            )
        elif name == "coords":
            coords = (
                list(matrix.coords)
                if isinstance(matrix.coords, tuple) and matrix.coords
                else [np.zeros(1, int)]
            )
            at = rng.randrange(len(coords))
            coords[at] = mutate.array_of(rng, coords[at])
            matrix.coords = tuple(coords) if rng.random() < 0.9 else coords[at]
        elif name == "_dict":
            key = rng.choice(((0, 0), (7, 7), (-1, 0), (2**40, 1), ("a", 0), 5, (1.5, 2), None, (1, 2, 3)))
            matrix._dict[key] = rng.choice((1.0, "x", None, 1j, 10**400))
        elif name == "rows" or (matrix.format == "lil" and name == "data"):
            value[rng.randrange(len(value))] = rng.choice(
                ([0], [99], [-1], ["a"], [0, 1, 2], None, 5, [2**70], [0.5], [[1]])
            )
        else:
            setattr(
                matrix, name, mutate.array_of(rng, value if isinstance(value, np.ndarray) else np.zeros(2))
            )
    return entries_from(matrix, texts.some_dtype(rng))


def numpy_array(rng: random.Random, folder: Path) -> object:
    return entries_from(mutate.array_of(rng, np.arange(12.0).reshape(3, 4)), texts.some_dtype(rng))


def triple(rng: random.Random, folder: Path) -> object:
    parts: list[Any] = [(3, 4), [np.array([0, 1, 2]), np.array([1, 0, 3])], np.array([1.0, 2.0, 3.0])]
    kind = rng.randrange(5)
    if kind == 0:
        parts[0] = rng.choice(
            (
                (3, 5),
                (2, 4),
                (-1, 4),
                (2**63, 4),
                (2**62, 2**62),
                (3,),
                (3, 4, 5),
                (3.0, 4),
                "34",
                None,
                7,
                (True, 4),
                (10**400, 1),
                [3, 4],
                np.array([3, 4]),
            )
        )
    elif kind == 1:
        at = rng.randrange(2)
        parts[1][at] = mutate.array_of(rng, parts[1][at])
    elif kind == 2:
        parts[2] = mutate.array_of(rng, parts[2])
    elif kind == 3:
        parts[rng.randrange(3)] = rng.choice(mutate.VALUES)
    else:
        parts = parts[: rng.randrange(4)] + [None] * rng.randrange(3)
    return entries_from(tuple(parts), texts.some_dtype(rng))


def torch_tensor(rng: random.Random, folder: Path) -> object:
    import torch

    dense = torch.arange(24.0).reshape(4, 6) % 5
    kind = rng.randrange(8)
    dtype = rng.choice(
        (
            torch.float32,
            torch.float64,
            torch.float16,
            torch.bfloat16,
            torch.int64,
            torch.bool,
            torch.complex64,
            torch.uint8,
            torch.float8_e4m3fn,
        )
    )
    tensor = (
        dense.to(dtype)
        if kind != 0
        else rng.choice(
            (
                torch.ones(3),
                torch.ones(2, 3, 4),
                torch.ones(0, 0),
                torch.tensor(1.0),
                torch.ones(2, 2, device="meta"),
            )
        )
    )
    if kind in (1, 2, 3, 4, 5) and dtype not in (torch.float8_e4m3fn,):
        convert: Any = (
            tensor.to_sparse,
            tensor.to_sparse_csr,
            tensor.to_sparse_csc,
            lambda: tensor.to_sparse_bsr((2, 2)),
            lambda: tensor.to_sparse_bsc((2, 3)),
        )
        try:
            tensor = convert[kind - 1]()
        except (RuntimeError, NotImplementedError):
            return None
        if kind > 1 and tensor.values().numel():
            part = rng.choice(
                (
                    tensor.values(),
                    tensor.ccol_indices() if kind in (3, 5) else tensor.crow_indices(),
                    tensor.row_indices() if kind in (3, 5) else tensor.col_indices(),
                )
            )
            if part.dtype == torch.int64:
                part.reshape(-1)[rng.randrange(part.numel())] = rng.choice((-1, 0, 1, 99, 2**40, -(2**63)))
    elif kind == 6:
        with_bad = torch.sparse_coo_tensor(
            torch.tensor([[0, 1], [1, rng.choice((2, 99, -1))]]),
            torch.ones(2),
            (4, 4),
            check_invariants=False,
        )
        tensor = with_bad
    elif kind == 7:
        tensor = rng.choice(
            (
                dense.requires_grad_(),
                dense.t(),
                dense.expand(2, 4, 6),
                torch.quantize_per_tensor(dense, 0.1, 0, torch.qint8),
            )
        )
    return entries_from(tensor, texts.some_dtype(rng))


def edges(rng: random.Random, folder: Path) -> object:
    pair: list[Any] = [np.array([0, 1, 2, 0]), np.array([1, 2, 0, 2])]
    for _ in range(rng.choice((1, 1, 2))):
        at = rng.randrange(2)
        pair[at] = mutate.array_of(rng, np.array([0, 1, 2, 0]))
    shape: Any = (
        None
        if rng.random() < 0.6
        else rng.choice(((3, 3), (2, 3), (-1, 3), (3,), (2**40, 2**40), "33", (3.5, 3), None, (0, 0)))
    )
    if rng.random() < 0.3:
        return Graph.from_pointers(
            mutate.array_of(rng, np.array([0, 1, 3, 4])), mutate.array_of(rng, np.array([0, 1, 2, 0]))
        )
    return Graph(pair[0], pair[1], shape, rng.choice((None, None, 1, 0, -1, True)))


def operands(rng: random.Random, folder: Path) -> object:
    work = rng.choice(texts.works())
    given: list[Any] = [np.ones(work.shape(name), np.float32) for name in work.dense]
    at = rng.randrange(len(given))
    given[at] = mutate.array_of(rng, given[at])
    if rng.random() < 0.1:
        given = given[: rng.randrange(3)] * rng.choice((0, 2))
    return work.check_operands(given)


NUMBERS: tuple[Any, ...] = (
    1,
    4,
    0,
    -1,
    2**31,
    2**62,
    2**63,
    10**30,
    1.5,
    float("nan"),
    True,
    "8",
    None,
    np.int64(3),
    np.float64(2),
    [3],
    1j,
)


def sizes(rng: random.Random, folder: Path) -> object:
    """Extents, modes and names that users give."""
    entries = texts.works()[0].entries
    if rng.random() < 0.5:
        op = rng.choice(("spmm", "spmv", "sddmm", "mttkrp", "spmm_t", "x", "", 5, None, "\ud800"))
        return workload(
            op, entries, n=rng.choice(NUMBERS), mode=rng.choice((0, 1, -1, 9, None, 1.5, "0", True))
        )
    given = {"i": 6, "k": 8, "j": 4, rng.choice("ijkx"): rng.choice(NUMBERS)}
    return einsum_workload(rng.choice(texts.EINSUMS[:2]), {"A": entries}, given)
