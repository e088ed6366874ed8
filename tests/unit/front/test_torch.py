"""The PyTorch front: schemas, gradients, compiled code, dtypes and what is taken as a graph."""

import sys
import warnings
from collections.abc import Callable

import numpy as np
import pytest

from tensorwise.errors import InputError, MissingExtraError

torch = pytest.importorskip("torch")

from tensorwise.front import gnn  # noqa: E402
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
    with pytest.raises(InputError, match="a graph is a torch"):
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
