"""Several sparse operands walked together, and sparse results, against dense arrays with masks of what is stored."""

import itertools
from collections.abc import Mapping

import numpy as np
import pytest
import scipy.sparse as sp

import tensorwise as tw
from tensorwise.errors import FormatError, InputError
from tensorwise.lower.coiterate import order_loops
from tensorwise.program.einsum import Access, Apply, Constant, Einsum, Expression
from tensorwise.program.merge import term_without
from tensorwise.program.ops import COMBINE
from tensorwise.program.reference import reference
from tensorwise.tensor.convert import entries_from
from tensorwise.tensor.entries import Entries
from tensorwise.tensor.fibertree import Tensor
from tensorwise.tensor.format import Format
from tensorwise.tensor.pack import pack, source_map, unpack

EINSUMS = [
    "C[i,j] = A[i,j] + B[i,j]",
    "C[i,j] = A[i,j] - B[i,j]",
    "C[i,j] = A[i,j] * B[i,j]",
    "C[i,j] = max(A[i,j], B[i,j])",
    "C[i,j] = min(A[i,j], B[i,j]) - D[i,j]",
    "C[i,j] = A[i,j] * B[i,j] + D[i,j]",
    "C[i,j] = (A[i,j] + B[i,j]) * D[i,j]",
    "C[i,j] = A[i,j] * (B[i,j] - 2) + -D[i,j] / 3",
    "C[i,j] = max(A[i,j], 0) * B[i,j] + D[i,j]",
    "C[i,j] = (1 - exp(A[i,j])) * B[i,j] - min(0, D[i,j]) * A[i,j]",
    "C[j,i] = A[i,j] + B[j,i]",
    "C[i,k] += A[i,j] * B[j,k]",
    "C[i,k] += A[i,j] * B[j,k] + D[i,k]",
    "C[i,l] += A[i,j] * B[j,k] * D[k,l]",
    "y[i] += A[i,k] * x[k] + B[i,k] * x[k]",
    "C[i,j] += A[i,j] * B[i,k] * D[k,j]",
    "C[i,j] += T[i,j,k] * A[i,k] - B[i,j]",
    "C[i,j,k] = T[i,j,k] + A[i,j] * v[k]",
    "C[i,j,k] = T[i,j,k] + S[i,j,k]",
    "C[k,i] += T[i,j,k] * S[i,j,k] * v[j]",
    "C[i,j] = abs(A[i,j]) * w[i] + (exp(B[i,j]) - 1)",
    "C[i,j] = A[i,j] for B[i,j]",
    "C[i,j] = A[i,j] if B[i,j] < 0.5 else D[i,j]",
]
DENSE = frozenset("xvw")
EXTENTS = {"i": 5, "j": 4, "k": 6, "l": 3}


def random_operand(rng: np.random.Generator, shape: tuple[int, ...]) -> Entries:
    """Some entries, of which some are given twice (they are summed), some are explicit zeros; slices are empty."""
    count = int(rng.integers(0, 2 * max(shape) + 1))
    coordinates = [rng.integers(0, extent, size=count) for extent in shape]
    values = rng.standard_normal(count)
    values[rng.random(count) < 0.1] = 0.0
    again = rng.integers(0, count, size=3) if count else np.arange(0)
    doubled = [np.concatenate([array, array[again]]) for array in coordinates]
    return entries_from((shape, doubled, np.concatenate([values, values[again]])))


def random_format(rng: np.random.Generator, indices: tuple[str, ...], order: list[str]) -> str:
    """A format whose levels follow a random order of loops, mostly."""
    axes = [index for index in order if index in indices]
    if rng.random() < 0.15:
        return f"({','.join(indices)}) -> N({axes[0]}) {' '.join(f'S({axis})' for axis in axes[1:])}"
    letters = rng.choice(["U", "C", "C16", "B"], size=len(axes))
    return f"({','.join(indices)}) -> {' '.join(f'{letter}({axis})' for letter, axis in zip(letters, axes))}"


