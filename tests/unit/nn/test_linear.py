"""SparseLinear: what it is made of, gradients, copies and files, compiled, exported and half-precision code."""

import copy
import io
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from tensorwise.errors import InputError

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn.utils import prune  # noqa: E402

from tensorwise.nn import SparseLinear  # noqa: E402
from tensorwise.nn import linear as front  # noqa: E402

OUT, IN = 6, 8
pytestmark = [
    pytest.mark.usefixtures("one_torch_thread"),
    pytest.mark.filterwarnings("ignore:Sparse (CSR|CSC|BSR|invariant)"),
]


def drawn_weight(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """A weight with an empty row, an empty column and half of the others 0."""
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((OUT, IN)) * (rng.random((OUT, IN)) < 0.5)
    weight[2], weight[:, 3] = 0, 0
    return torch.from_numpy(weight).to(dtype)


def drawn(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=dtype)


def pruned_linear() -> nn.Linear:
    torch.manual_seed(0)
    linear = nn.Linear(IN, OUT)
    prune.random_unstructured(linear, "weight", amount=0.5)
    return linear


def test_a_weight_that_is_not_sparse_gives_one_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(front, "_warned", [])
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        SparseLinear(pruned_linear())  # half of it stays
        SparseLinear(torch.ones(OUT, IN, dtype=torch.bool))  # a place for values that are loaded
        SparseLinear(torch.ones(0, IN))
    with pytest.warns(
        UserWarning, match=r"shape \(6, 8\) has density 1; .*Prune .* or keep nn\.Linear"
    ) as caught:
        _ = [SparseLinear(nn.Linear(IN, OUT)) for _ in range(2)]
    assert [Path(one.filename) for one in caught] == [Path(__file__)]
    monkeypatch.setattr(front, "_warned", [])
    with pytest.warns(UserWarning, match=r"has density 0\.52"):
        SparseLinear(torch.ones(OUT, IN), mask=torch.arange(OUT * IN).reshape(OUT, IN) < 25)


def semi_structured() -> torch.Tensor:
    """A 2:4 tensor; torch makes them on GPUs only, but from its parts on any device."""
    from torch.sparse import SparseSemiStructuredTensorCUTLASS
    from torch.sparse._semi_structured_conversions import sparse_semi_structured_from_dense_cutlass

    dense = drawn(32, 64, dtype=torch.float16) * torch.tensor([0, 1, 0, 1]).tile(32, 16)
    packed, meta = sparse_semi_structured_from_dense_cutlass(dense)
    return SparseSemiStructuredTensorCUTLASS(
        dense.shape, packed=packed, meta=meta, packed_t=None, meta_t=None, compressed_swizzled_bitmask=None
    )


def blocks() -> torch.Tensor:
    weight = drawn_weight()
    weight[:2, 2:4], weight[4:, :2] = 0, 0
    return weight


SOURCES: dict[str, Callable[[], tuple[object, torch.Tensor]]] = {
    "dense": lambda: (drawn_weight(), drawn_weight()),
    "array": lambda: (drawn_weight().numpy(), drawn_weight()),
    "float64": lambda: (drawn_weight(torch.float64), drawn_weight(torch.float64)),
    "csr": lambda: (drawn_weight().to_sparse_csr(), drawn_weight()),
    "csc": lambda: (drawn_weight().to_sparse_csc(), drawn_weight()),
    "coo": lambda: (drawn_weight().to_sparse(), drawn_weight()),
    "bsr": lambda: (blocks().to_sparse_bsr((2, 2)), blocks()),
    "scipy csr": lambda: (sp.csr_array(drawn_weight().numpy()), drawn_weight()),
    "scipy bsr": lambda: (sp.bsr_array(blocks().numpy(), blocksize=(2, 2)), blocks()),
    "scipy coo": lambda: (sp.coo_array(drawn_weight().numpy()), drawn_weight()),
    "linear": lambda: ((linear := pruned_linear()), linear.weight.detach()),
    "2:4": lambda: ((made := semi_structured()), made.to_dense()),
}


@pytest.mark.parametrize("name", SOURCES)
def test_a_layer_of_any_weight_computes_what_the_dense_one_does(name: str) -> None:
    source, dense = SOURCES[name]()
    layer = SparseLinear(source)
    x = drawn(5, dense.shape[1], dtype=dense.dtype)
    bias = source.bias if isinstance(source, nn.Linear) else None
    torch.testing.assert_close(layer(x), nn.functional.linear(x, dense, bias))
    torch.testing.assert_close(layer.weight.to_dense(), dense)
    assert layer.values.shape == (layer.nnz,)
    assert layer.values.requires_grad


def test_stored_zeros_and_masked_zeros_are_trained() -> None:
    mask = drawn_weight() != 0
    layer = SparseLinear(torch.zeros(OUT, IN), mask=mask)
    assert layer.nnz == int(mask.sum())
    stored = SparseLinear(drawn_weight().to_sparse_csr() * 0)
    assert stored.nnz == layer.nnz
    assert SparseLinear(torch.zeros(OUT, IN)).nnz == 0


def test_a_mask_alone_draws_values_and_bias() -> None:
    mask = drawn_weight() != 0
    torch.manual_seed(0)
    layer = SparseLinear(mask, bias=True)
    bounds = mask.sum(1).clamp(min=1).rsqrt()
    dense = layer.weight.to_dense().detach()
    assert torch.equal(dense != 0, mask)
    assert (dense.abs() <= bounds[:, None]).all()
    assert (layer.bias.abs() <= bounds).all()
    assert layer.bias.abs().min() > 0
    before = layer.values.clone()
    layer.reset_parameters()
    assert not torch.equal(before, layer.values)


def test_values_are_copied_and_frozen_weights_stay_frozen() -> None:
    matrix = sp.csr_array(drawn_weight().numpy())
    layer = SparseLinear(matrix)
    matrix.data[:] = 0
    matrix.indices[:] = 0
    torch.testing.assert_close(layer.weight.to_dense(), drawn_weight())
    linear = pruned_linear()
    linear.weight_orig.requires_grad_(False)
    linear.bias.requires_grad_(False)
    frozen = SparseLinear(linear)
    assert not frozen.values.requires_grad
    assert not frozen.bias.requires_grad


def test_duplicates_of_scipy_are_summed() -> None:
    matrix = sp.coo_array((np.ones(3, np.float32), ([0, 0, 1], [1, 1, 0])), shape=(2, 2))
    layer = SparseLinear(matrix)
    assert layer.nnz == 2
    torch.testing.assert_close(layer.weight.to_dense(), torch.tensor([[0.0, 2.0], [1.0, 0.0]]))


@pytest.mark.parametrize("shape", [(IN,), (1, IN), (0, IN), (3, IN), (2, 3, IN), (2, 1, 2, IN)])
def test_inputs_have_any_leading_dimensions(shape: tuple[int, ...]) -> None:
    layer = SparseLinear(drawn_weight(), bias=torch.arange(OUT, dtype=torch.float32))
    x = drawn(*shape)
    y = layer(x)
    torch.testing.assert_close(y, nn.functional.linear(x, drawn_weight(), layer.bias))
    assert y.is_contiguous()


def test_feature_major_inputs_give_feature_major_results() -> None:
    layer = SparseLinear(drawn_weight(), bias=True)
    x = drawn(IN, 5).t()
    y = layer(x)
    assert y.t().is_contiguous()
    torch.testing.assert_close(y, layer(x.contiguous()))


@pytest.mark.parametrize("batch", [1, 4])
def test_gradients_of_values_bias_and_inputs(batch: int) -> None:
    layer = SparseLinear(drawn_weight(torch.float64), bias=torch.zeros(OUT, dtype=torch.float64))

    def run(x: torch.Tensor, values: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(layer, {"values": values, "bias": bias}, (x,))

    given = (
        drawn(batch, IN, dtype=torch.float64),
        layer.values.detach().clone(),
        drawn(OUT, dtype=torch.float64),
    )
    operands = [one.requires_grad_() for one in given]
    assert torch.autograd.gradcheck(run, operands, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(run, operands)


def test_an_optimizer_trains_it_as_a_masked_dense_layer() -> None:
    dense = pruned_linear()
    layer = SparseLinear(dense)
    x, target = drawn(16, IN), drawn(16, OUT)
    for model in (dense, layer):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        for _ in range(5):
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), target).backward()
            optimizer.step()
    torch.testing.assert_close(layer.weight.to_dense(), (dense.weight_orig * dense.weight_mask).detach())
    torch.testing.assert_close(layer.bias, dense.bias)


# -- copies and files ------------------------------------------------------------------------------------


def test_copies_are_independent() -> None:
    layer = SparseLinear(drawn_weight(), bias=True)
    x = drawn(3, IN)
    before = layer(x).detach()
    copied = copy.deepcopy(layer)
    with torch.no_grad():
        copied.values.zero_()
        copied.bias.zero_()
    torch.testing.assert_close(layer(x), before)
    torch.testing.assert_close(copied(x), torch.zeros_like(before))
    buffer = io.BytesIO()
    torch.save(layer, buffer)
    buffer.seek(0)
    with torch.serialization.safe_globals([SparseLinear]):
        torch.testing.assert_close(torch.load(buffer, weights_only=True)(x), before)


@pytest.mark.parametrize("assign", [False, True])
def test_a_state_dict_brings_its_pattern(tmp_path: Path, assign: bool) -> None:
    model = nn.Sequential(SparseLinear(drawn_weight(), bias=True))
    torch.save(model.state_dict(), tmp_path / "model.pt")
    other = nn.Sequential(SparseLinear(torch.eye(OUT, IN), bias=True))
    x = drawn(3, IN)
    other(x)
    held = other[0].values
    other.load_state_dict(torch.load(tmp_path / "model.pt", weights_only=True), assign=assign)
    torch.testing.assert_close(other(x), model(x))
    assert (other[0].values is held) != assign
    assert list(model.state_dict()) == ["0.values", "0.bias", "0.crow_indices", "0.col_indices"]


BAD_PATTERNS = {
    "outside": ({"col_indices": lambda t: t + IN}, "outside"),
    "falling": ({"crow_indices": lambda t: t.flip(0)}, "pointers"),
    "too few values": ({"values": lambda t: t[:-1]}, "a value for each column"),
    "too few rows": ({"crow_indices": lambda t: t[1:]}, "expected 6 rows"),
}


@pytest.mark.parametrize("name", BAD_PATTERNS)
def test_a_malformed_pattern_is_refused_at_loading(name: str) -> None:
    changes, message = BAD_PATTERNS[name]
    layer = SparseLinear(drawn_weight())
    x = drawn(3, IN)
    before, state = layer(x).detach(), layer.state_dict()
    broken = {key: changes.get(key, torch.clone)(value) for key, value in state.items()}
    with pytest.raises(RuntimeError, match=message):
        layer.load_state_dict(broken)
    torch.testing.assert_close(layer(x), before)


def test_a_pattern_written_to_is_seen_and_checked() -> None:
    layer = SparseLinear(drawn_weight())
    x = drawn(3, IN)
    layer(x)
    layer.col_indices.fill_(0)
    expected = torch.zeros(OUT, IN)
    rows = torch.repeat_interleave(torch.arange(OUT), layer.crow_indices.diff())
    expected[:, 0].index_add_(0, rows, layer.values.detach())
    torch.testing.assert_close(layer(x), x @ expected.t())
    layer.col_indices.fill_(IN)
    with pytest.raises(InputError, match="outside"):
        layer(x)


def test_moves_leave_the_pattern_where_kernels_read_it() -> None:
    layer = SparseLinear(drawn_weight(), bias=True)
    layer.to("meta")
    assert layer.values.is_meta
    assert layer.crow_indices.is_cpu
    layer = SparseLinear(drawn_weight()).double()
    torch.testing.assert_close(
        layer(drawn(2, IN).double()), drawn(2, IN).double() @ drawn_weight().double().t()
    )


# -- compiled, exported and half-precision code ----------------------------------------------------------


@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled_code_agrees_forward_and_backward(dynamic: bool) -> None:
    torch._dynamo.reset()
    model = nn.Sequential(
        SparseLinear(drawn_weight(), bias=True), nn.ReLU(), SparseLinear(drawn_weight().t())
    )
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager", dynamic=dynamic)
    for batch in (3, 7, 1):
        x = drawn(batch, IN).requires_grad_()
        wanted = torch.autograd.grad(model(x).square().sum(), [x, *model.parameters()])
        found = torch.autograd.grad(compiled(x).square().sum(), [x, *model.parameters()])
        for one, other in zip(found, wanted, strict=True):
            torch.testing.assert_close(one, other)


@pytest.fixture
def inductor() -> Iterator[Any]:
    """A backend that counts the graphs it compiles. Skips where inductor compiles nothing, as without a C++ compiler.

    Graphs are not taken from torch's cache, whose keys do not contain the shapes and strides that our operators declare.
    """
    from torch._dynamo.testing import CompileCounterWithBackend
    from torch._functorch import config as functorch_config
    from torch._inductor import config as inductor_config

    torch._dynamo.reset()
    with (
        inductor_config.patch(fx_graph_cache=False),
        functorch_config.patch(enable_autograd_cache=False),
    ):
        try:
            torch.compile(torch.relu, backend="inductor")(torch.ones(2))
        except Exception as error:  # of many kinds: no compiler, no header files, ...
            pytest.skip(f"inductor cannot compile here: {error}")
        yield CompileCounterWithBackend("inductor")
    torch._dynamo.reset()


def test_inductor_compiles_a_layer_forward_and_backward(inductor: Any) -> None:
    """Takes up to a minute where torch's cache is empty: torch compiles its checks of the compiler first."""
    layer = SparseLinear(drawn_weight(), bias=True)
    compiled = torch.compile(layer, fullgraph=True, backend=inductor, dynamic=False)
    x = drawn(3, IN).requires_grad_()
    y, wanted = compiled(x), layer(x)
    torch.testing.assert_close(y, wanted)
    given = [x, *layer.parameters()]
    found = torch.autograd.grad(y.square().sum(), given)
    for one, other in zip(found, torch.autograd.grad(wanted.square().sum(), given), strict=True):
        torch.testing.assert_close(one, other)
    assert inductor.frame_count == 1


def test_exported_programs_run(tmp_path: Path) -> None:
    layer = SparseLinear(drawn_weight(), bias=True)
    batch = torch.export.Dim("batch", min=2, max=64)
    for strict in (False, True):
        program = torch.export.export(layer, (drawn(3, IN),), dynamic_shapes=({0: batch},), strict=strict)
        torch.export.save(program, tmp_path / "layer.pt2")
        loaded = torch.export.load(tmp_path / "layer.pt2").module()
        for rows in (3, 9):
            torch.testing.assert_close(loaded(drawn(rows, IN)), layer(drawn(rows, IN)))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("compiled", [False, True])
def test_autocast_computes_in_its_dtype(dtype: torch.dtype, compiled: bool) -> None:
    pytest.importorskip("ml_dtypes")
    layer = SparseLinear(drawn_weight(), bias=True)
    run = torch.compile(layer, fullgraph=True, backend="aot_eager") if compiled else layer
    x = drawn(3, IN).requires_grad_()
    with torch.autocast("cpu", dtype=dtype):
        y = run(x)
    assert y.dtype is dtype
    torch.testing.assert_close(y.float(), layer(x), atol=0.05, rtol=0.02)
    y.float().sum().backward()
    assert layer.values.grad.dtype is x.grad.dtype is torch.float32


def test_batches_by_vmap_and_per_sample_gradients() -> None:
    layer = SparseLinear(drawn_weight(), bias=True)
    x = drawn(4, 3, IN)
    torch.testing.assert_close(torch.func.vmap(layer)(x), layer(x))
    parameters = dict(layer.named_parameters())

    def loss(parameters: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(layer, parameters, (x,)).square().sum()

    found = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(parameters, x)
    for at in range(len(x)):
        for name, one in torch.func.grad(loss)(parameters, x[at]).items():
            torch.testing.assert_close(found[name][at], one)


def test_tuned_kernels_are_used() -> None:
    layer = SparseLinear(drawn_weight())
    x = drawn(3, IN)
    wanted = layer(x)
    assert layer.tune(trials=1, store=False, model=None)
    torch.testing.assert_close(layer(x), wanted)


# -- what is refused -------------------------------------------------------------------------------------


REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "no matrix": (lambda: SparseLinear(torch.ones(3)), r"shape \(3,\)"),
    "no tensor": (lambda: SparseLinear("weight"), "got str"),
    "integers": (lambda: SparseLinear(torch.ones(2, 2, dtype=torch.int64)), "torch.int64"),
    "scipy integers": (lambda: SparseLinear(sp.eye_array(2, dtype=int)), "int64"),
    "sparse mask": (lambda: SparseLinear(sp.eye_array(2), mask=torch.ones(2, 2)), "has its pattern"),
    "mask of another shape": (lambda: SparseLinear(torch.ones(2, 2), mask=torch.ones(3, 2)), r"\(2, 2\)"),
    "bias of another shape": (lambda: SparseLinear(torch.ones(2, 3), bias=torch.ones(3)), r"\(2,\)"),
    "width": (lambda: SparseLinear(drawn_weight())(drawn(2, IN + 1)), r"\(\.\.\., 8\)"),
    "dtype": (lambda: SparseLinear(drawn_weight())(drawn(2, IN, dtype=torch.float64)), r"\.to\(torch.float32\)"),
    "sparse input": (lambda: SparseLinear(drawn_weight())(drawn(2, IN).to_sparse()), "dense torch tensor"),
    "device": (lambda: SparseLinear(drawn_weight())(drawn(2, IN).to("meta")), r"\.to\(device\)"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_refused_with_a_remedy(name: str) -> None:
    make, message = REFUSED[name]
    with pytest.raises(InputError, match=message):
        make()
