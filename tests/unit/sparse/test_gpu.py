"""Products in a GPU's memory: the CUDA text is run on the CPU, thread by thread, by a library whose arrays are NumPy's."""

import logging
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

import tensorwise
from tensorwise.errors import InputError
from tensorwise.sparse import gpu
from tensorwise.sparse.gpu import GpuCsr, GpuLibrary, GpuProducts, gpu_ways
from tests.simt.gpu import COMPILER, STREAM, ShimGpu

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")


class FakeTimer:
    """Says that a call took what ``taken`` says of the way that ran last; done when it was asked twice."""

    def __init__(self, library):
        self.library, self.asked = library, 0

    def start(self):
        self.library.launched = 0

    def stop(self):
        self.took = self.library.taken[bool(self.library.launched)]

    def nanoseconds(self):
        self.asked += 1
        return self.took if self.asked > 1 else None


class ArrayLibrary(GpuLibrary):
    """NumPy's arrays as if they were on a GPU. ``taken``: nanoseconds of SciPy's calls, and of programs'."""

    name = "SciPy"

    def __init__(self, folder, taken=(200_000, 100_000)):
        self.shim, self.taken, self.launched = ShimGpu(folder), taken, 0
        launcher = self.shim.launcher

        def counted(*arguments):
            launch = launcher(*arguments)

            def launched(addresses, stream):
                self.launched += 1
                launch(addresses, stream)

            return launched

        self.shim.launcher = counted

    def gpu(self):
        return self.shim

    def empty(self, shape, like):
        return np.full(shape, np.nan, like.dtype)

    def address(self, array):
        return array.ctypes.data if array.flags.c_contiguous else 0

    def stream(self):
        return STREAM

    def timer(self):
        return FakeTimer(self)

    def is_close(self, made, expected, share):
        return np.allclose(made, expected, rtol=share, atol=share * np.abs(expected).max(), equal_nan=True)


def on_gpu(matrix, index="int32"):
    arrays = matrix.data, matrix.indices.astype(index), matrix.indptr.astype(index)
    return GpuCsr(*arrays, matrix.shape, matrix.dtype.name, index, matrix.__matmul__)


def a_matrix(dtype="float64", shape=(60, 47)):
    """With empty rows and a long one."""
    rng = np.random.default_rng(5)
    dense = rng.standard_normal(shape) * (rng.random(shape) < 0.1)
    dense[3], dense[7:9] = 1.5, 0
    return sp.csr_array(dense.astype(dtype))


def multiply(products, matrix, x, times):
    """Multiply so often; whatever is compiled in the thread is there after each call. Return the results."""
    made = []
    for _ in range(times):
        made.append(products.multiply(matrix, x, x.dtype.name))
        for product in products._products.values():
            if product._thread is not None:
                product._thread.join()
    return made


@pytest.fixture(autouse=True)
def _soon(monkeypatch):
    monkeypatch.setattr(gpu, "FIRST_CALLS", 2)


@pytest.mark.parametrize("columns", [None, 5, 8, 64])
@pytest.mark.parametrize(("dtype", "index"), [("float64", "int32"), ("float32", "int64")])
def test_each_program_computes_the_product(tmp_path, columns, dtype, index):
    matrix, library = a_matrix(dtype), ArrayLibrary(tmp_path)
    x = np.random.default_rng(0).standard_normal((47,) if columns is None else (47, columns)).astype(dtype)
    made_of = on_gpu(matrix, index)
    ways = gpu_ways(library.gpu(), made_of, columns)
    assert len(ways) >= 2
    for way in ways:
        product = gpu.GpuProduct(library, made_of, columns)
        library.launched = 0
        made = product._compute(way, made_of, x)
        assert library.launched == 1
        np.testing.assert_allclose(made, matrix @ x, rtol=1e-4 if dtype == "float32" else 1e-12, atol=1e-5)


def test_the_faster_way_stays_and_every_result_is_right(tmp_path):
    matrix, library = a_matrix(), ArrayLibrary(tmp_path)
    products, x = GpuProducts(library), np.linspace(-1, 1, 47)
    for made in multiply(products, on_gpu(matrix), x, 150):
        np.testing.assert_allclose(made, matrix @ x, atol=1e-12)
    (told,) = products.tuning.products
    assert "bind(i,block" in told.way
    assert told.tried_s["SciPy"] == pytest.approx(2e-4)


def test_the_library_stays_where_it_is_faster(tmp_path):
    matrix, library = a_matrix(), ArrayLibrary(tmp_path, taken=(100_000, 200_000))
    products, X = GpuProducts(library), np.ones((47, 8))
    multiply(products, on_gpu(matrix), X, 150)
    (told,) = products.tuning.products
    assert told.way == "SciPy"
    assert told.product == "A @ X, 8 columns"


def test_new_values_are_seen_and_new_arrays_get_programs_of_their_own(tmp_path):
    matrix, library = a_matrix(), ArrayLibrary(tmp_path)
    products, x = GpuProducts(library), np.ones(47)
    read = on_gpu(matrix)
    multiply(products, read, x, 150)
    first = products._products[None]
    matrix.data[:] *= 2
    np.testing.assert_allclose(products.multiply(read, x, "float64"), matrix @ x)
    other = a_matrix(shape=(33, 47))
    np.testing.assert_allclose(products.multiply(on_gpu(other), x, "float64"), other @ x)
    assert products._products[None] is not first


