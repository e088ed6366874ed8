"""The CPU's space: every sample is a program, the known formats are in it, and refusals can be read."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from tensorwise.errors import InputError
from tensorwise.lower import ir
from tensorwise.lower.lower import lower
from tensorwise.lower.nest import MAX_COPIES
from tensorwise.program.einsum import Einsum
from tensorwise.program.ops import mttkrp
from tensorwise.program.workload import Workload, einsum_workload, workload
from tensorwise.runtime.work import work_bound
from tensorwise.space.config import Config
from tensorwise.space.cpu import FREE_STEPS, MOST_STEPS_A_TERM, CpuSpace, cpu_space
from tensorwise.space.portfolio import portfolio
from tensorwise.tensor.convert import entries_from
from tensorwise.tensor.entries import Entries

SAMPLES = 300
EINSUMS = {
    "max": "C[i,j] max= A[i,k] * B[k,j]",
    "argmax": "C[i] argmax= A[i,k] * B[k]",
    "mean": "C[i,j] mean= A[i,k] * B[k,j]",
    "scale": "C[i,j] = B[i] * A[i,j] * D[j]",
    "transposed": "C[k,j] += A[i,k] * B[i,j]",
    "factors of sums": "C[A] += D[i,j] * (L[k,j] + R[A]) for A[i,k]",
    "lanes inside the factor": "C[i,j] += A[i,k] * (B[k,i,j] * min(D[j,k,i] / E[k], F[h,k,j]))",
    "lanes of a reduced index": "C[i,j] += abs(B[i] - D[k,h]) * E[j,f] for A[i,k]",
    "numbered and multiplied": "C[j,k] += A[i,k] * B[A,j] * D[i,j]",
    "rows of entries": "C[i,j] += A[i,k] * B[A,k,j]",
}


def entries(shape: tuple[int, ...], nnz: int, dtype: str = "float32") -> Entries:
    rng = np.random.default_rng(len(shape) + nnz)
    places = [rng.integers(0, extent, nnz) for extent in shape]
    return entries_from((shape, places, rng.standard_normal(nnz).astype(dtype)))


@cache
def works() -> dict[str, Workload]:
    """All operations, and matrices that are no ordinary ones."""
    matrix = entries((500, 400), 3000)
    found = {
        "spmv": workload("spmv", matrix),
        "spmm": workload("spmm", matrix, n=64),
        "spmm double": workload("spmm", matrix.astype(np.float64), n=24),
        "sddmm": workload("sddmm", matrix, n=64),
        "ttv": workload("ttv", entries((50, 60, 70), 3000)),
        "ttm": workload("ttm", entries((50, 60, 70), 3000), n=16),
        "mttkrp3": workload("mttkrp", entries((50, 60, 70), 3000), n=16),
        "mttkrp3-1": workload("mttkrp", entries((50, 60, 70), 3000), n=16, mode=1),
        "mttkrp4": workload("mttkrp", entries((9, 8, 7, 6), 400), n=8),
        "mttkrp5": workload("mttkrp", entries((9, 8, 7, 6, 5), 400), n=8, mode=4),
        "one row": workload("spmm", entries((1, 300), 40), n=16),
        "one column": workload("spmm", entries((300, 1), 40), n=1),
        "one element": workload("spmv", entries((1, 1), 1)),
        "no entries": workload("spmv", entries((6, 5), 0)),
        "no rows": workload("spmm", entries_from(((0, 5), ([], []), np.zeros(0, np.float32))), n=4),
        "long": workload("spmv", entries_from(((10**6, 10**6), ([5], [7]), np.ones(1)))),
    }
    square = entries((50, 40), 300)
    free = {"j": 16, "h": 3, "f": 5}
    for name, text in EINSUMS.items():
        indices = Einsum.parse(text).single.indices
        given = {i: n for i, n in free.items() if i in indices and "A[i,j]" not in text}
        found[name] = einsum_workload(text, {"A": square}, given)
    return found


NAMES = list(works())


def space_of(work: Workload) -> CpuSpace:
    return cpu_space(work.assignment)


def lowered(work: Workload, config: object) -> ir.LoweredFunction:
    program = space_of(work).program(work, config)  # type: ignore[arg-type]
    return lower(program.plan(work.elem, sizes=work.sizes))


@pytest.mark.parametrize("name", NAMES)
def test_every_sample_is_a_program(name: str) -> None:
    work = works()[name]
    space, rng = space_of(work), np.random.default_rng(1)
    names, lengths, programs = space.encoding_names, set(), set()
    for _ in range(SAMPLES):
        config = space.sample(work, rng)
        assert space.why_not(config, work) is None
        lowered(work, config)
        program = space.program(work, config)
        programs.add(program.name)
        lengths.add(space.encode(config, work).shape)
        assert work_bound(program, work) <= MOST_STEPS_A_TERM * max(work.terms, 1) + FREE_STEPS
    assert lengths == {(len(names),)}
    if min(work.sizes.values()) > 4:
        assert len(programs) > 0.5 * SAMPLES


@pytest.mark.parametrize("name", NAMES)
def test_children_and_neighbours_are_programs(name: str) -> None:
    work = works()[name]
    space, rng = space_of(work), np.random.default_rng(2)
    config = space.sample(work, rng)
    for _ in range(20):
        child = space.mutate(space.cross(config, space.default(work), work, rng), work, rng)
        assert space.why_not(child, work) is None
        lowered(work, child)
        config = child
    for start in (space.default(work), config):
        neighbours = space.neighbours(start, work)
        assert start not in neighbours
        for one in neighbours:
            assert space.why_not(one, work) is None
            lowered(work, one)
        assert len(neighbours) > 3 or max(work.sizes.values()) <= 1


@pytest.mark.parametrize("name", NAMES)
def test_what_is_remembered_changes_no_answer(name: str) -> None:
    """Of configs for other workloads, too: a Config is judged by a shorter way than any other mapping."""
    work = works()[name]
    space, rng = space_of(work), np.random.default_rng(4)
    others = [other for other in works().values() if other.assignment == work.assignment]
    refused = 0
    for k in range(60):
        config = space.sample(others[k % len(others)], rng)
        problem = space.why_not(dict(config), work)
        assert space.why_not(config, work) == problem
        refused += problem is not None
        if problem is None:
            assert space.steps(work, config) == work_bound(space.program(work, config), work)
    assert refused or len(others) == 1 or name == "spmm"  # what suits a smaller one suits it as well
    broken = Config({**space.default(work), "layout": 7})
    assert "layout: " in str(space.why_not(broken, work))
    assert "not chosen" in str(space.why_not(Config({"layout": "list"}), work))


@pytest.mark.parametrize(
    ("name", "format", "order", "tiled"),
    [
        ("spmv", "(i,k) -> U(i) C(k)", "i,k", "k"),
        ("spmm", "(i,k) -> U(i) C(k)", "i,j,k", "j"),
        ("sddmm", "(i,j) -> U(i) C(j)", "i,j,k", "k"),
        ("ttv", "(i,j,k) -> U(i) C(j) C(k)", "i,j,k", "k"),
        ("ttm", "(i,j,k) -> U(i) C(j) C(k)", "i,j,r,k", "r"),
        ("mttkrp3", "(i,k,l) -> U(i) C(k) C(l)", "i,r,k,l", "r"),
        ("mttkrp3-1", "(i,k,l) -> U(k) C(i) C(l)", "k,r,i,l", "r"),
        ("mttkrp5", "(i,k,l,m,n) -> U(n) C(i) C(k) C(l) C(m)", "n,r,i,k,l,m", "r"),
        ("transposed", "(i,k) -> U(k) C(i)", "k,j,i", "j"),
        ("argmax", "(i,k) -> U(i) C(k)", "i,k", None),
    ],
)
def test_the_default_stores_rows_and_runs_them_in_parallel(
    name: str, format: str, order: str, tiled: str | None
) -> None:
    work = works()[name]
    program = space_of(work).program(work, space_of(work).default(work))
    assert str(program.formats["A"]) == format
    assert program.schedule.order == tuple(order.split(","))
    parallel, tile = program.schedule.parallel, program.schedule.tile
    assert parallel is not None
    assert (parallel.loop, parallel.policy) == (order[0], "balanced")
    assert (tile.loop if tile else None) == tiled
    assert space_of(work).default(work) == space_of(work).default(work)


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"kind_i1": "C"}, "(i,k) -> C(i) C(k); reorder(i,j,k)"),
        ({"order": ("k1", "j1", "i1"), "kind_k1": "U", "kind_i1": "C"}, "(i,k) -> U(k) C(i); reorder(k,j,i)"),
        (
            {
                "split_i": 4, "split_k": 4, "order": ("i1", "j1", "k1", "i0", "k0"),
                "kind_i1": "U", "kind_k1": "C", "kind_i0": "U", "kind_k0": "U",
            },
            "(i,k) -> U(i1) C(k1) U(i0:4) U(k0:4); split(i,4) split(k,4) reorder(i1,j,k1,i0,k0)",
        ),
        (
            {"split_k": 128, "order": ("k1", "i1", "j1", "k0"), "kind_k1": "U", "kind_i1": "U", "kind_k0": "C"},
            "(i,k) -> U(k1) U(i) C(k0:128); split(k,128) reorder(k1,i,j,k0)",
        ),
        (
            {"levels_follow_loops": False, "order": ("k1", "i1", "j1"), "levels": ("i1", "k1"), "parallel": "none"},
            "(i,k) -> U(i) C(k); reorder(k,i,j)",
        ),
        (
            {
                "layout": "slots", "rows": "length4096", "split_i": 8, "order": ("i1", "i0", "k1", "j1"),
                "levels_follow_loops": False, "levels": ("i1", "k1", "i0"), "kind_i1": "U", "kind_i0": "U",
            },
            "(i:length4096,k) -> U(i1) P(k#) U(i0:8) S16(k); split(i,8) reorder(i1,i0,k#,j)",
        ),
        (
            {
                "layout": "diagonals", "split_i": 16, "order": ("i1", "i0", "k1", "j1"), "levels_follow_loops": False,
                "levels": ("i1", "k1", "i0"), "kind_i1": "U", "kind_k1": "C", "kind_i0": "U",
            },
            "(i,k) -> U(i1) C(k-i) U(i0:16); split(i,16) reorder(i1,i0,k-i,j)",
        ),
        ({"layout": "list", "short": False}, "(i,k) -> N(i) S(k); reorder(i,j,k)"),
        ({"rows": "cluster", "kind_k1": "C16"}, "(i:cluster,k) -> U(i) C16(k); reorder(i,j,k)"),
        (
            {"split_i": 4, "order": ("i1", "k1", "i0", "j1"), "kind_i1": "U", "kind_k1": "C", "kind_i0": "B"},
            "(i,k) -> U(i1) C(k) B(i0:4); split(i,4) reorder(i1,k,i0,j)",
        ),
        ({"tile": "j1", "bound": True}, "bound(j,64)"),
        ({"split_j": 16, "order": ("j1", "i1", "k1", "j0"), "parallel": "j1"}, "split(j,16) reorder(j1,i,k,j0) parallel(j1"),
    ],
)  # fmt: skip
def test_known_formats_are_in_the_space(given: dict[str, object], name: str) -> None:
    """DCSR, CSC, BCSR, sparse blocks of columns, rows searched along columns, SELL, DIA, COO, similar rows together,
    masked blocks, an extent compiled in, strips of the dense matrix."""
    work = works()["spmm"]
    config = space_of(work).complete(given, work, strict=True)
    assert {key: config[key] for key in given} == given
    assert space_of(work).why_not(config, work) is None
    assert name in space_of(work).program(work, config).name
    lowered(work, config)


@pytest.mark.parametrize("order", [3, 4, 5])
def test_compressed_fibers_are_in_the_space(order: int) -> None:
    work = works()[f"mttkrp{order}"]
    stored = work.assignment.access("A").indices
    config = space_of(work).complete({f"kind_{index}1": "C" for index in stored}, work, strict=True)
    assert all(
        letter in "C"
        for letter in (level.letter for level in space_of(work).program(work, config).formats["A"].levels)
    )
    assert work.assignment.operands[1:] == tuple("BDEF"[: order - 1])
    assert mttkrp(order, work.assignment.access("A").indices.index(work.assignment.output.indices[0])) == str(
        work.einsum
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"split_i": 3}, ["split_i", "3", "choose one of 1, 2, 4, 8", "shared by loops and storage"]),
        ({"split_i": 1024}, ["split_i", "1024", "shared by loops and storage"]),
        ({"kind_i1": "D"}, ["kind_i1", "D", "U", "C"]),
        ({"order": ("i1", "k1")}, ["order", "i1,k1", "j1"]),
        ({"parallel": "k1"}, ["parallel", "k1", "inner loops are entered too often to share"]),
        ({"tile": "i1"}, ["tile", "i1", "none", "k1", "vector registers"]),
        ({"chunk": 64}, ["chunk", "64", "inactive"]),
        ({"unroll": 3}, ["unroll", "3"]),
        ({"nonsense": 1}, ["nonsense", "no such parameter", "split_i"]),
    ],
)
def test_refusals_can_be_read(change: dict[str, object], words: list[str]) -> None:
    work = works()["spmm"]
    space = space_of(work)
    reason = space.why_not({**space.default(work), **change}, work)
    assert reason is not None
    for word in words:
        assert word in reason, reason
    with pytest.raises(InputError):
        space.check({**space.default(work), **change}, work)


def uneven() -> Entries:
    """200 x 900: two rows of 700, groups of eight rows with the same six columns, and a few entries elsewhere."""
    rng = np.random.default_rng(4)
    rows, columns = [rng.integers(0, 200, 300)], [rng.integers(0, 900, 300)]
    for row in (17, 90):
        rows.append(np.full(700, row))
        columns.append(rng.permutation(900)[:700])
    for start in range(96, 160, 8):
        rows.append(np.repeat(np.arange(start, start + 8), 6))
        columns.append(np.tile(rng.permutation(900)[:6], 8))
    places = (np.concatenate(rows), np.concatenate(columns))
    return entries_from(((200, 900), places, rng.standard_normal(len(places[0]))))


SUMS = {
    "spmv": "C[i] += A[i,k] * B[k]",
    "spmm": "C[i,j] += A[i,k] * B[k,j]",
    "sddmm": "C[i,k] += A[i,k] * B[i,j] * D[j,k]",
    "transposed": EINSUMS["transposed"],
    "scale": "C[i,k] = B[i] * A[i,k] * D[k]",
    "outer": "C[i,k,j] = A[i,k] * D[j]",
    "no product": "C[i] += max(A[i,k], B[k])",
}


@pytest.mark.parametrize("kind", ["rows8", "columns"])
@pytest.mark.parametrize("name", SUMS)
def test_hybrids_of_sums_are_in_the_space(name: str, kind: str) -> None:
    work = einsum_workload(SUMS[name], {"A": uneven()}, {"j": 20} if "j" in SUMS[name] else {})
    space, rng = space_of(work), np.random.default_rng(5)
    assert space.default(work)["apart"] == "none"
    for rest in (space.default(work), space.sample(work, rng), space.sample(work, rng)):
        config = space.complete({**rest, "apart": kind}, work, strict=True)
        program = space.program(work, config)
        assert program.remainder is not None
        part = program.remainder.rule.divide(work.entries)[1].entries
        assert set(np.unique(part.coordinates[0])) == ({17, 90} if kind == "rows8" else {*range(96, 160)})
        assert program.parts[0].formats == space.program(work, {**config, "apart": "none"}).formats
        for one in program.parts:
            lower(one.plan(work.elem, sizes=work.sizes))
    assert any(config["apart"] == kind for config in portfolio(space, work))


@pytest.mark.parametrize(
    ("op", "threads", "cut"),
    [("spmv", 1, False), ("spmv", 2, True), ("spmm", 2, True), ("argmax", 2, False), ("mean", 2, False)],
)
def test_rows_are_cut_where_one_holds_up_the_other_threads(
    op: str, threads: int, cut: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two rows have 700 of some 2080 entries each."""
    monkeypatch.setattr("tensorwise.space.running.available_threads", lambda: threads)
    work = einsum_workload(
        {**SUMS, **EINSUMS}[op], {"A": uneven()}, {"j": 20} if op in ("spmm", "mean") else {}
    )
    space = space_of(work)
    assert any(config["policy"] == "merge-path" for config in portfolio(space, work)) == cut
    problem = space.why_not({**space.default(work), "policy": "merge-path"}, work)
    assert (problem is None) == cut
    if work.assignment.monoid.single:
        listed = space.complete({"layout": "list", "parallel": "i1"}, work, strict=True)
        assert space.why_not({**listed, "policy": "merge-path"}, work) is not None


