"""The PyTorch front: schemas, gradients, compiled code, dtypes and what is taken as a graph."""

import sys
import warnings
from collections.abc import Callable

import numpy as np
import pytest

from tensorwise.errors import InputError, MissingExtraError

torch = pytest.importorskip("torch")

from tensorwise.front import gnn, spelling  # noqa: E402
from tensorwise.front import torch as front  # noqa: E402

NODES, EDGES = 8, 21
pytestmark = pytest.mark.usefixtures("one_torch_thread")


def edges() -> tuple[torch.Tensor, torch.Tensor]:
    """Parallel edges among them, in no order; two nodes are never reached."""
    rng = np.random.default_rng(0)
    return torch.from_numpy(rng.integers(0, NODES, EDGES)), torch.from_numpy(
        rng.integers(0, NODES - 2, EDGES)
    )


@pytest.fixture(scope="module")
def graph() -> front.Graph:
    return front.Graph(*edges(), (NODES, NODES))


def drawn(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> torch.Tensor:
    made = torch.randn(
        *shape, generator=torch.Generator().manual_seed(seed + sum(shape)), dtype=torch.float64
    )
    return made.to(dtype).requires_grad_()


ASSIGNMENTS = {
    "C[i,f] += L[k,f] * R[A,f] for A[i,k]": ((NODES, 3), (EDGES, 3)),
    "C[i,f,g] mean= L[k,f,g] / R[A,f] for A[i,k]": ((NODES, 2, 3), (EDGES, 2)),
    "C[i,f] max= L[k,f] + R[i,f] for A[i,k]": ((NODES, 3), (NODES, 3)),
    "C[A,f] += L[k,f,g] * R[i,f,g] for A[i,k]": ((NODES, 2, 3), (NODES, 2, 3)),
}


@pytest.mark.parametrize("text", ASSIGNMENTS)
def test_the_operator_is_what_its_schema_says(graph: front.Graph, text: str) -> None:
    operands = [drawn(*shape) for shape in ASSIGNMENTS[text]]
    with torch.no_grad():
        operands[1] += 5 * operands[1].sign()
    given = (graph.pointers, graph.sources, graph.numbers, graph.columns, text, operands)
    assert set(torch.library.opcheck(front.graph_einsum, given).values()) == {"SUCCESS"}
    assert torch.autograd.gradcheck(lambda *o: graph.einsum(text, *o), operands)
    if "max" not in text:
        assert torch.autograd.gradgradcheck(lambda *o: graph.einsum(text, *o), operands)


FUNCTIONS: dict[str, Callable[..., torch.Tensor]] = {
    "gspmm": lambda g, x, w, a, b: front.gspmm(g, "mul", "sum", x, w[:, :, None]),
    "gspmm max": lambda g, x, w, a, b: front.gspmm(g, "copy_lhs", "max", x),
    "gspmm of edges": lambda g, x, w, a, b: front.gspmm(g, "copy_rhs", "mean", rhs=w),
    "gsddmm": lambda g, x, w, a, b: front.gsddmm(g, "dot", x, x),
    "edge_softmax": lambda g, x, w, a, b: front.edge_softmax(g, w),
    "attention": lambda g, x, w, a, b: front.attention(g, x, a, b),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_have_gradients_and_compile(graph: front.Graph, name: str) -> None:
    function = FUNCTIONS[name]
    given = [drawn(NODES, 2, 3), drawn(EDGES, 2), drawn(NODES, 2), drawn(NODES, 2, seed=9)]
    assert torch.autograd.gradcheck(lambda *o: function(graph, *o), given)
    if name in ("edge_softmax", "attention"):  # with gradients of their own
        assert torch.autograd.gradgradcheck(lambda *o: function(graph, *o), given)
    eager = function(graph, *given)
    compiled = torch.compile(lambda *o: function(graph, *o), fullgraph=True, backend="aot_eager")(*given)
    torch.testing.assert_close(compiled, eager)
    wanted = torch.autograd.grad(eager.square().sum(), given, allow_unused=True)
    got = torch.autograd.grad(compiled.square().sum(), given, allow_unused=True)
    for one, other in zip(got, wanted, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            torch.testing.assert_close(one, other)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_dtypes(graph: front.Graph, dtype: torch.dtype) -> None:
    x = drawn(NODES, 5, dtype=dtype)
    out = front.gspmm(graph, "copy_lhs", "sum", x)
    out.sum().backward()
    u, v = edges()
    adjacency = torch.zeros(NODES, NODES).index_put_((v, u), torch.ones(EDGES), accumulate=True).double()
    assert out.dtype == x.grad.dtype == dtype
    tolerance = 0.1 if dtype == torch.bfloat16 else 1e-5
    torch.testing.assert_close(out.double(), adjacency @ x.double(), atol=tolerance, rtol=tolerance)
    torch.testing.assert_close(x.grad.double(), adjacency.sum(0)[:, None].expand(-1, 5), atol=0.0, rtol=0.0)


def test_tuned_both_ways() -> None:
    graph = front.Graph(*edges(), (NODES, NODES))

    def passes() -> tuple[torch.Tensor, ...]:
        x, w = drawn(NODES, 4), drawn(EDGES, 1)
        out = front.gspmm(graph, "mul", "sum", x, w)
        return out.detach(), *torch.autograd.grad(out.sum(), [x, w])

    before = passes()
    forward, of_sources, of_edges = graph.tune(trials=2, model=None, store=False)
    rows = [result.workload.assignment.output.indices[0] for result in (forward, of_sources, of_edges)]
    assert rows == ["i", "k", "A"]
    for known, again in zip(before, passes(), strict=True):
        torch.testing.assert_close(again, known)


def test_what_is_taken_as_a_graph() -> None:
    u, v = edges()
    x = drawn(NODES, 4).detach()
    wanted = front.gspmm(front.Graph(u, v, (NODES, NODES)), "copy_lhs", "sum", x)
    pair, index = front.Graph.of((u, v), (NODES, NODES)), front.Graph.of(torch.stack([u, v]), (NODES, NODES))
    ones = torch.ones(EDGES, dtype=torch.float64)
    with warnings.catch_warnings(action="ignore"):  # that CSR is new to torch
        csr = torch.sparse_coo_tensor(torch.stack([v, u]), ones, (NODES, NODES)).coalesce().to_sparse_csr()
    for graph in (pair, index, front.Graph.of(pair)):
        torch.testing.assert_close(front.gspmm(graph, "copy_lhs", "sum", x), wanted)
    weighed = front.gspmm(front.Graph.of(csr), "mul", "sum", x, csr.values()[:, None])
    torch.testing.assert_close(weighed, wanted)
    with pytest.raises(InputError, match="a graph is a sparse tensor"):
        front.Graph.of(torch.ones(3))


def test_a_graph_is_made_again_from_its_tensors(graph: front.Graph) -> None:
    """As in a program that was exported: nobody holds the graph itself."""
    w = drawn(EDGES, 3).detach()
    text = "C[i,f] += E[A,f] for A[i,k]"
    wanted = graph.einsum(text, w)
    assert graph.numbers is not None
    tensors = [graph.pointers.clone(), graph.sources.clone(), graph.numbers.clone()]
    for _ in range(2):
        torch.testing.assert_close(front.graph_einsum(*tensors, graph.columns, text, [w]), wanted)


def test_operands_are_read_where_they_lie(graph: front.Graph) -> None:
    x = drawn(NODES, 4, dtype=torch.bfloat16).detach()
    assert front._array(x).__array_interface__["data"][0] == x.data_ptr()
    assert isinstance(graph.graph, gnn.Graph)


def test_without_torch_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "tensorwise.front.torch")
    with pytest.raises(MissingExtraError, match=r"tensorwise\[torch\]"):
        import tensorwise.front.torch  # noqa: F401


# -- against a row for each edge, differentiated by torch -------------------------------------------------


def softmax(scores: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    place = v[:, None].expand_as(scores)
    largest = scores.new_full((NODES, scores.shape[1]), -torch.inf)
    powers = (scores - largest.scatter_reduce(0, place, scores.detach(), "amax")[v]).exp()
    return powers / powers.new_zeros(NODES, scores.shape[1]).index_add(0, v, powers)[v]


def reduced(rows: torch.Tensor, v: torch.Tensor, reduce: str) -> torch.Tensor:
    place = v.view(-1, *(1,) * (rows.ndim - 1)).expand_as(rows)
    return rows.new_zeros(NODES, *rows.shape[1:]).scatter_reduce(0, place, rows, reduce, include_self=False)


SCATTERED: dict[str, tuple[Callable[..., torch.Tensor], Callable[..., torch.Tensor]]] = {
    "sum": (
        lambda g, x, w, a, b: front.gspmm(g, "mul", "sum", x, w[:, :, None]),
        lambda u, v, x, w, a, b: reduced(x[u] * w[:, :, None], v, "sum"),
    ),
    "mean": (
        lambda g, x, w, a, b: front.gspmm(g, "copy_lhs", "mean", x),
        lambda u, v, x, w, a, b: reduced(x[u], v, "mean"),
    ),
    "min": (
        lambda g, x, w, a, b: front.gspmm(g, "div", "min", x, b[:, :, None], rhs_target="v"),
        lambda u, v, x, w, a, b: reduced(x[u] / b[v][:, :, None], v, "amin"),
    ),
    "dot": (
        lambda g, x, w, a, b: front.gsddmm(g, "dot", x, x * w.sum()),
        lambda u, v, x, w, a, b: (x[u] * (x * w.sum())[v]).sum(-1, keepdim=True),
    ),
    "softmax": (
        lambda g, x, w, a, b: front.edge_softmax(g, w),
        lambda u, v, x, w, a, b: softmax(w, v),
    ),
    "attention": (
        lambda g, x, w, a, b: front.attention(g, x, a, b),
        lambda u, v, x, w, a, b: reduced(
            x[u] * softmax(torch.nn.functional.leaky_relu(a[u] + b[v], 0.2), v)[:, :, None], v, "sum"
        ),
    ),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", SCATTERED)
def test_results_and_gradients(graph: front.Graph, name: str, dtype: torch.dtype) -> None:
    """bfloat16 in, bfloat16 out: everything is added up in float32 and rounded once."""
    ours, theirs = SCATTERED[name]
    shapes = [(NODES, 2, 3), (EDGES, 2), (NODES, 2), (NODES, 2)]
    given = [drawn(*shape, dtype=dtype, seed=seed).detach() for seed, shape in enumerate(shapes)]
    given[3] = given[3].sign() * (given[3].abs() + 1)  # divided by
    operands = [operand.clone().requires_grad_() for operand in given]
    exact = [operand.double().requires_grad_() for operand in given]
    out, wanted = ours(graph, *operands), theirs(*edges(), *exact)
    upstream = drawn(*wanted.shape, dtype=dtype, seed=5).detach()
    assert out.dtype == dtype
    rounding = {torch.float32: 2e-6, torch.float64: 1e-14, torch.bfloat16: 2**-6}[dtype]
    near(out, wanted, rounding)
    got = torch.autograd.grad(out, operands, upstream, allow_unused=True)
    gradients = torch.autograd.grad(wanted, exact, upstream.double(), allow_unused=True)
    for one, other in zip(got, gradients, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            assert one.dtype == dtype
            near(
                one, other, 4 * rounding if name == "attention" else rounding
            )  # the sum of two, each rounded


@pytest.mark.parametrize(
    "needed", [(True, True, True), (True, False, False), (False, True, False), (False, False, True)]
)
def test_attention_has_the_same_gradients_without_weights_kept(
    graph: front.Graph, needed: tuple[bool, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    shapes = (NODES, 2, 3), (NODES, 2), (NODES, 2)
    found = []
    for most in (0, spelling.WEIGHTS_BYTES):
        monkeypatch.setattr(spelling, "WEIGHTS_BYTES", most)
        operands = [
            drawn(*shape, dtype=torch.float64, seed=seed).detach().requires_grad_(need)
            for seed, (shape, need) in enumerate(zip(shapes, needed, strict=True))
        ]
        out = front.attention(graph, *operands)
        wanted = [operand for operand in operands if operand.requires_grad]
        first = torch.autograd.grad(out.square().sum(), wanted, create_graph=True)
        plain = torch.autograd.grad(front.attention(graph, *operands).square().sum(), wanted)
        second = torch.autograd.grad(sum(one.square().sum() for one in first), wanted)
        found.append([out, *first, *plain, *second])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)


def near(got: torch.Tensor, wanted: torch.Tensor, rounding: float) -> None:
    """Errors are measured against the largest, and against 1: terms may cancel."""
    largest = max(1.0, wanted.abs().max().item())
    torch.testing.assert_close(got.double(), wanted.detach(), rtol=rounding, atol=rounding * largest)


def test_bfloat16_is_added_up_in_float32() -> None:
    """In bfloat16 the sum would stay at 256, where adding one changes nothing."""
    graph = front.Graph(torch.zeros(4096, dtype=torch.int64), torch.zeros(4096, dtype=torch.int64), (1, 1))
    x = torch.ones(1, 3, dtype=torch.bfloat16, requires_grad=True)
    out = front.gspmm(graph, "copy_lhs", "sum", x)
    out.backward(torch.ones_like(out))
    assert out.tolist() == x.grad.tolist() == [[4096.0] * 3]
    assert front.gspmm(graph, "copy_lhs", "mean", x).tolist() == [[1.0] * 3]


@pytest.mark.parametrize("name", SCATTERED)
def test_layouts_and_indices(name: str) -> None:
    """Features that lie in memory in another order, gradients that are one number repeated, indices of 32 bits."""
    ours, theirs = SCATTERED[name]
    u, v = (index.int() for index in edges())
    graph = front.Graph(u, v, (NODES, NODES))
    given = [
        drawn(3, 2, NODES).transpose(0, 2).detach(),
        drawn(EDGES, 4)[:, ::2].detach(),
        drawn(2, NODES).T.detach(),
        (1 + drawn(1, 2).square()).expand(NODES, 2).detach(),
    ]
    assert not any(operand.is_contiguous() for operand in given)
    exact = [operand.clone().requires_grad_() for operand in given]
    operands = [operand.requires_grad_() for operand in given]
    out, wanted = ours(graph, *operands), theirs(*edges(), *exact)
    near(out, wanted, 1e-13)
    got = torch.autograd.grad(out.sum(), operands, allow_unused=True)
    gradients = torch.autograd.grad(wanted.sum(), exact, allow_unused=True)
    for one, other in zip(got, gradients, strict=True):
        if other is not None:
            near(one, other, 1e-12)


@pytest.mark.parametrize("shape", [(0, 0), (3, 2)])
def test_graphs_without_edges(shape: tuple[int, int]) -> None:
    graph = front.Graph(torch.empty(0, dtype=torch.int64), torch.empty(0, dtype=torch.int64), shape)
    x, w = drawn(shape[1], 4), drawn(0, 1)
    for reduce in spelling.REDUCTIONS:
        out = front.gspmm(graph, "mul", reduce, x, w)
        assert out.tolist() == [[0.0] * 4] * shape[0]
        gradients = torch.autograd.grad(out.sum(), [x, w])
        assert gradients[0].tolist() == [[0.0] * 4] * shape[1]
        assert gradients[1].shape == (0, 1)
    y = drawn(shape[0], 4)
    out = front.gsddmm(graph, "dot", x, y)
    assert out.shape == (0, 1)
    assert torch.autograd.grad(out.sum(), [x, y])[1].tolist() == [[0.0] * 4] * shape[0]
    assert front.edge_softmax(graph, w).shape == (0, 1)


def test_gradients_of_edges_only(graph: front.Graph) -> None:
    x, w = drawn(NODES, 3).detach(), drawn(EDGES, 1)
    out = front.gspmm(graph, "mul", "sum", x, w)
    out.backward(torch.ones_like(out))
    u, _ = edges()
    torch.testing.assert_close(w.grad, x[u].sum(1, keepdim=True))
    assert x.grad is None


def test_errors_say_what_is_wrong(graph: front.Graph) -> None:
    u, v = edges()
    with pytest.raises(InputError, match=r"edge 0 has the source \d+, outside 0 to 3"):
        front.Graph(u + 4, v, (NODES, 4))
    with pytest.raises(InputError, match="outside 0 to 7"):
        front.Graph.of(torch.stack([u, -1 - v]), (NODES, NODES))
    for given, message in {
        (NODES + 1, 3): r"L must have shape \(8, 3\)",
        (NODES, 3, 2): "do not broadcast",
    }.items():
        with pytest.raises(InputError, match=message):
            front.gspmm(graph, "mul", "sum", drawn(*given), drawn(EDGES, 3))
    with pytest.raises(InputError, match=r"R must have shape \(21, 3\)"):
        front.gspmm(graph, "mul", "sum", drawn(NODES, 3), drawn(EDGES - 1, 3))


# -- around the dispatcher --------------------------------------------------------------------------------


def both_ways(graph: front.Graph) -> None:
    """A maximum and a sum, forward and backward."""
    x = drawn(NODES, 3)
    out = front.gspmm(graph, "copy_lhs", "max", x) + front.gspmm(graph, "copy_lhs", "sum", x.detach())
    out.sum().backward()
    assert x.grad is not None


def test_calls_that_nobody_observes_pass_by_the_dispatcher(
    graph: front.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dispatched(*given: object) -> torch.Tensor:
        raise AssertionError("it was dispatched")

    monkeypatch.setattr(front, "graph_einsum", dispatched)
    both_ways(graph)


def test_modes_and_profilers_see_the_operator(graph: front.Graph) -> None:
    seen = []

    class Observer(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            seen.append(func)
            return func(*args, **(kwargs or {}))

    with Observer():
        both_ways(graph)
    assert seen.count(torch.ops.tensorwise.graph_einsum.default) == 4  # argument, maximum, sum, gradient
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        both_ways(graph)
    assert "tensorwise::graph_einsum" in {event.key for event in profile.key_averages()}


# -- compiled code ----------------------------------------------------------------------------------------


def test_inductor_compiles_forward_and_backward_once_for_all_widths(graph: front.Graph) -> None:
    """The whole of it, without a break; the second width is met as one that varies."""
    from torch._dynamo.testing import CompileCounterWithBackend

    counter = CompileCounterWithBackend("inductor")

    def layers(x: torch.Tensor, w: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        summed = front.gspmm(graph, "mul", "mean", x, w[:, :, None]).relu()
        weights = front.edge_softmax(graph, front.gsddmm(graph, "dot", x, summed)[:, :, 0])
        largest = front.gspmm(graph, "mul", "max", x, weights[:, :, None])
        return largest + front.attention(graph, x, a, b)

    compiled = torch.compile(layers, fullgraph=True, backend=counter)
    for width in (3, 5, 9):
        given = [drawn(NODES, 2, width), drawn(EDGES, 2), drawn(NODES, 2), drawn(NODES, 2, seed=9)]
        out, wanted = compiled(*given), layers(*given)
        torch.testing.assert_close(out, wanted)
        got = torch.autograd.grad(out.square().sum(), given)
        for one, other in zip(got, torch.autograd.grad(wanted.square().sum(), given), strict=True):
            torch.testing.assert_close(one, other)
    assert counter.frame_count == 2
    torch._dynamo.reset()
