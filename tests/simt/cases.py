"""GPU programs that tests run: every message and reduction, under schedules that between them use every directive."""

from dataclasses import dataclass, replace
from itertools import cycle

import numpy as np

from tensorwise.lower.program import Program, program_for
from tensorwise.program.workload import Workload, einsum_workload
from tensorwise.tensor.convert import entries_from
from tensorwise.tensor.entries import Entries


@dataclass(frozen=True)
class Case:
    """A program as text, and the extents that its operand does not tell."""

    einsum: str
    format: str
    schedule: str
    sizes: tuple[tuple[str, int], ...] = ()

    def __str__(self) -> str:
        return f"{self.einsum} | {self.format} | {self.schedule}"

    def workload(self, entries: Entries) -> Workload:
        return einsum_workload(self.einsum, {"A": entries}, dict(self.sizes))

    def program(self, workload: Workload) -> Program:
        return program_for(workload, self.format, self.schedule)


CSR, COO = "(i,k) -> U(i) C(k)", "(i,k) -> N(i) S(k)"
ROWS = (
    "reorder(i,j,k) bind(i,block,2) tile(j,2x4) bind(j,thread,4)",
    "reorder(i,j,k) bind(i,block,3) bind(j,block) tile(j,1x4) bind(j,thread,4) stage(k,3)",
    "reorder(i,j,k) bind(i,warp,1) tile(j,3x8) bind(j,thread,8) stage(k,4,indices) unroll(k,2) visit(i,length)",
    "reorder(i,j,k) bind(i,block,2) tile(j,1x64) bind(j,thread,64) stage(k,5)",
    "reorder(i,j,k) bind(i,block,40) unroll(k,4)",
    "reorder(i,j,k) bind(i,block,4) tile(j,4x1)",
    "reorder(j,i,k) bind(i,block,2) bind(j,block) tile(j,2x2) bind(j,thread,2) stage(k,2)",
)
"""A row a team: any reduction."""
VECTORS = (
    "reorder(i,j,k) bind(i,block,2) tile(j,1x8) bind(j,thread,4) bound(j,12) stage(k,32)",
    "reorder(i,j,k) bind(i,block,2) tile(j,2x16) bind(j,thread,4) bound(j,12) unroll(k,2)",
    "reorder(i,j,k) bind(i,block,8) tile(j,1x4) bound(j,12)",
    "reorder(i,j,k) parallel(i,pieces,2) bind(i,block,8) tile(j,1x16) bind(j,thread,4) bound(j,12)",
)
"""The same with vector loads and a known extent."""
SPLIT = (
    ("reorder(i,j,k) parallel(i,pieces,3) bind(i,block,2) tile(j,2x4) bind(j,thread,4) stage(k,3)", CSR),
    ("reorder(i,j,k) parallel(i,pieces,3) bind(i,block,4) tile(j,1x16) bind(j,thread,16)", CSR),
    (
        "reorder(i,j,k) parallel(i,pieces,2) bind(i,block,2) tile(j,1x4) bind(j,thread,4)",
        "(i,k) -> C(i) C(k)",
    ),
    ("reorder(i,k,j) parallel(i,pieces,2) bind(i,block,2) tile(j,1x4) bind(j,thread,4)", CSR),
    ("reorder(i,k,j) bind(i,block,4) tile(j,1x4) bind(j,thread,4)", COO),
    ("reorder(k,i,j) bind(k,block,2) tile(j,1x4) bind(j,thread,4)", "(i,k) -> U(k) C(i)"),
)
"""Rows that several teams share: reductions with one value."""
EDGES = (
    ("reorder(i,k,j) bind(i,block,6) tile(j,2x4) bind(j,thread,4)", COO),
    ("reorder(i,k,j) bind(i,block,2) tile(j,1x32) bind(j,thread,32)", CSR),
    ("reorder(i,k,j) bind(i,warp,2) tile(j,1x8) bind(j,thread,2) bound(j,12)", COO),
    ("reorder(i,k,j) parallel(i,pieces,3) bind(i,block,2) tile(j,1x4) bind(j,thread,4)", CSR),
)
"""An output for each entry."""
DOTS = (
    ("reorder(i,k,h,j) bind(i,block,5) tile(j,1x2) bind(j,lane,2)", COO),
    ("reorder(i,k,h,j) bind(i,block,8) tile(j,2x8) bind(j,lane,8)", COO),
    ("reorder(i,k,h,j) bind(i,warp,2) tile(j,1x32) bind(j,lane,32)", COO),
    ("reorder(i,k,h,j) bind(i,block,4) tile(j,1x16) bind(j,lane,4) bound(j,12)", COO),
    ("reorder(i,k,h,j) bind(i,block,4) tile(j,2x1)", COO),
    ("reorder(i,k,h,j) bind(i,block,3) tile(j,1x4) bind(j,lane,4)", CSR),
)
"""A sum over features for each entry, by shuffles."""
ALONG = (
    "reorder(i,k) bind(i,block,4) tile(k,2x4) bind(k,lane,4)",
    "reorder(i,k) bind(i,block,2) tile(k,1x32) bind(k,lane,32)",
    "reorder(i,k) bind(i,block,64) visit(i,length)",
)
"""A row's entries side by side."""
MESSAGES = ("L[k,j]", "R[A,j]", "L[k,j] + R[A]", "L[k,j] - R[A,j]", "L[k,j] * R[A]", "L[k,j] / R[i,j]")
OPERATORS = (
    "C[i,j] += abs(L[k,j]) - exp(-R[i,j]) for A[i,k]",
    "C[i,j] argmax= L[k,j] - R[A,j] for A[i,k]",
    "C[i,j] argmin= L[k,j] for A[i,k]",
    "C[i,j] += L[k,j] if P[i,j] == A else 0 for A[i,k]",
    "C[i,j] += L[k,j] if P[A,j] == j else R[i,j] for A[i,k]",
    "C[i,j] += L[k,j] if P[i,j] == k else 1 for A[i,k]",
    "C[i,j] max= L[k,j] if L[k,j] <= R[i,j] else -L[k,j] for A[i,k]",
    "C[i,j] min= max(L[k,j], min(R[A,j], 0)) / 3 for A[i,k]",
)
"""Every operator, choice and argument, in vectors and in scalars."""
REDUCTIONS = ("+=", "mean=", "max=", "min=", "argmax=")