@pytest.mark.parametrize(("threads", "cut"), [(2, False), (3, False), (8, True)])
def test_rows_are_cut_by_what_a_thread_gets(threads: int, cut: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The longest row has a tenth of the entries."""
    monkeypatch.setattr("tensorwise.space.running.available_threads", lambda: threads)
    rows = np.repeat(np.arange(91), np.array([100] + [10] * 90))
    columns = np.concatenate([np.arange(100), np.tile(np.arange(10), 90)])
    work = workload("spmv", entries_from(((91, 100), (rows, columns), np.ones(1000))))
    problem = space_of(work).why_not({**space_of(work).default(work), "policy": "merge-path"}, work)
    assert (problem is None) == cut


def test_what_a_hybrid_sets_apart_is_kept_by_space_and_workload() -> None:
    work, other = (workload("spmm", uneven(), n=n) for n in (20, 40))
    space = space_of(work)
    config = space.complete({"apart": "columns"}, work, strict=True)
    part = space.program(work, config).remainder
    assert space.program(work, config).remainder is part
    assert (
        replace(space).program(work, config).remainder is not part
    )  # another space may allow other programs
    assert space.program(other, space.complete(config, other)).remainder is not part


@pytest.mark.parametrize("name", ["spmv", "max", "mean", "mttkrp3", "no entries", "no rows", "pattern"])
def test_nothing_is_set_apart_where_it_cannot_pay_or_add_up(name: str) -> None:
    if name == "pattern":
        work = einsum_workload("C[i,j] += B[k,j] for A[i,k]", {"A": uneven()}, {"j": 20})
    elif name in ("max", "mean"):
        work = einsum_workload(EINSUMS[name], {"A": uneven()}, {"j": 20})
    else:
        work = works()[name]
    space = space_of(work)
    for kind in ("rows8", "rows64", "columns"):
        problem = space.why_not({**space.default(work), "apart": kind}, work)
        assert problem is not None
        assert problem.startswith("apart: ")


def test_hopeless_searches_are_refused() -> None:
    work = works()["long"]
    space = space_of(work)
    partial = {"levels_follow_loops": False, "order": ("k1", "i1"), "levels": ("i1", "k1")}
    with pytest.raises(InputError, match=r"no config found that all rules allow .*; refused by work"):
        space.complete(partial, work, strict=True)
    found = space.complete(partial, work)  # what is not strict is repaired
    assert space.why_not(found, work) is None


def test_code_stays_in_proportion() -> None:
    """Large blocks in large tiles, unrolled: what would be too many copies is not offered."""
    work = workload("mttkrp", entries((16, 16, 16), 3000), n=64)
    space = space_of(work)
    given = {"split_i": 4, "split_k": 4, "split_l": 4, "order": ("i1", "k1", "r1", "l1", "i0", "k0", "l0"),
             "kind_i0": "U", "kind_k0": "U", "kind_l0": "U", "tile": "r1", "vectors": 16}  # fmt: skip
    config = space.complete(given, work, strict=True)
    assert config["unroll_blocks"] is False
    lowered(work, config)
    problem = space.why_not({**config, "unroll_blocks": True}, work)
    assert problem is not None
    assert "unroll_blocks" in problem
    assert MAX_COPIES < 64 * 16


@pytest.mark.parametrize("name", ["argmax", "mean"])
def test_reductions_without_partial_results_stay_inside(name: str) -> None:
    work = works()[name]
    space, rng = space_of(work), np.random.default_rng(3)
    for _ in range(50):
        config = space.sample(work, rng)
        order = config["order"]
        assert isinstance(order, tuple)
        kept = [place for place, loop in enumerate(order) if loop[0] in work.assignment.output.indices]
        assert max(kept) < min(place for place, loop in enumerate(order) if loop[0] == "k")
        assert str(config["parallel"])[0] != "k"
    reason = space.why_not(
        {**space.default(work), "order": tuple(reversed(space.default(work)["order"]))}, work
    )  # type: ignore[arg-type]
    assert reason is not None
    assert "has no partial result to keep in memory" in reason


@pytest.mark.parametrize("name", NAMES)
def test_the_portfolio_is_valid_and_starts_with_the_default(name: str) -> None:
    work = works()[name]
    space = space_of(work)
    configs = portfolio(space, work)
    assert configs[0] == space.default(work)
    assert len(set(configs)) == len(configs)
    for config in configs:
        assert space.why_not(config, work) is None
        lowered(work, config)
    if name in ("spmv", "spmm", "sddmm", "mttkrp3"):
        formats = {str(space.program(work, config).formats["A"]) for config in configs}
        assert len(configs) >= 15
        assert len(formats) >= 4


def test_transposed_use_needs_no_transposed_matrix() -> None:
    """The portfolio of y = A^T x holds A as it is and transposed; the tuner decides."""
    work = workload("spmv_t", entries((300, 200), 2000))
    space = space_of(work)
    found = {str(space.program(work, config).formats["A"]) for config in portfolio(space, work)}
    assert {"(i,k) -> U(k) C(i)", "(i,k) -> U(i) C(k)"} <= found


def test_no_lanes_where_padding_has_no_place_in_the_output() -> None:
    work = workload("spmv_t", entries((300, 200), 2000))
    space, rng = space_of(work), np.random.default_rng(0)
    tiles = [space.complete({"layout": "slots"}, work, rng)["tile"] for _ in range(40)]
    assert set(tiles) == {"none"}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_short_rows_of_any_width_fill_the_tile_of_the_default(dtype: str) -> None:
    matrix = entries((50, 40), 300, dtype)
    for n in range(1, 300):
        work = workload("spmm", matrix, n=n)
        config = cpu_space(work.assignment).default(work)
        held = int(str(config["vectors"])) * int(str(config["vector_bytes"]))
        row = n * np.dtype(dtype).itemsize
        assert held >= min(row, 256) / 2, n
