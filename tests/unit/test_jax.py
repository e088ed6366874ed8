"""The product for JAX: formats, dtypes with and without x64, derivatives, jit, vmap, and what is refused."""

from collections.abc import Callable, Iterator

import numpy as np
import pytest
import scipy.sparse as sp

from tensorwise.errors import InputError

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402
from jax.test_util import check_grads  # noqa: E402

import tensorwise as tw  # noqa: E402

ROWS, INNER = 6, 8


@pytest.fixture
def x64() -> Iterator[None]:
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", False)


def matrix(format: str = "csr", dtype: type = np.float32) -> sp.sparray:
    rng = np.random.default_rng(0)
    made = rng.standard_normal((ROWS, INNER)) * (rng.random((ROWS, INNER)) < 0.5)
    made[2], made[:, 3] = 0, 0
    return sp.coo_array(made.astype(dtype)).asformat(format)


def drawn(*shape: int, dtype: type = np.float32) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(dtype)


def close(one: object, other: object, rtol: float = 1e-5) -> None:
    np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=rtol, atol=rtol)


@pytest.mark.parametrize("format", ["csr", "csc", "coo", "bsr", "dia", "lil"])
@pytest.mark.parametrize("compiled", [False, True])
def test_every_format_multiplies(format: str, compiled: bool) -> None:
    A = matrix(format)
    for x in (drawn(INNER), drawn(INNER, 5), drawn(INNER, 0)):
        run = jax.jit(lambda x: tw.jax.matmul(A, x)) if compiled else lambda x: tw.jax.matmul(A, x)
        out = run(x)
        assert isinstance(out, jax.Array)
        close(out, A @ x)


@pytest.mark.parametrize("format", ["csr", "csc", "coo", "bsr"])
def test_values_have_the_order_of_the_matrix(format: str) -> None:
    A, x = matrix(format), drawn(INNER, 3)
    values = drawn(*A.data.shape)
    changed = A.copy()
    changed.data = values
    close(jax.jit(lambda v, x: tw.jax.matmul(A, x, v))(values, x), changed @ x)
    assert not np.array_equal(np.asarray(A @ x), np.asarray(changed @ x))
    found = jax.grad(lambda v: tw.jax.matmul(A, x, v).sum())(values)
    dense = changed.copy()
    dense.data = np.asarray(found)
    close(dense.toarray(), (np.ones((ROWS, 3)) @ x.T) * stored(changed))


def stored(A: sp.sparray) -> np.ndarray:
    ones = A.copy()
    ones.data = np.ones_like(A.data)
    return ones.toarray()


@pytest.mark.parametrize("duplicates", [False, True])
def test_duplicates_are_summed(duplicates: bool) -> None:
    A = sp.coo_array((np.float32([1, 2, 3]), ([1, 0, 1], [0, 1, 0 if duplicates else 2])), shape=(2, 3))
    x = drawn(3)
    close(tw.jax.matmul(A, x), A @ x)
    close(tw.jax.matmul(A, x, A.data), A @ x)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("shape", [(INNER,), (INNER, 3)])
@pytest.mark.parametrize("compiled", [False, True])
def test_derivatives_of_any_order(shape: tuple[int, ...], compiled: bool) -> None:
    A = matrix(dtype=np.float64)

    def run(values: jax.Array, x: jax.Array) -> jax.Array:
        return jnp.sin(tw.jax.matmul(A, x, values))

    given = drawn(A.nnz, dtype=np.float64), drawn(*shape, dtype=np.float64)
    check_grads(jax.jit(run) if compiled else run, given, order=2, modes=["rev"])


def test_gradients_of_constants_are_not_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    from tensorwise.front.gnn import Graph

    texts: list[str] = []
    evaluate = Graph.evaluate
    monkeypatch.setattr(
        Graph, "evaluate", lambda self, text, *more: (texts.append(text), evaluate(self, text, *more))[1]
    )
    A, x = matrix(), drawn(INNER)
    close(jax.grad(lambda x: tw.jax.matmul(A, x).sum())(x), A.T @ np.ones(ROWS, np.float32))
    assert len(texts) == 2