def spread(array: np.ndarray, indices: tuple[str, ...], onto: tuple[str, ...]) -> np.ndarray:
    """The array with the axes ``onto``."""
    order = sorted(range(len(indices)), key=lambda place: onto.index(indices[place]))
    shape = [EXTENTS[index] if index in indices else 1 for index in onto]
    return array.transpose(order).reshape(shape)


def evaluate(
    term: Expression, onto: tuple[str, ...], arrays: Mapping[str, np.ndarray], masks: Mapping[str, np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Values everywhere with 0 for what is not stored, and where the term is no structural zero."""
    if isinstance(term, Constant):
        return np.array(term.value), np.array(term.value != 0)
    if isinstance(term, Access):
        return spread(arrays[term.tensor], term.indices, onto), spread(masks[term.tensor], term.indices, onto)
    assert isinstance(term, Apply)
    if term.operator == "where":
        condition, chosen, other = term.arguments
        assert isinstance(condition, Apply)
        left, right = (evaluate(side, onto, arrays, masks)[0] for side in condition.arguments)
        holds = COMBINE[condition.operator].evaluate(left, right)
        (a, x), (b, y) = evaluate(chosen, onto, arrays, masks), evaluate(other, onto, arrays, masks)
        # Where the condition reads an entry, both branches may be chosen; otherwise it is decided.
        read = evaluate(condition.arguments[0], onto, arrays, masks)[1]
        return np.where(holds, a, b), np.where(read, x | y, np.where(holds, x, y))
    values, there = zip(*(evaluate(argument, onto, arrays, masks) for argument in term.arguments))
    value = COMBINE[term.operator].evaluate(*values)
    if term.operator in ("mul", "div"):
        return value, there[0] & there[1]
    if term.operator == "exp":
        return value, np.ones_like(value, bool)
    if str(term) == "exp(B[i,j]) - 1":
        return value, evaluate(Einsum.parse("C[i,j] = B[i,j]").single.expression, onto, arrays, masks)[1]
    return value, np.logical_or.reduce(np.broadcast_arrays(*there))


def expect(
    text: str, entries: Mapping[str, Entries], dense: Mapping[str, np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """The result and its pattern."""
    assignment = Einsum.parse(text).single
    onto = assignment.indices
    arrays, masks = dict(dense), {name: np.ones(array.shape, bool) for name, array in dense.items()}
    for name, one in entries.items():
        arrays[name], masks[name] = np.zeros(one.shape), np.zeros(one.shape, bool)
        arrays[name][one.coordinates], masks[name][one.coordinates] = one.values, True
    value, there = evaluate(assignment.expression, onto, arrays, masks)
    if assignment.pattern is not None:
        there = there & spread(masks[assignment.pattern.tensor], assignment.pattern.indices, onto)
    value, there = (
        np.broadcast_to(array, tuple(EXTENTS[index] for index in onto)) for array in (value, there)
    )
    reduced = tuple(place for place, index in enumerate(onto) if index not in assignment.free_indices)
    kept = [index for index in onto if index in assignment.free_indices]
    order = [kept.index(index) for index in assignment.output.indices]
    total = np.where(there, value, 0.0).sum(axis=reduced)
    return total.transpose(order), there.any(axis=reduced).transpose(order)


def draw(text: str, seed: int) -> tuple[dict[str, Entries], dict[str, np.ndarray], dict[str, str], str]:
    """Operands, formats that some order of loops fits, and the format of the result (of which any order will do)."""
    rng = np.random.default_rng(seed)
    assignment = Einsum.parse(text).single
    loops = list(rng.permutation(list(assignment.indices)))
    entries: dict[str, Entries] = {}
    dense: dict[str, np.ndarray] = {}
    formats: dict[str, str] = {}
    for name in assignment.operands:
        indices = assignment.access(name).indices
        shape = tuple(EXTENTS[index] for index in indices)
        if name in DENSE:
            dense[name] = rng.standard_normal(shape)
        else:
            entries[name] = random_operand(rng, shape)
            formats[name] = random_format(rng, indices, loops)
    output = assignment.output.indices
    return entries, dense, formats, random_format(rng, output, list(rng.permutation(list(output))))


@pytest.mark.parametrize("text", EINSUMS)
def test_random_formats_and_patterns_agree_with_dense_arrays(text: str) -> None:
    assignment = Einsum.parse(text).single
    for seed in range(40):
        entries, dense, formats, output = draw(text, seed)
        expected, there = expect(text, entries, dense)
        given = {**entries, **dense}
        total = tw.interpret(text, operands=given, formats=formats)
        assert isinstance(total, np.ndarray)
        np.testing.assert_allclose(total, expected, rtol=1e-12, atol=1e-12, err_msg=f"{seed} {formats}")
        if len(assignment.output.indices) == 1:
            continue
        result = tw.interpret(text, operands=given, formats=formats, output=output)
        assert isinstance(result, Tensor)
        pattern = np.argwhere(there)
        stored = Entries(there.shape, tuple(pattern.T.astype(np.int32)), expected[there])
        if "P" not in output:
            exact = pack(stored, Format.parse(output), values=False)
            for level, mine, packed in zip(exact.format.levels, result.arrays, exact.arrays):
                for name, array in packed.items():
                    np.testing.assert_array_equal(mine[name], array, f"{seed} {formats} -> {output}: {level}")
            assert result.counts == exact.counts
        got = unpack(result, source_map(stored, Format.parse(output)) if result.format.padded else None)
        np.testing.assert_array_equal(np.stack(got.coordinates, 1), pattern)
        np.testing.assert_allclose(got.values, stored.values, rtol=1e-12, atol=1e-12)


PRODUCTS = [
    "C[i,k] += A[i,j] * B[j,k]",
    "C[i,j] = A[i,j] * B[i,j]",
    "C[i,l] += A[i,j] * B[j,k] * D[k,l]",
    "C[k,i] += T[i,j,k] * S[i,j,k] * v[j]",
    "y[i] += (A[i,k] + 0.5 * A[i,k]) * B[i,k] * x[k]",
]


@pytest.mark.parametrize("text", PRODUCTS)
def test_products_agree_with_the_reference(text: str) -> None:
    assignment = Einsum.parse(text).single
    sizes = {index: EXTENTS[index] for index in assignment.indices}
    for seed in range(20):
        entries, dense, formats, _ = draw(text, seed)
        expected = reference(assignment, entries, dense, sizes)
        total = tw.interpret(text, operands={**entries, **dense}, formats=formats)
        assert isinstance(total, np.ndarray)
        assert expected.mismatch(total) is None


@pytest.mark.parametrize("operator", ["+", "-"])
def test_unions_agree_with_the_reference_term_by_term(operator: str) -> None:
    text = f"y[i] += A[i,k] * x[k] {operator} B[i,k] * x[k]"
    for seed in range(20):
        entries, dense, formats, _ = draw(text, seed)
        sizes = {index: EXTENTS[index] for index in "ik"}
        parts = [
            reference(
                Einsum.parse(f"y[i] += {name}[i,k] * x[k]").single, {name: entries[name]}, dense, sizes
            ).value
            for name in "AB"
        ]
        total = tw.interpret(text, operands={**entries, **dense}, formats=formats)
        np.testing.assert_allclose(
            total, parts[0] + (parts[1] if operator == "+" else -parts[1]), rtol=1e-12, atol=1e-12
        )


def csr_of(dense: list[list[float]]) -> sp.csr_array:
    return sp.csr_array(np.array(dense))


def test_explicit_zeros_are_entries_and_cancelled_sums_stay() -> None:
    A = sp.csr_array((np.array([0.0, 1.0]), ([0, 1], [0, 1])), shape=(2, 3))
    B = csr_of([[0, 0, 0], [0, -1, 2]])
    total = tw.interpret("C[i,j] = A[i,j] + B[i,j]", A=A, B=B, output="(i,j) -> C(i) C(j)")
    assert isinstance(total, Tensor)
    assert [array.tolist() for array in total.arrays[1].values()] == [[0, 1, 3], [0, 1, 2]]
    assert total.values.tolist() == [0.0, 0.0, 2.0]


def test_a_missing_entry_annihilates_infinities_and_an_explicit_zero_does_not() -> None:
    A = sp.csr_array((np.array([0.0, 2.0]), ([0, 1], [0, 1])), shape=(2, 2))
    x = np.array([np.inf, 1.0])
    B = csr_of([[0, 3], [0, 0]])
    total = tw.interpret("y[i] += A[i,k] * x[k] + B[i,k] * x[k]", A=A, B=B, x=x)
    assert isinstance(total, np.ndarray)
    assert np.isnan(total[0]), "an explicit 0 * Inf"
    assert total[1] == 2.0, "no entry at the infinity"
    inf = csr_of([[np.inf, np.nan], [1, 0]])
    product = tw.interpret("C[i,j] = A[i,j] * B[i,j]", A=inf, B=csr_of([[0, 0], [4, 0]]))
    np.testing.assert_array_equal(product, [[0, 0], [4, 0]])


def test_terms_of_subsets() -> None:
    assignment = Einsum.parse("C[i,j] = A[i,j] * B[i,j] + max(D[i,j], 0) - E[i,j]").single
    subsets = {
        "": "A[i,j] * B[i,j] + max(D[i,j], 0) - E[i,j]",
        "A": "max(D[i,j], 0) - E[i,j]",
        "E": "A[i,j] * B[i,j] + max(D[i,j], 0)",
        "AD": "-(E[i,j])",
        "BE": "max(D[i,j], 0)",
        "ADE": "None",
    }
    found = {absent: str(term_without(assignment, frozenset(absent))) for absent in subsets}
    assert found == subsets


def test_walks_of_products_visit_no_more_than_the_shorter_operand(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sparse structure is used: a product of an empty and a full row evaluates nothing."""
    from tensorwise.lower import coiterate

    seen = []
    evaluate_term = coiterate._Loops.evaluate
    monkeypatch.setattr(
        coiterate._Loops,
        "evaluate",
        lambda self, at, below: seen.append(at) or evaluate_term(self, at, below),
    )
    A, B = np.zeros((3, 50)), np.ones((3, 50))
    A[1, 7] = A[2, 49] = 1
    tw.interpret("C[i,j] = A[i,j] * B[i,j]", A=sp.csr_array(A), B=sp.csr_array(B))
    assert [(at["i"], at["j"]) for at in seen] == [(1, 7), (2, 49)]


def test_loops_visit_entries_and_not_extents() -> None:
    """Of a billion coordinates a dense loop would not end."""
    shape = (10**9, 10**9)
    A = entries_from((shape, ([5, 10**8], [7, 3]), [1.0, 2.0]))
    B = entries_from((shape, ([10**8, 10**9 - 1], [3, 0]), [4.0, 8.0]))
    lists = "(i,j) -> C(i) C(j)"
    for operator, expected in (("*", [8.0]), ("+", [1.0, 6.0, 8.0])):
        text = f"C[i,j] = A[i,j] {operator} B[i,j]"
        result = tw.interpret(text, A=A, B=B, formats={"A": lists, "B": lists}, output=lists)
        assert isinstance(result, Tensor)
        assert result.values.tolist() == expected


def test_loops_follow_the_formats() -> None:
    gustavson = Einsum.parse("C[i,k] += A[i,j] * B[j,k]").single
    rows = {"A": Format.parse("(i,j) -> U(i) C(j)"), "B": Format.parse("(j,k) -> U(j) C(k)")}
    assert order_loops(gustavson, rows, ("i", "k")) == ("i", "j", "k")
    inner = {**rows, "B": Format.parse("(j,k) -> U(k) C(j)")}
    assert order_loops(gustavson, inner, ("i", "k")) == ("i", "k", "j")
    full = {**rows, "B": Format.parse("(j,k) -> U(j) U(k)")}
    assert order_loops(gustavson, full, ("k", "i")) == ("k", "i", "j")


def test_every_order_of_two_formats_is_computed_or_refused() -> None:
    entries, *_ = draw("C[i,j] = A[i,j] + B[i,j]", 3)
    expected, _ = expect("C[i,j] = A[i,j] + B[i,j]", entries, {})
    for first, second in itertools.product(["U(i) C(j)", "U(j) C(i)"], repeat=2):
        formats = {"A": f"(i,j) -> {first}", "B": f"(i,j) -> {second}"}
        if first == second:
            total = tw.interpret("C[i,j] = A[i,j] + B[i,j]", operands=entries, formats=formats)
            np.testing.assert_allclose(total, expected, rtol=1e-12, atol=1e-12)
        else:
            with pytest.raises(
                FormatError, match=r"no order of loops fits the formats.*another order of levels"
            ):
                tw.interpret("C[i,j] = A[i,j] + B[i,j]", operands=entries, formats=formats)


MATRIX = csr_of([[1, 0], [0, 2]])


@pytest.mark.parametrize(
    ("text", "given", "said"),
    [
        ("C[i] max= A[i,k] * B[i,k]", {}, "reduces by max"),
        ("C[i,j] = A[i,j] + 1", {}, r"has the term 1 where none of its sparse operands \(A\) has an entry"),
        ("C[i,j] = A[i,j] / B[i,j]", {}, "has the term nan where none"),
        ("C[i,j] = A[i,j] + x[j]", {"x": np.ones(2)}, r"has the term x\[j\] where none"),
        ("C[i,k] += A[i,j] * A[j,k]", {}, "give it a second time under another name"),
        ("C[A,h] = A[i,k] * Q[i,h]", {"Q": np.ones((2, 2))}, "numbers of entries"),
        ("C[i,j] = A[i,j] + D[i,j]", {}, "needs the operand D"),
        ("C[i,j] = A[i,j]", {"E": MATRIX}, "has no operand 'E'"),
        (
            "C[i,j] = A[i,j] * x[j]",
            {"x": np.ones(3)},
            "index 'j' has extent 3 in x of shape .3,., but 2 elsewhere",
        ),
        ("C[i,j] = A[i,j] * x[j]", {"x": np.ones(2, int)}, "NumPy array of floats"),
        ("C[i,j] = A[i,j]", {"sizes": {"i": 0}}, "size of index 'i' must be a positive integer"),
        ("C[i,j] = A[i,j]", {"sizes": {"z": 1}}, "has no index 'z'"),
        ("y[i] = x[i]", {"x": np.ones(2)}, "no sparse operand"),
    ],
)
def test_what_cannot_be_walked_together_is_refused(text: str, given: dict[str, object], said: str) -> None:
    operands = {name: MATRIX for name in "AB" if name in Einsum.parse(text).operands}
    with pytest.raises(InputError, match=said):
        tw.interpret(text, **operands, **given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("formats", "output", "said"),
    [
        ({"A": "(i,j) -> U(i1) C(j) U(i0:2)"}, None, "axes are whole modes in their own order, got i1, i0"),
        ({"A": "(i:degree,j) -> U(i) C(j)"}, None, "got the order degree"),
        ({}, "(i,j) -> P(j#) U(i) S(j)", "a level P neither appends nor inserts"),
    ],
)
def test_formats_that_are_not_supported_are_refused(
    formats: dict[str, str], output: str | None, said: str
) -> None:
    with pytest.raises(FormatError, match=said):
        tw.interpret("C[i,j] = A[i,j] + B[i,j]", A=MATRIX, B=MATRIX, formats=formats, output=output)


def test_compile_names_the_interpreter() -> None:
    with pytest.raises(InputError, match=r"tensorwise\.interpret computes such terms"):
        tw.compile("C[i,j] = A[i,j] + B[i,j]", A=MATRIX, B=MATRIX)
