"""Graph operators on a GPU, real or imagined, against the same ones on the CPU."""

from types import SimpleNamespace

import numpy as np
import pytest

from tensorwise.errors import MeasurementError
from tensorwise.front import gnn, spelling
from tests.device.test_cuda import fake, only_imagined  # noqa: F401 - a fixture

pytestmark = pytest.mark.usefixtures("fake")
NODES, EDGES, F = 7, 18, 5
TEXTS = {
    "C[i,f] += B[k,f] for A[i,k]": "u",
    "C[i,f] += B[k,f] * E[A] for A[i,k]": "ux",
    "C[i,f] mean= B[k,f] * E[A,f] for A[i,k]": "ue",
    "C[i,f] max= B[k,f] + D[i,f] for A[i,k]": "uv",
    "C[i,f] min= B[k,f] - E[A,f] for A[i,k]": "ue",
    "C[i,f] argmax= B[k,f] for A[i,k]": "u",
    "C[k,f] += D[i,f] for A[i,k]": "v",
    "C[A,f] = B[k,f] + D[i,f] for A[i,k]": "uv",
    "C[A] += B[k,f] * D[i,f] for A[i,k]": "uv",
    **{text: "e" + "w" * (count - 1) for count, text in enumerate(spelling.SOFTMAX, 1)},
}
"""Assignments, and of what their operands have a row: sources, destinations or edges; x: a number an edge."""


def graph() -> gnn.Graph:
    rng = np.random.default_rng(0)
    return gnn.Graph(rng.integers(0, NODES, EDGES), rng.integers(0, NODES - 2, EDGES), (NODES, NODES))


def operands(kinds: str, dtype: str = "float32") -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    shapes = {"u": (NODES, F), "v": (NODES, F), "w": (NODES, F), "e": (EDGES, F), "x": (EDGES,)}
    return [(rng.random(shapes[kind]) + 0.5).astype(dtype) for kind in kinds]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("text", TEXTS)
def test_the_same_numbers_as_on_the_cpu(text: str, dtype: str) -> None:
    import cupy

    one, given = graph(), operands(TEXTS[text], dtype)
    expected = one.evaluate(text, given)
    made = one.on_gpu().evaluate(text, [cupy.asarray(operand) for operand in given])
    assert made.dtype == expected.dtype
    np.testing.assert_allclose(made.get(), expected, rtol=1e-5)
    again = one.on_gpu().evaluate(text, [cupy.asarray(2 * operand) for operand in given])
    assert again is not made  # each call has a result of its own
    np.testing.assert_allclose(made.get(), expected, rtol=1e-5)


def test_gradients_of_maxima_find_edges_by_number() -> None:
    import cupy

    one, (given,) = graph(), operands("u")
    text = "C[i,f] max= B[k,f] for A[i,k]"
    upward = np.ones((NODES, F), np.float32)
    expected = one.gradient(text, "B", upward, B=given)

    def evaluate(text: str, taken: list[np.ndarray]) -> np.ndarray:
        found: np.ndarray = one.on_gpu().evaluate(text, [cupy.asarray(array) for array in taken]).get()
        return found

    _, chosen = spelling.by_edges(text, [given], evaluate)
    (found,) = spelling.backward(text, upward, [given], [True], evaluate, lambda: upward[:, 0], chosen)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_graphs_without_edges_and_without_features() -> None:
    import cupy

    empty = gnn.Graph([], [], (3, 4))
    text = "C[i,f] += B[k,f] for A[i,k]"
    assert not empty.on_gpu().evaluate(text, [cupy.asarray(np.ones((4, 2), np.float32))]).get().any()
    made = graph().on_gpu().evaluate(text, [cupy.asarray(np.ones((NODES, 0), np.float32))])
    assert made.shape == (NODES, 0)


def test_tuning_takes_the_place_of_what_is_run() -> None:
    import cupy

    one, given = graph(), operands("u")
    text = "C[i,f] += B[k,f] for A[i,k]"
    held = [cupy.asarray(operand) for operand in given]
    one.on_gpu().evaluate(text, held)
    (result,) = one.on_gpu().tune(trials=2, store=False)
    assert result.best_generated is not None
    assert one.on_gpu().tune(trials=2, store=False) == []
    np.testing.assert_allclose(one.on_gpu().evaluate(text, held).get(), one.evaluate(text, given), rtol=1e-5)


@only_imagined
def test_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_GPUS", "0")
    with pytest.raises(MeasurementError, match="no CUDA-capable device"):
        graph().on_gpu()


@only_imagined
def test_torch_hands_tensors_over_and_takes_them_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """The operator's function for GPUs, called by hand: tensors of this torch are on the CPU, as the imagined GPU is."""
    torch = pytest.importorskip("torch")
    from tensorwise.errors import InputError
    from tensorwise.front import torch as front

    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda number: SimpleNamespace(cuda_stream=0))
    made = front.Graph(*(torch.arange(4), torch.tensor([1, 2, 3, 3])))
    text, x = "C[i,f] += B[k,f] for A[i,k]", torch.randn(4, 6).T.contiguous().T  # by columns
    given = made.pointers, made.sources, made.numbers, made.columns, text
    found = front._evaluate_on_gpu(*given, [x.requires_grad_()])
    torch.testing.assert_close(found, made.einsum(text, x.detach()))
    largest = front._evaluate_on_gpu(*given[:-1], text.replace("+=", "max="), [x])
    torch.testing.assert_close(
        largest, made.einsum(text.replace("+=", "max="), x.detach())
    )  # 0 where nothing ends
    with pytest.raises(InputError, match="operands are on cpu and on meta"):
        front._evaluate_on_gpu(*given, [x, x.to("meta")])
    with pytest.raises(InputError, match=r"float32 and float64, got torch.bfloat16; convert it with .float"):
        front._evaluate_on_gpu(*given, [x.bfloat16()])
