"""Second derivatives, forward mode and batches of graph operators, against a row for each edge that torch differentiates."""

from collections.abc import Callable

import numpy as np
import pytest

from tensorwise.errors import InputError
from tensorwise.front import gnn

torch = pytest.importorskip("torch")

from torch.autograd import forward_ad  # noqa: E402

from tensorwise.front import torch as front  # noqa: E402

NODES, REACHED, EDGES = 7, 6, 13
"""One destination more than `REACHED`, which no edge reaches; parallel edges among the edges."""
pytestmark = pytest.mark.usefixtures("one_torch_thread")

Pair = tuple[torch.Tensor, torch.Tensor]
Function = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def edges() -> Pair:
    generator = torch.Generator().manual_seed(3)
    return (
        torch.randint(0, NODES, (EDGES,), generator=generator),
        torch.randint(0, REACHED, (EDGES,), generator=generator),
    )


U, V = edges()


@pytest.fixture(scope="module")
def graph() -> front.Graph:
    return front.Graph(U, V, (REACHED + 1, NODES))


def drawn(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    made = torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return (made.sign() * (made.abs() + 0.5)).to(dtype)  # some are divided by


def reduced(messages: torch.Tensor, how: str) -> torch.Tensor:
    none = messages.sum(0) * 0
    rows = [messages[node == V] for node in range(REACHED + 1)]
    return torch.stack([getattr(row, how)(0) if len(row) else none for row in rows])


def softmax(scores: torch.Tensor) -> torch.Tensor:
    powers = scores.exp()
    return powers / reduced(powers, "sum")[V]


def attended(x: torch.Tensor, a: torch.Tensor) -> torch.Tensor:
    weights = softmax(torch.nn.functional.leaky_relu(a[U] + a[V], 0.2))
    return reduced(x[U] * weights[:, :, None], "sum")


CASES: dict[str, tuple[Callable[..., torch.Tensor], Function, tuple[tuple[int, ...], tuple[int, ...]]]] = {
    "sum of products": (
        lambda g, x, w: front.gspmm(g, "mul", "sum", x, w),
        lambda x, w: reduced(x[U] * w, "sum"),
        ((NODES, 3), (EDGES, 1)),
    ),
    "mean of sums": (
        lambda g, x, w: front.gspmm(g, "add", "mean", x, w),
        lambda x, w: reduced(x[U] + w, "mean"),
        ((NODES, 1), (EDGES, 7)),
    ),
    "largest quotient": (
        lambda g, x, w: front.gspmm(g, "div", "max", x, w),
        lambda x, w: reduced(x[U] / w, "amax"),
        ((NODES, 2, 3), (EDGES, 2, 1)),
    ),
    "least difference of width 1": (
        lambda g, x, y: front.gspmm(g, "sub", "min", x, y, rhs_target="v"),
        lambda x, y: reduced(x[U] - y[V], "amin"),
        ((NODES, 1), (REACHED + 1, 1)),
    ),
    "difference of each edge": (
        lambda g, x, w: front.gsddmm(g, "sub", x, w, "u", "e"),
        lambda x, w: x[U] - w,
        ((NODES, 7), (EDGES, 1)),
    ),
    "dot": (
        lambda g, x, y: front.gsddmm(g, "dot", x, y),
        lambda x, y: (x[U] * y[V][:, None]).sum(-1, keepdim=True),
        ((NODES, 2, 3), (REACHED + 1, 3)),
    ),
    "edge_softmax": (
        lambda g, x, w: front.edge_softmax(g, w * x),
        lambda x, w: softmax(w * x),
        ((1, 1), (EDGES, 3)),
    ),
    "attention": (
        lambda g, x, a: front.attention(g, x, a, a[: REACHED + 1]),
        attended,
        ((NODES, 2, 3), (NODES, 2)),
    ),
}


def of(name: str, graph: front.Graph) -> tuple[Function, Function, Pair, Pair]:
    """Our function, torch's, operands, and tangents."""
    ours, theirs, (first, second) = CASES[name]
    operands = drawn(*first, seed=1), drawn(*second, seed=2)
    return (lambda *o: ours(graph, *o)), theirs, operands, (drawn(*first, seed=3), drawn(*second, seed=4))


def squares(function: Function) -> Function:
    return lambda *operands: function(*operands).square().sum()


def jacobians(found: object) -> list[torch.Tensor]:
    return [found] if isinstance(found, torch.Tensor) else [one for part in found for one in jacobians(part)]


@pytest.mark.parametrize("name", CASES)
def test_forward_mode(graph: front.Graph, name: str) -> None:
    ours, theirs, operands, tangents = of(name, graph)
    for some in ((0, 1), (0,), (1,)):

        def partial(function: Function, some: tuple[int, ...] = some) -> Function:
            return lambda *moved: function(
                *(moved[some.index(p)] if p in some else operands[p] for p in (0, 1))
            )

        given = tuple(operands[p] for p in some), tuple(tangents[p] for p in some)
        got, wanted = (torch.func.jvp(partial(f), *given) for f in (ours, theirs))
        torch.testing.assert_close(got, wanted)
    with forward_ad.dual_level():
        duals = [forward_ad.make_dual(*pair) for pair in zip(operands, tangents, strict=True)]
        tangent = forward_ad.unpack_dual(ours(*duals)).tangent
    torch.testing.assert_close(tangent, torch.func.jvp(theirs, operands, tangents)[1])


@pytest.mark.parametrize("name", CASES)
def test_second_derivatives(graph: front.Graph, name: str) -> None:
    """Reverse over reverse, and forward over reverse."""
    ours, theirs, operands, _ = of(name, graph)
    assert torch.autograd.gradgradcheck(ours, [one.clone().requires_grad_() for one in operands])
    wanted = jacobians(torch.func.hessian(squares(theirs), (0, 1))(*operands))
    got = jacobians(torch.func.hessian(squares(ours), (0, 1))(*operands))
    torch.testing.assert_close(got, wanted)


@pytest.mark.parametrize("name", CASES)
def test_batches(graph: front.Graph, name: str) -> None:
    """Of one operand or both, of gradients too, with the batch in any dimension, and nothing in the batch."""
    ours, theirs, (x, w), (y, z) = of(name, graph)
    both = torch.stack([x, y]), torch.stack([w, z], -1)
    for dims, given in ((0, -1), both), ((None, 1), (x, torch.stack([w, z], 1))), ((0, None), (both[0], w)):
        got, wanted = (torch.func.vmap(f, dims)(*given) for f in (ours, theirs))
        torch.testing.assert_close(got, wanted)
    got, wanted = (
        torch.func.vmap(torch.func.grad(squares(f), (0, 1)), (0, -1))(*both) for f in (ours, theirs)
    )
    torch.testing.assert_close(got, wanted)
    got, wanted = (
        torch.func.grad(lambda *o, f=f: squares(torch.func.vmap(f, (0, -1)))(*o))(*both)
        for f in (ours, theirs)
    )
    torch.testing.assert_close(got, wanted)
    empty = torch.func.vmap(ours, (0, None))(both[0][:0], w)
    assert empty.shape == (0, *theirs(x, w).shape)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_other_dtypes(graph: front.Graph, dtype: torch.dtype) -> None:
    for name in ("sum of products", "edge_softmax"):
        ours, theirs, operands, tangents = of(name, graph)
        given = [tuple(one.to(dtype) for one in pair) for pair in (operands, tangents)]
        got = torch.func.jvp(ours, *given)
        exact = torch.func.jvp(theirs, *(tuple(one.double() for one in pair) for pair in given))
        tolerance = 8 * torch.finfo(dtype).eps
        for one, other in zip(got, exact, strict=True):
            assert one.dtype == dtype
            torch.testing.assert_close(
                one.double(), other, rtol=tolerance, atol=tolerance * other.abs().max().item()
            )


def test_transforms_in_transforms(graph: front.Graph) -> None:
    ours, theirs, (x, w), (tangent, _) = of("largest quotient", graph)

    def twice(f: Function) -> torch.Tensor:
        inner = lambda y: torch.func.jvp(lambda x: f(x * x, w), (y,), (tangent,))[1]  # noqa: E731
        return torch.func.jvp(inner, (x,), (tangent,))[1]

    torch.testing.assert_close(twice(ours), twice(theirs))
    for mode in (torch.func.jacfwd, torch.func.jacrev):
        got, wanted = (mode(lambda x, f=f: f(x * x, w))(x) for f in (ours, theirs))
        torch.testing.assert_close(got, wanted)
    with torch.no_grad():
        got, wanted = (torch.func.grad(squares(f))(x, w) for f in (ours, theirs))
        torch.testing.assert_close(got, wanted)
    _, pullback = torch.func.vjp(lambda x: ours(x * x, w), x)  # called when the transform is over
    _, expected = torch.func.vjp(lambda x: theirs(x * x, w), x)
    upstream = drawn(REACHED + 1, 2, 3, seed=8)
    torch.testing.assert_close(pullback(upstream), expected(upstream))


def test_the_raw_operator_has_the_same_derivatives(graph: front.Graph) -> None:
    """As in programs that were exported or compiled, whose dispatch goes through the transforms."""
    _, theirs, (x, w), tangents = of("sum of products", graph)

    def raw(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        text = "C[i,f] += L[k,f] * R[A,g] for A[i,k]"
        return front.graph_einsum(graph.pointers, graph.sources, graph.numbers, graph.columns, text, [x, w])

    torch.testing.assert_close(
        torch.func.jvp(raw, (x, w), tangents), torch.func.jvp(theirs, (x, w), tangents)
    )
    for take in (torch.func.grad, torch.func.hessian):
        torch.testing.assert_close(take(squares(raw))(x, w), take(squares(theirs))(x, w))
    nested = lambda f: torch.func.grad(lambda x: torch.func.grad(squares(f))(x, w).pow(3).sum())(x)  # noqa: E731
    torch.testing.assert_close(nested(raw), nested(theirs))
    with pytest.raises(InputError, match="a graph is the same"):
        torch.func.vmap(
            lambda p: front.graph_einsum(
                p, graph.sources, graph.numbers, graph.columns, "C[i,f] += L[k,f] for A[i,k]", [x]
            )
        )(torch.stack([graph.pointers] * 2))


def test_compiled_code_with_transforms(graph: front.Graph) -> None:
    ours, theirs, (x, w), _ = of("edge_softmax", graph)
    programs = {
        "jvp": lambda f: lambda w: torch.func.jvp(lambda w: f(x, w), (w,), (w,))[1],
        "grad": lambda f: torch.func.grad(lambda w: squares(f)(x, w)),
        "vmap": lambda f: lambda w: torch.func.vmap(f, (None, -1))(x, torch.stack([w, -w], -1)),
    }
    for program in programs.values():
        torch.testing.assert_close(torch.compile(program(ours), backend="aot_eager")(w), program(theirs)(w))
    compiled = torch.compile(ours, backend="aot_eager")
    torch.testing.assert_close(compiled(x, w), theirs(x, w))
    torch.testing.assert_close(
        torch.func.jvp(lambda w: compiled(x, w), (w,), (w,)),
        torch.func.jvp(lambda w: theirs(x, w), (w,), (w,)),
    )
    torch._dynamo.reset()


def test_ties_belong_to_the_first_edge_in_every_mode() -> None:
    graph = front.Graph(torch.tensor([0, 1, 1]), torch.tensor([0, 0, 0]), (1, 2))
    x = torch.ones(2, 1, dtype=torch.float64)
    largest = lambda x: front.gspmm(graph, "copy_lhs", "max", x)  # noqa: E731
    assert torch.func.jacfwd(largest)(x).flatten().tolist() == [1.0, 0.0]
    assert torch.func.jacrev(largest)(x).flatten().tolist() == [1.0, 0.0]


def test_no_edges() -> None:
    graph = front.Graph(torch.empty(0, dtype=torch.int64), torch.empty(0, dtype=torch.int64), (2, 3))
    x, w = drawn(3, 3), drawn(0, 1)
    for reduce in ("sum", "mean", "max"):
        function = lambda x, w, how=reduce: front.gspmm(graph, "add", how, x, w)  # noqa: E731
        out, tangent = torch.func.jvp(function, (x, w), (x, w))
        assert out.tolist() == tangent.tolist() == [[0.0] * 3] * 2
        assert torch.func.vmap(function, (0, None))(x[None], w).tolist() == [[[0.0] * 3] * 2]
        assert torch.autograd.gradgradcheck(
            function, (x.clone().requires_grad_(), w.clone().requires_grad_())
        )


def test_operands_named_as_derivatives_are(graph: front.Graph) -> None:
    """The gradient of a result C is called dC: an operand may be called so, too."""
    text = "C[i,f] += dC[k,f] * tX[A,f] * X[k,f] for A[i,k]"
    operands = [drawn(NODES, 3), drawn(EDGES, 3, seed=1), drawn(NODES, 3, seed=2)]
    function = lambda *o: graph.einsum(text, *o)  # noqa: E731
    given = [one.clone().requires_grad_() for one in operands]
    assert torch.autograd.gradcheck(function, given, check_forward_ad=True)


# -- totals of halves --------------------------------------------------------------------------------------

HUB = 70_000
"""Edges of one destination: float16 holds 65,504 at most, and counting in bfloat16 stops at 256."""


@pytest.fixture(scope="module")
def hub() -> front.Graph:
    return front.Graph(torch.arange(HUB) % 500, torch.zeros(HUB, dtype=torch.long), (2, 500))


HALVES = pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)


@HALVES
def test_totals_of_halves_are_kept_in_float32(hub: front.Graph, dtype: torch.dtype) -> None:
    near = {"rtol": 0.02, "atol": 0.0}
    scores = torch.zeros(HUB, 1, dtype=dtype, requires_grad=True)
    shares = front.edge_softmax(hub, scores)
    assert shares.dtype == dtype
    torch.testing.assert_close(shares[7].item(), 1 / HUB, **near)
    upstream = (torch.arange(HUB) == 7).to(dtype)[:, None]
    (gradient,) = torch.autograd.grad(shares, scores, upstream)
    torch.testing.assert_close(gradient[7].item(), 1 / HUB, **near)
    values = torch.ones(500, 1, 4, dtype=dtype, requires_grad=True)
    ends = [torch.full((nodes, 1), 60_000.0, dtype=dtype, requires_grad=True) for nodes in (500, 2)]
    out = front.attention(hub, values, *ends)  # the sum of two scores is more than float16 holds
    assert out.dtype == dtype
    torch.testing.assert_close(out[0, 0, 0].item(), 1.0, **near)
    gradients = torch.autograd.grad(out.sum(), [values, *ends])
    torch.testing.assert_close(gradients[0][3, 0, 0].item(), 1 / 500, **near)
    assert all(one.isfinite().all() and one.dtype == dtype for one in gradients)
    x = torch.ones(500, 2, dtype=dtype, requires_grad=True)
    mean = front.gspmm(hub, "copy_lhs", "mean", x)
    torch.testing.assert_close(mean[0, 0].item(), 1.0, **near)
    (gradient,) = torch.autograd.grad(mean.sum(), x, create_graph=True)
    torch.testing.assert_close(gradient[0, 0].item(), 1 / 500, **near)
    assert torch.func.jvp(lambda x: front.gspmm(hub, "copy_lhs", "mean", x), (x,), (x,))[1][0, 0] == 1


@HALVES
def test_totals_of_halves_in_numpy(hub: front.Graph, dtype: torch.dtype) -> None:
    kind = front._array(torch.zeros(1, dtype=dtype)).dtype
    ones = np.ones((500, 1, 4), kind)
    ends = [np.full((nodes, 1), 60_000, kind) for nodes in (500, 2)]
    shares = gnn.edge_softmax(hub.graph, np.zeros((HUB, 1), kind))
    out = gnn.attention(hub.graph, ones, *ends)
    gradient = hub.graph.gradient(
        "C[i,f] mean= L[k,f] for A[i,k]", "L", np.ones((2, 1), kind), L=ones[:, 0, :1]
    )
    for found, wanted in ((shares, 1 / HUB), (out, 1), (gradient, 1 / 500)):
        assert found.dtype == kind
        assert abs(float(found.flat[0]) / wanted - 1) < 0.02


# -- what operands and graphs may be -----------------------------------------------------------------------


def summed(graph: front.Graph, x: torch.Tensor) -> torch.Tensor:
    return front.gspmm(graph, "copy_lhs", "sum", x)


class Special(torch.Tensor):
    """A subclass that nobody knows."""


def test_views_and_kinds_of_tensors(graph: front.Graph) -> None:
    z = torch.complex(drawn(NODES, 3), drawn(NODES, 3, seed=5))
    views = {
        "negated": z.conj().imag,
        "real part": z.conj().real,
        "expanded": drawn(1, 3).expand(NODES, 3),
        "by columns": drawn(3, NODES).T,
        "every second": drawn(NODES, 6)[:, ::2],
        "subclass": drawn(NODES, 3).as_subclass(Special),
        "parameter": torch.nn.Parameter(drawn(NODES, 3)),
    }
    for name, x in views.items():
        exact = torch.tensor(x.tolist(), dtype=torch.float64)
        wanted = reduced(exact[U], "sum")
        torch.testing.assert_close(summed(graph, x).detach().as_subclass(torch.Tensor), wanted, msg=name)
        leaf = x.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(summed(graph, leaf).square().sum(), leaf)
        (exact_gradient,) = torch.autograd.grad(
            reduced(exact.requires_grad_()[U], "sum").square().sum(), exact
        )
        torch.testing.assert_close(gradient.as_subclass(torch.Tensor), exact_gradient, msg=name)
    (gradient,) = torch.autograd.grad(
        summed(graph, (leaf := z.clone().requires_grad_()).conj().imag).sum(), leaf
    )
    assert gradient.imag.sum() == -3 * EDGES
    with torch.inference_mode():
        inside = drawn(NODES, 3) * 1
        torch.testing.assert_close(summed(graph, inside), reduced(inside[U], "sum"))
    torch.testing.assert_close(summed(graph, inside), reduced(inside[U], "sum"))


def test_tensors_without_numbers_have_shapes(graph: front.Graph) -> None:
    x = torch.empty(NODES, 3, device="meta", requires_grad=True)
    out = summed(graph, x)
    assert out.device.type == "meta"
    assert out.shape == (REACHED + 1, 3)
    assert torch.autograd.grad(out.sum(), x)[0].shape == x.shape
    assert front.edge_softmax(graph, torch.empty(EDGES, 2, device="meta")).shape == (EDGES, 2)


def test_what_is_refused(graph: front.Graph) -> None:
    x = drawn(NODES, 3)
    taken = "dense tensors of float32, float64, bfloat16 or float16"
    for strange, message in (
        (x.to_sparse(), taken),
        (x.to(torch.float8_e4m3fn), taken),
        (torch.quantize_per_tensor(x.float(), 0.1, 0, torch.qint8), taken),
        (x.cfloat().conj(), "dtype complex64 is not supported"),
        (x.int(), "dtype int32 is not supported"),
        (x.numpy(), "operands are tensors of torch, got ndarray"),
        (x.tolist(), "features are an array or a tensor, got list"),
        (torch.nested.nested_tensor([x, x]), "got a nested one"),
    ):
        with pytest.raises(InputError, match=message):
            summed(graph, strange)
    for made in (
        lambda: front.Graph(U.to("meta"), V.to("meta"), (NODES, NODES)),
        lambda: torch.func.vmap(lambda u: summed(front.Graph(u, V, (NODES, NODES)), x))(torch.stack([U, U])),
    ):
        with pytest.raises(InputError, match="a graph is made of the numbers of its edges"):
            made()
    leaf = x.clone().requires_grad_()
    out = summed(graph, leaf)
    with pytest.raises(InputError, match=r"batches through torch.func.vmap"):
        torch.autograd.grad(out, leaf, torch.stack([out.detach()] * 2), is_grads_batched=True)