def _cases() -> list[Case]:
    cases: list[Case] = []
    rows, vectors, split, edges = cycle(ROWS), cycle(VECTORS), cycle(SPLIT), cycle(EDGES)
    odd, known = (("j", 11),), (("j", 12),)
    for message in MESSAGES:
        for reduction in REDUCTIONS:
            text = f"C[i,j] {reduction} {message} for A[i,k]"
            cases.append(Case(text, CSR, next(rows), odd))
            if reduction not in ("mean=", "argmax="):
                schedule, format = next(split)
                cases.append(Case(text, format, schedule, odd))
        cases.append(Case(f"C[i,j] max= {message} for A[i,k]", CSR, next(vectors), known))
    for message in (
        "L[k,j]",
        "L[k,j] + R[i,j]",
        "L[k,j] - R[A,j]",
        "L[k,j] * R[i,j]",
        "L[k,j] / R[i]",
        "R[A,j]",
    ):
        for _ in range(2):
            schedule, format = next(edges)
            cases.append(Case(f"C[A,j] = {message} for A[i,k]", format, schedule, known))
    for schedule, format in DOTS:
        cases.append(Case("C[A,h] += L[k,h,j] * R[i,h,j] for A[i,k]", format, schedule, (("h", 2), *known)))
    for schedule in ALONG:
        for reduction in REDUCTIONS:
            cases.append(Case(f"C[i] {reduction} A[i,k] * B[k]", CSR, schedule))
            if reduction not in ("mean=", "argmax="):
                cut = schedule.replace("bind(i", "parallel(i,pieces,5) bind(i", 1).replace(
                    " visit(i,length)", ""
                )
                cases.append(Case(f"C[i] {reduction} A[i,k] * B[k]", CSR, cut))
    spmm = "C[i,j] += A[i,k] * B[k,j]"
    cases.extend(Case(spmm, CSR, schedule, odd) for schedule in ROWS)
    cases.extend(Case(spmm, CSR, schedule, known) for schedule in VECTORS)
    cases.extend(Case(spmm, format, schedule, odd) for schedule, format in SPLIT)
    hybrid = f"{ROWS[0]}; reorder(i,j,k) parallel(i,pieces,3) bind(i,block,2) tile(j,1x4) bind(j,thread,4)"
    cases.append(Case(spmm, f"{CSR}; rows>4: {CSR}", hybrid, odd))
    cases.append(Case(spmm, "(i,k) -> C(i) C(k)", ROWS[0], odd))
    for number, text in enumerate(OPERATORS):
        cases.append(Case(text, CSR, VECTORS[number % 3], known))
        cases.append(Case(text, CSR, ROWS[number % len(ROWS)], odd))
    cases.append(
        Case(
            "C[i,r] += A[i,k,l] * B[k,r] * D[l,r]",
            "(i,k,l) -> U(i) C(k) C(l)",
            "reorder(i,r,k,l) bind(i,block,2) tile(r,1x8) bind(r,thread,8) stage(l,4) factor(l)",
            (("r", 5),),
        )
    )
    return cases


CASES = _cases()


def entries(order: int, kind: str, rng: np.random.Generator, dtype: str = "f4") -> Entries:
    """A small operand: ``drawn`` with empty rows, a full one and numbers of its own, ``empty``, or without ``rows``."""
    shape = (0 if kind == "rows" else 13, 9, 6)[:order]
    drawn = rng.random(shape) < (0.0 if kind == "empty" else 0.25)
    if kind == "drawn":
        drawn[[3, 12]], drawn[5] = False, True
    made = entries_from((drawn * (1 + rng.random(shape))).astype(dtype))
    if kind != "drawn" or order > 2:
        return made
    return replace(made, numbers=rng.permutation(made.nnz).astype(made.coordinates[0].dtype))