def test_a_program_that_computes_something_else_is_not_used(tmp_path, monkeypatch, caplog):
    matrix, library = a_matrix(), ArrayLibrary(tmp_path)
    monkeypatch.setattr(library.shim, "launcher", lambda *_: lambda addresses, stream: None)
    products, x = GpuProducts(library), np.ones(47)
    with caplog.at_level(logging.WARNING):
        for made in multiply(products, on_gpu(matrix), x, 50):
            np.testing.assert_allclose(made, matrix @ x)
    assert "another product" in caplog.text
    assert products.tuning.products[0].way == "SciPy"


@pytest.mark.parametrize(
    "x",
    [
        np.ones((8, 47)).T,
        np.ones((47, 1)),
        np.ones((47, 0)),
        np.ones(47, np.float32),
        np.ones(47)[::-1],
    ],
)
def test_what_programs_do_not_read_is_the_librarys(tmp_path, x):
    matrix, library = a_matrix(), ArrayLibrary(tmp_path)
    products = GpuProducts(library)
    for made in multiply(products, on_gpu(matrix), x, 5):
        np.testing.assert_allclose(made, matrix @ x)
    assert not products._products
    integers = replace(on_gpu(matrix), dtype="int64")
    products.multiply(integers, np.ones(47), "int64")
    assert not products._products


def test_nothing_is_tried_with_autotuning_off_or_where_bits_must_not_change(tmp_path, monkeypatch):
    matrix, library = a_matrix(), ArrayLibrary(tmp_path)
    monkeypatch.setenv("TENSORWISE_AUTOTUNE", "off")
    products, x = GpuProducts(library), np.ones(47)
    multiply(products, on_gpu(matrix), x, 20)
    assert library.launched == 0
    monkeypatch.delenv("TENSORWISE_AUTOTUNE")
    multiply(products, on_gpu(matrix), x, 150)
    library.launched = 0
    products.multiply(on_gpu(matrix), x, "float64")
    assert library.launched == 1
    monkeypatch.setenv("TENSORWISE_REPRODUCIBLE", "1")
    multiply(products, on_gpu(matrix), x, 20)
    assert library.launched == 1


def test_tensors_on_the_cpu_are_refused():
    torch = pytest.importorskip("torch")
    with pytest.raises(InputError, match=r"tensorwise\.nn\.spmm"):
        tensorwise.asarray(torch.eye(3).to_sparse_csr())
    with pytest.raises(InputError, match="SciPy"):
        tensorwise.asarray(torch.eye(3))


@pytest.mark.parametrize("columns", [None, 8])
def test_programs_compile_for_a_gpu(columns):
    pytest.importorskip("cupy")
    from tensorwise.toolchain.gpu import assembled

    class Compiling(ShimGpu):
        """Compiles by NVRTC, and launches nothing."""

        texts = 0

        def load(self, text, names):
            assert assembled(text, "sm_90")[0]
            Compiling.texts += 1
            return dict.fromkeys(names)

    assert len(gpu_ways(Compiling(None), on_gpu(a_matrix(), "int64"), columns)) == Compiling.texts > 1


@pytest.fixture
def real_gpu():
    cupy = pytest.importorskip("cupy")
    try:
        cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        pytest.skip(f"no GPU: {error}")
    return cupy


def settled(product, expected, tuning):
    """Multiply until a trial is over; all results agree."""
    for _ in range(2000):
        np.testing.assert_allclose(product(), expected, rtol=1e-4, atol=1e-4)
        if tuning().products and len(tuning().products[0].tried_s) > 1:
            return
    raise AssertionError(str(tuning()))


def test_matrices_of_cupy(real_gpu):
    from cupyx.scipy import sparse

    theirs = a_matrix("float32", (600, 470))
    matrix = tensorwise.asarray(sparse.csr_matrix(sp.csr_matrix(theirs)))
    assert sparse.issparse(matrix)
    for x in (np.ones(470, np.float32), np.ones((470, 8), np.float32)):
        held = real_gpu.asarray(x)
        settled(lambda held=held: (matrix @ held).get(), theirs @ x, lambda: matrix.tuning)
    np.testing.assert_allclose((2 * matrix @ held).get(), 2 * (theirs @ x), rtol=1e-4)


def test_tensors_of_pytorch(real_gpu):
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("PyTorch sees no GPU")
    theirs = a_matrix("float32", (600, 470))
    parts = (torch.from_numpy(part) for part in (theirs.indptr, theirs.indices, theirs.data))
    tensor = torch.sparse_csr_tensor(*parts, size=theirs.shape).cuda()
    matrix = tensorwise.asarray(tensor)
    x = torch.ones((470, 8), device="cuda")
    settled(lambda: (matrix @ x).cpu().numpy(), theirs @ np.ones((470, 8)), lambda: matrix.tuning)
    wanted = x.clone().requires_grad_()
    (matrix @ wanted).sum().backward()
    assert wanted.grad is not None