def test_dtypes_are_those_of_jax() -> None:
    A, x = matrix(dtype=np.float64), drawn(INNER, dtype=np.float64)
    assert tw.jax.matmul(A, x).dtype == np.float32
    assert tw.jax.matmul(A, jnp.asarray(x, jnp.float16)).dtype == np.float32
    half = matrix().data.astype(np.float16)
    assert tw.jax.matmul(A, jnp.asarray(x, jnp.float16), half).dtype == np.float16
    assert tw.jax.matmul(A, np.ones(INNER, int)).dtype == np.float32
    brain = tw.jax.matmul(A, jnp.asarray(x, jnp.bfloat16), jnp.asarray(A.data, jnp.bfloat16))
    assert brain.dtype == jnp.bfloat16
    close(brain.astype(jnp.float32), A @ x, rtol=0.1)


@pytest.mark.usefixtures("x64")
def test_float64_where_jax_has_it() -> None:
    A, x = matrix(dtype=np.float64), drawn(INNER, dtype=np.float64)
    out = tw.jax.matmul(A, x)
    assert out.dtype == np.float64
    close(out, A @ x, rtol=1e-14)
    assert tw.jax.matmul(A, x.astype(np.float32)).dtype == np.float64


@pytest.mark.parametrize("compiled", [False, True])
def test_batches_by_vmap(compiled: bool) -> None:
    A = matrix()

    def run(values: jax.Array, x: jax.Array) -> jax.Array:
        return tw.jax.matmul(A, x, values)

    wrap: Callable[..., Callable[..., jax.Array]] = jax.jit if compiled else lambda function: function
    values, vectors, matrices = drawn(4, A.nnz), drawn(4, INNER), drawn(3, 4, INNER, 2)
    close(wrap(jax.vmap(run, (None, 0)))(values[0], vectors), [run(values[0], one) for one in vectors])
    close(wrap(jax.vmap(run, (0, None)))(values, vectors[0]), [run(one, vectors[0]) for one in values])
    both = [run(one, other) for one, other in zip(values, vectors)]
    close(wrap(jax.vmap(run))(values, vectors), both)
    twice = wrap(jax.vmap(jax.vmap(run), (None, 0)))(values, matrices)
    close(twice, [[run(one, other) for one, other in zip(values, some)] for some in matrices])
    single = wrap(jax.vmap(run, (None, 0)))(values[0], matrices[0, :1])
    close(single, [run(values[0], matrices[0, 0])])
    found = wrap(jax.vmap(jax.grad(lambda v, x: run(v, x).sum(), (0, 1))))(values, vectors)
    wanted = [jax.grad(lambda v, x: run(v, x).sum(), (0, 1))(*each) for each in zip(values, vectors)]
    for at in (0, 1):
        close(found[at], [one[at] for one in wanted])


def test_a_pattern_changed_in_place_is_seen() -> None:
    A, x = matrix(), drawn(INNER)
    close(tw.jax.matmul(A, x), A @ x)
    A.indices[:] = A.indices[::-1].copy()
    A.data *= 2
    close(tw.jax.matmul(A, x), A @ x)
    A.indices[0] = INNER
    with pytest.raises(InputError, match="outside"):
        tw.jax.matmul(A, x)


def test_large_operands_within_loops() -> None:
    A = sp.random_array(
        (2000, 2000), density=0.01, format="csr", dtype=np.float32, rng=np.random.default_rng(0)
    )
    A = A * np.float32(0.1)

    @jax.jit
    def power(x: jax.Array) -> jax.Array:
        return jax.lax.fori_loop(0, 5, lambda _, y: tw.jax.matmul(A, y), x)

    x = wanted = drawn(2000, 500)
    for _ in range(5):
        wanted = A @ wanted
    close(power(x), wanted, rtol=1e-3)


REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "dense": (lambda: tw.jax.matmul(np.eye(3), np.ones(3)), r"csr_array\(A\)"),
    "inner": (lambda: tw.jax.matmul(matrix(), np.ones(3)), r"\(8,\) or \(8, columns\)"),
    "three dimensions": (lambda: tw.jax.matmul(matrix(), np.ones((INNER, 2, 2))), "got"),
    "integers": (lambda: tw.jax.matmul(matrix(dtype=np.int32), np.ones(INNER, np.int32)), "int32"),
    "complex": (lambda: tw.jax.matmul(matrix(), np.ones(INNER, complex)), "complex64"),
    "values": (lambda: tw.jax.matmul(matrix(), np.ones(INNER), np.ones(2)), r"of shape \(\d+,\)"),
    "lists": (lambda: tw.jax.matmul(matrix("lil"), np.ones(INNER), np.ones(2)), r"A\.tocsr\(\)"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_refused_with_a_remedy(name: str) -> None:
    make, message = REFUSED[name]
    with pytest.raises(InputError, match=message):
        make()
