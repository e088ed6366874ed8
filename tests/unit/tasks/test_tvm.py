"""What needs TVM: a small network cut, scheduled, measured and collected."""

import ctypes
import itertools
import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tvm")
torch = pytest.importorskip("torch")

from tensorwise.analysis.llvm import MARK, marked, runs  # noqa: E402
from tensorwise.analysis.loop_tree import LoopTree  # noqa: E402
from tensorwise.analysis.machine_code import MachineCode  # noqa: E402
from tensorwise.collect.driver import collect  # noqa: E402
from tensorwise.collect.executors import LocalExecutor  # noqa: E402
from tensorwise.collect.task_job import task_plan  # noqa: E402
from tensorwise.device.gpus import gpu_called  # noqa: E402
from tensorwise.errors import CompilerError, InputError  # noqa: E402
from tensorwise.front.networks import network_graph, programs_of, unscheduled  # noqa: E402
from tensorwise.ids import file_id  # noqa: E402
from tensorwise.space.config import Config  # noqa: E402
from tensorwise.store.store import Store  # noqa: E402
from tensorwise.tasks import staging  # noqa: E402
from tensorwise.tasks.cpu import TvmCpu, codes_of, in_children, use_threads  # noqa: E402
from tensorwise.tasks.cutting import Found, TaskGraph, cut, lowered, of_onnx, of_torch, onnx_batch, tasks_of  # noqa: E402
from tensorwise.tasks.schedules import Schedules  # noqa: E402
from tensorwise.tasks.searching import found_in, search_schedules  # noqa: E402
from tensorwise.tasks.staged import StagedLaunch, StagedProgram, StagedTask  # noqa: E402
from tensorwise.tasks.task import Task, loop_tree, operands  # noqa: E402
from tensorwise.tasks.tvm_extra import tvm  # noqa: E402
from tensorwise.tasks.whole import compiled, inputs_of, measured_network, scheduled  # noqa: E402
from tensorwise.toolchain.cubin import Resources, resources  # noqa: E402
from tensorwise.toolchain.processor import describe_processor  # noqa: E402


class Small(torch.nn.Module):  # type: ignore[misc]
    """Two branches of a convolution with batch norm, added up; the same dense layer twice."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = torch.nn.Conv2d(3, 8, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(8)
        self.first, self.second = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)

    def forward(self, x: Any) -> Any:
        y = torch.relu(self.norm(self.convolution(x)))
        y = y.mean((2, 3))
        return self.second(self.first(y)) + y


@pytest.fixture(scope="module")
def small() -> tuple[TaskGraph, dict[str, Task]]:
    return cut("small", 1, lowered(of_torch(Small(), (torch.randn(1, 3, 16, 16),))))


@pytest.fixture(scope="module")
def whole() -> Any:
    return lowered(of_torch(Small(), (torch.randn(1, 3, 16, 16),)))


def named(tasks: dict[str, Task], part: str) -> Task:
    return next(task for task in tasks.values() if part in task.name)


def test_a_network_is_cut(small: tuple[TaskGraph, dict[str, Task]]) -> None:
    graph, tasks = small
    assert set(graph.multiplicity) == set(tasks)
    assert max(Counter(graph.multiplicity).values()) <= 2
    convolution = named(tasks, "conv2d")
    assert "1" not in convolution.name.replace("conv2d", "")
    products = 16 * 16 * 8 * 3 * 3 * 3
    assert 2 * products <= convolution.facts["flops"] <= 2.5 * products
    assert graph.nodes[0].after == ()
    last = graph.nodes[-1]
    assert last.result_bytes == 4 * 8
    assert len(last.after) == 2  # both branches


def test_a_task_is_the_same_wherever_it_occurs(small: tuple[TaskGraph, dict[str, Task]]) -> None:
    _, again = cut("again", 1, lowered(of_torch(Small(), (torch.randn(1, 3, 16, 16),))))
    assert set(again) == set(small[1])


def test_an_onnx_file_is_cut(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    helper, elem = onnx.helper, onnx.TensorProto.FLOAT
    weight = onnx.numpy_helper.from_array(np.ones((4, 2), np.float32), "w")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"]), helper.make_node("Relu", ["y"], ["z"])],
        "tiny",
        [helper.make_tensor_value_info("x", elem, ["batch", 4])],
        [helper.make_tensor_value_info("z", elem, ["batch", 2])],
        [weight],
    )
    path = tmp_path / "tiny.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    found, tasks = cut("tiny", 3, lowered(of_onnx(path, 3)))
    assert sum(task.facts["flops"] for task in tasks.values()) >= 2 * 3 * 4 * 2
    assert found.nodes[-1].result_bytes == 3 * 2 * 4
    graph.input[0].type.tensor_type.shape.dim[0].dim_value = 8
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    with pytest.raises(InputError, match="batch of 1: its inputs are 8 at a time"):
        of_onnx(path, 1)
    path.write_bytes(b"no network")
    with pytest.raises(InputError, match="cannot be imported"):
        of_onnx(path, 1)


def test_operators_that_are_no_tasks_are_named(tmp_path: Path) -> None:
    """They are no functions of TIR, or such that call TVM's runtime: nothing would say that they take time."""
    onnx = pytest.importorskip("onnx")
    helper, elem, path = onnx.helper, onnx.TensorProto, tmp_path / "net.onnx"
    k = onnx.numpy_helper.from_array(np.array([5], np.int64), "k")
    axis = onnx.numpy_helper.from_array(np.array(1, np.int64), "axis")

    def graph_of(*nodes: tuple[str, list[str], list[str]]) -> TaskGraph:
        inputs = [helper.make_tensor_value_info("x", elem.FLOAT, [4, 100])]
        outputs = [helper.make_tensor_value_info(nodes[-1][2][0], elem.FLOAT, None)]
        made = [helper.make_node(*node) for node in nodes]
        graph = helper.make_graph(made, "net", inputs, outputs, [k, axis])
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)
        return cut("net", 4, lowered(of_onnx(path, 4)))[0]

    relu = "Relu", ["x"], ["r"]
    assert graph_of(relu).unlowered == ()
    assert graph_of(relu).dtypes == ("float32",)
    found = graph_of(relu, ("CumSum", ["r", "axis"], ["c"]), ("TopK", ["c", "k"], ["v", "i"]))
    assert found.unlowered == ("cumsum", "topk")
    assert [node.name for node in found.nodes] == ["relu"]
    assert graph_of(relu, ("NonZero", ["r"], ["z"])).unlowered == ("nonzero",)
    with pytest.raises(InputError, match="no operator that can be cut into a task, only cumsum"):
        graph_of(("CumSum", ["x", "axis"], ["c"]))


@pytest.fixture
def saved(tmp_path: Path) -> Callable[..., Path]:
    """Saves an ONNX file of nodes, inputs (name -> dtype and shape), and constants."""
    onnx = pytest.importorskip("onnx")
    helper = onnx.helper

    def save(
        nodes: Sequence[Any], inputs: dict[str, Any], constants: dict[str, Any], name: str = "net"
    ) -> Path:
        values = [
            one if not isinstance(one, tuple) else helper.make_tensor_value_info(key, *one)
            for key, one in inputs.items()
        ]
        made = [onnx.numpy_helper.from_array(np.array(array), key) for key, array in constants.items()]
        last = helper.make_tensor_value_info("o", onnx.TensorProto.FLOAT, None)
        graph = helper.make_graph([helper.make_node(*a, **k) for a, k in nodes], "net", values, [last], made)
        path = tmp_path / f"{name}.onnx"
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
        return path

    return save


FLOAT, INT64 = 1, 7
MATMUL = (("MatMul", ["x", "w"], ["o"]), {})
WEIGHT = {"w": np.ones((16, 4), np.float32)}


def test_a_batch_that_shapes_say_is_reported(saved: Callable[..., Path], tmp_path: Path) -> None:
    path, folder = saved([MATMUL], {"x": (FLOAT, ["N", "S", 16])}, WEIGHT), tmp_path / "networks"
    shapes = {"x": (64, 2, 16)}
    found = network_graph(str(path), None, folder, shapes)
    assert (found.name, found.batch) == ("net", 64)
    assert network_graph(str(path), 64, folder, shapes) == found
    for batch in (1, 7):
        with pytest.raises(InputError, match="its inputs are 64 at a time"):
            network_graph(str(path), batch, folder, shapes)
    path = saved([MATMUL], {"x": (FLOAT, [8, 16])}, WEIGHT)
    assert network_graph(str(path), None, folder).batch == 8
    path = saved([MATMUL], {"x": (FLOAT, ["N", 16])}, WEIGHT)
    assert network_graph(str(path), 8, folder).batch == 8
    assert network_graph(str(path), None, folder).batch == 1
    old = (
        tmp_path / "networks" / "networks" / "net-b1.json"
    )  # as an earlier cut left it, whatever --shape said
    kept = json.loads(old.read_text())
    old.write_text(json.dumps({**kept, "source": file_id(path), "dtypes": ["int8"]}))
    assert network_graph(str(path), 1, folder).dtypes == ("float32",)


def test_inputs_that_a_file_does_not_describe(saved: Callable[..., Path]) -> None:
    onnx = pytest.importorskip("onnx")
    path = saved([MATMUL], {"x": (FLOAT, None)}, WEIGHT)
    with pytest.raises(InputError, match=r"net\.onnx cannot be cut.*no shape of the input x"):
        of_onnx(path, 1)
    graph, _ = cut("net", 64, lowered(of_onnx(path, 64, {"x": (64, 16)})))
    assert graph.nodes[-1].result_bytes == 64 * 4 * 4
    for extent in (-1, 0):  # as old exporters write that it is open
        path = saved([MATMUL], {"x": (FLOAT, [extent, 16])}, WEIGHT)
        assert onnx_batch(path) == 1
        assert cut("net", 3, lowered(of_onnx(path, 3)))[0].nodes[-1].result_bytes == 3 * 4 * 4
    path = saved([MATMUL], {"x": (FLOAT, [2, -1, 16])}, WEIGHT)
    with pytest.raises(InputError, match=r"of the inputs x \(2, \?, 16\) it is not clear"):
        of_onnx(path, 2)
    helper = onnx.helper
    for value, kind in (
        (helper.make_tensor_sequence_value_info("x", FLOAT, [1, 16]), "a sequence"),
        (helper.make_sparse_tensor_value_info("x", FLOAT, [1, 16]), "a sparse tensor"),
        (onnx.ValueInfoProto(name="x"), "a value without a type"),
    ):
        with pytest.raises(InputError, match=f"the input x is {kind}; expected tensors as inputs"):
            of_onnx(saved([MATMUL], {"x": value}, WEIGHT), 1)


def test_dtypes_inside_of_a_task_are_named(saved: Callable[..., Path]) -> None:
    half = [
        (("Cast", ["x"], ["a"]), {"to": 10}), (("Exp", ["a"], ["b"]), {}), (("Cast", ["b"], ["o"]), {"to": FLOAT}),
    ]  # fmt: skip
    path = saved(half, {"x": (FLOAT, [1, 64])}, {})
    graph, tasks = cut("net", 1, lowered(of_onnx(path, 1)))
    assert len(tasks) == 1  # the halves are nobody's operands
    assert graph.dtypes == ("float16", "float32")
    quantized = [
        (("QuantizeLinear", ["x", "s", "z"], ["q"]), {}), (("DequantizeLinear", ["q", "s", "z"], ["o"]), {}),
    ]  # fmt: skip
    path = saved(quantized, {"x": (FLOAT, [1, 64])}, {"s": np.float32(0.1), "z": np.int8(0)})
    assert "int8" in (cut("net", 1, lowered(of_onnx(path, 1)))[0].dtypes or ())


def test_operators_on_sequences_are_refused_before_they_are_imported(saved: Callable[..., Path]) -> None:
    """Of these two TVM's importer never comes to an end, and takes all memory."""
    onnx = pytest.importorskip("onnx")
    helper, given = onnx.helper, {"x": (FLOAT, [1, 8])}
    split = (("SplitToSequence", ["x"], ["s"]), {})
    path = saved([split, (("ConcatFromSequence", ["s"], ["o"]), {"axis": 0})], given, {})
    with pytest.raises(InputError, match=r"on sequences.*: ConcatFromSequence, SplitToSequence; export"):
        of_onnx(path, 1)
    inner = [helper.make_node(*split[0]), helper.make_node("SequenceLength", ["s"], ["n"])]
    branch = helper.make_graph(inner, "branch", [], [helper.make_tensor_value_info("n", INT64, [])])
    both = {"then_branch": branch, "else_branch": branch}
    path = saved([(("If", ["c"], ["o"]), both)], given, {"c": np.array(True)})
    with pytest.raises(InputError, match="SequenceLength, SplitToSequence"):
        of_onnx(path, 1)


def test_operators_whose_loops_depend_on_data_are_named(saved: Callable[..., Path]) -> None:
    relu = (("Relu", ["s"], ["r"]), {})
    suppression = [relu, (("NonMaxSuppression", ["b", "r", "m", "t"], ["o"]), {})]
    inputs = {"b": (FLOAT, [1, 20, 4]), "s": (FLOAT, [1, 1, 20])}
    path = saved(suppression, inputs, {"m": np.array([3]), "t": np.array([0.5], np.float32)})
    graph, tasks = cut("net", 1, lowered(of_onnx(path, 1)))
    assert "all_class_non_max_suppression" in graph.left_out
    assert "relu" in {node.name for node in graph.nodes}
    assert tasks.keys() == graph.multiplicity.keys()
    compress = [(("Relu", ["x"], ["r"]), {}), (("Compress", ["r", "c"], ["o"]), {"axis": 0})]
    path = saved(compress, {"x": (FLOAT, [4, 8]), "c": (9, [4])}, {})
    graph, _ = cut("net", 4, lowered(of_onnx(path, 4)))
    assert {"nonzero", "take"} <= set(graph.unlowered or ())
    assert [node.name for node in graph.nodes] == ["relu"]


def test_schedules_differ_and_are_made_again_from_their_configs(
    small: tuple[TaskGraph, dict[str, Task]],
) -> None:
    task = named(small[1], "conv2d")
    schedules = Schedules(task)
    drawn = dict(schedules.sample(5, np.random.default_rng(3)))
    assert len(drawn) == 5
    for config, module in drawn.items():
        again = schedules.module(Config.parse(config.text))
        assert again["main"].script() == module["main"].script()
    # Whatever the schedule, as much is multiplied.
    for module in drawn.values():
        tree = loop_tree(module)
        products = sum(
            np.prod([loop.extent for loop in loops]) * leaf.operations.get("float_mul", 0)
            for loops, leaf in tree.leaves()
        )
        assert products >= 16 * 16 * 8 * 27
    with pytest.raises(InputError, match="no schedule"):
        schedules.module(Config({"design": 99, "decisions": "[]"}))


def test_programs_for_a_gpu_are_compiled_without_one(
    small: tuple[TaskGraph, dict[str, Task]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = list[str]()

    def assembled(text: str, arch: str, standard: str) -> tuple[bytes, str]:
        assert (arch, standard) == ("sm_80", "c++17")
        texts.append(text)
        names = re.findall(r"__global__ void (?:__launch_bounds__\(\d+\) )?(\w+)\(", text)
        return b"code", "".join(f".visible .entry {name}()\n{{\n\tret;\n}}\n" for name in names)

    monkeypatch.setattr(staging, "assembled", assembled)
    monkeypatch.setattr(staging, "resources", lambda code: Resources(32, 0))
    gpu, task = gpu_called("A100"), named(small[1], "conv2d")
    path = task.save(tmp_path)
    where = Found(task.name, path, ("small-b1",))
    assert staging.stage(where, tmp_path / "staged", gpu, 3, 0) == 3
    (file,) = (tmp_path / "staged").iterdir()
    found = StagedTask.load(file)
    assert (found.gpu, found.arch, found.operands) == ("A100", "sm_80", tuple(operands(task.module)))
    schedules = Schedules(task, gpu)
    assert schedules.name.endswith("cuda")
    for program, text in zip(found.programs, texts, strict=True):
        assert "#include" not in text
        assert program.counted.numbers["gpu.whole.blocks"] in {np.prod(one.grid) for one in program.launches}
        assert program.counted.numbers["gpu.branch"] > 0  # each warp ends
        for launch in program.launches:
            assert f" {launch.kernel}(" in text
            assert launch.block[0] * launch.block[1] <= 1024
        assert {place for launch in program.launches for place in launch.arguments} >= set(
            range(len(found.operands))
        )
        tree = loop_tree(schedules.module(program.config))
        assert tree.text == program.tree
        products = [
            np.prod([loop.extent for loop in loops]) * leaf.operations.get("float_mul", 0)
            for loops, leaf in tree.leaves()
        ]
        # Each product once, or more where blocks overlap; what threads load together is no product.
        assert 16 * 16 * 8 * 27 <= sum(products) <= 2 * 16 * 16 * 8 * 28
    assert staging.stage(where, tmp_path / "staged", gpu, 3, 0) == 3
    assert len(texts) == 3  # what is there stays


def test_that_nothing_could_be_compiled_is_no_answer(
    small: tuple[TaskGraph, dict[str, Task]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, told, works = named(small[1], "conv2d"), list[str](), [False]
    where, into, gpu = (
        Found(task.name, task.save(tmp_path), ("small-b1",)),
        tmp_path / "staged",
        gpu_called("A100"),
    )
    program = StagedProgram(Config({}), "", (), (), b"", MachineCode({}))

    def made(*_: object) -> StagedProgram:
        if works[0]:
            return program
        raise CompilerError("no room on the disk")

    monkeypatch.setattr(staging, "_program", made)
    assert staging.stage(where, into, gpu, 2, 0, told.extend) == 0
    assert told == ["no room on the disk"] * 2
    assert not list(into.glob("*"))
    works[0] = True
    assert staging.stage(where, into, gpu, 2, 0, told.extend) == 2
    assert len(told) == 2
    (file,) = into.iterdir()
    StagedTask(task, (), "A100", "sm_80", (), "", ()).save(file)  # an answer of an earlier release
    assert staging.stage(where, into, gpu, 2, 0) == 2


def test_tasks_are_staged_side_by_side(small: tuple[TaskGraph, dict[str, Task]], tmp_path: Path) -> None:
    pytest.importorskip("cupy_backends.cuda.libs.nvrtc")
    graph, tasks = small
    graph.save(tmp_path / "networks")
    for task in tasks.values():
        task.save(tmp_path / "tasks")
    found, gpu = list(tasks_of(tmp_path).values()), gpu_called("H100")
    counts = list(staging.stage_all(found, tmp_path / "staged", gpu, 1, 0))
    assert counts == [1] * len(tasks)
    staged = [StagedTask.load(path) for path in (tmp_path / "staged").iterdir()]
    assert {one.task.id for one in staged} == {task.id for task in tasks.values()}
    assert {one.networks for one in staged} == {("small-b1",)}
    for one in staged:
        for program in one.programs:
            assert resources(program.code).registers == program.counted.numbers["gpu.whole.registers"] > 0
            if one.task.facts["flops"] > 10**5:
                ratio = program.counted.numbers["all.flops"] / one.task.facts["flops"]
                assert 0.8 < ratio < 1.5, one.task.name
    found[0].path.write_text("no task")
    (tmp_path / "staged" / f"{found[0].path.stem}-H100-1-0.json").unlink()
    with pytest.raises(InputError, match="holds no task"):
        list(staging.stage_all(found, tmp_path / "staged", gpu, 1, 0))


def test_programs_for_a_gpu_are_counted_where_there_is_a_compiler(
    small: tuple[TaskGraph, dict[str, Task]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("cupy_backends.cuda.libs.nvrtc")
    graph, tasks = small
    for task in tasks.values():
        task.save(tmp_path / "tasks")
    counted = programs_of(graph, tmp_path, 1, gpu=gpu_called("A100"))
    assert all(one.compiled for programs in counted.values() for one in programs)
    monkeypatch.setattr("tensorwise.front.networks.has_cupy", lambda: False)
    bare = programs_of(graph, tmp_path, 1, gpu=gpu_called("A100"))
    assert not any(one.compiled for programs in bare.values() for one in programs)
    for task in tasks:
        np.testing.assert_array_equal(counted[task][0].leaves, bare[task][0].leaves)


def test_where_no_draw_fits_a_gpu_each_element_has_a_thread(
    small: tuple[TaskGraph, dict[str, Task]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tensorwise.tasks.schedules.DRAWS_PER_SCHEDULE", {"cpu": 0, "cuda": 0})
    for task in small[1].values():
        schedules = Schedules(task, gpu_called("H100"))
        ((config, module),) = schedules.sample(2, np.random.default_rng(0))
        tree = loop_tree(module)
        assert all({"block", "thread"} <= {loop.kind for loop in loops} for loops, _ in tree.leaves())
        assert loop_tree(schedules.module(config)).text == tree.text
        assert list(Schedules(task).sample(2, np.random.default_rng(0))) == []


def test_what_a_host_function_launches() -> None:
    params = 'launch_params=["blockIdx.x", "threadIdx.x"], ret_ty="int32"'
    more = 'launch_params=["blockIdx.x", "threadIdx.x", "threadIdx.y"]'
    text = f"""
    with T.attr({{"compute_scope": "main_compute_"}}):
        sums = T.alloc_buffer((T.int64(6),))
        flags = T.alloc_buffer((10,), "int8")
        a_1 = T.decl_buffer((60,), data=a.data)
        more = sums.view(6)
        T.call_ffi_kernel("main_kernel", sums.data, a_1.data, 8, 32, {params})
        T.call_ffi_kernel("main_kernel_1", b.data, more.data, flags.data, 2, T.int64(4), 3, {more})
    return 0
    """
    launches, scratch = staging.read_launches(text, ["a", "b"])
    assert scratch == (24, 10)
    assert launches == (
        StagedLaunch("main_kernel", (8, 1), (32, 1), (2, 0)), StagedLaunch("main_kernel_1", (2, 1), (4, 3), (1, 2, 3)),
    )  # fmt: skip
    for old, new in (
        ("blockIdx.x", "blockIdx.z"),
        ("sums.view(6)", "f(6)"),
        ("compute_scope", ""),
        ("8, 32", "n, 32"),
    ):
        with pytest.raises(InputError):
            staging.read_launches(text.replace(old, new), ["a", "b"])


def test_programs_are_measured(small: tuple[TaskGraph, dict[str, Task]]) -> None:
    task = named(small[1], "conv2d")
    configs = [config for config, _ in Schedules(task).sample(3, np.random.default_rng(0))]
    wrong = Config({"design": 99, "decisions": "[]"})
    one, two = TvmCpu("sse", 1), TvmCpu("sse", 2)
    assert one.id != two.id
    found = list(one.measure(task, [*configs, wrong]))
    assert [measurement.status for measurement in found] == ["ok", "ok", "ok", "refused"]
    assert all(0 < measurement.seconds < 1 for measurement in found[:3])
    with pytest.raises(InputError, match="expected an instruction set"):
        TvmCpu("mmx", 1)


def test_a_whole_network_runs_the_schedules_of_its_tasks(whole: Any, tmp_path: Path) -> None:
    import tvm
    from tvm import relax

    _, tasks = cut("small", 1, whole)
    configs = {
        task.id: next(iter(Schedules(task).sample(1, np.random.default_rng(4))))[0] for task in tasks.values()
    }
    inputs = inputs_of(whole)
    assert [(array.shape, str(array.dtype)) for array in inputs] == [((1, 3, 16, 16), "float32")]
    results = []
    for name, module in (("plain", whole), ("scheduled", scheduled(whole, configs))):
        compiled(module, "sse", tmp_path / f"{name}.so")
        machine = relax.VirtualMachine(tvm.runtime.load_module(str(tmp_path / f"{name}.so")), tvm.cpu())
        found = machine["main"](*map(tvm.runtime.tensor, inputs))
        results.append((found if hasattr(found, "numpy") else found[0]).numpy())
    assert np.abs(results[0]).max() > 0
    assert np.allclose(*results, atol=1e-5)
    texts = [str(module.functions_items()) for module in (whole, scheduled(whole, configs))]
    assert texts[0] != texts[1]
    measured = measured_network(whole, configs, TvmCpu("sse", 2))
    assert measured.ok
    assert 0 < measured.seconds < 1
    with pytest.raises(InputError, match="no schedule of"):
        scheduled(whole, dict(list(configs.items())[1:]))


def test_a_program_that_dies_or_hangs_costs_itself_only() -> None:
    import os
    import time

    def run(place: int) -> list[float]:
        if place == 1:
            os.kill(os.getpid(), 9)
        if place == 3:
            time.sleep(60)
        if place == 4:
            raise ValueError("other numbers")
        return [1.0 + place]

    found = list(in_children(run, [True, True, True, True, True, False, True], 0.5))
    assert [one.status for one in found] == ["ok", "crash", "ok", "timeout", "wrong", "refused", "ok"]
    assert found[-1].seconds == 7.0


def test_tasks_are_collected_and_a_second_time_nothing_is_left(
    small: tuple[TaskGraph, dict[str, Task]], tmp_path: Path
) -> None:
    graph, tasks = small
    graph.save(tmp_path / "networks")
    for task in tasks.values():
        task.save(tmp_path / "tasks")
    jobs = task_plan(tmp_path, ["sse"], [1, 2], samples=2)[:2]
    with Store(tmp_path / "records.sqlite") as store:
        found = collect(jobs, store, LocalExecutor())
        assert not found.failed
        assert found.jobs == 2
        records = list(store.records())
        assert len({record.device_id for record in records}) == 2
        assert {record.workload_id for record in records} == {job.task for job in jobs}
        for record in records:
            assert record.ok
            assert record.provenance["networks"] == ["small-b1"]
            assert len(list(LoopTree.from_text(str(record.provenance["tree"])).leaves())) >= 1
            assert MachineCode.from_json(record.provenance["code"]).numbers["all.instructions"] > 1
            assert json.loads(str(record.config["decisions"])) is not None
        assert collect(jobs, store, LocalExecutor()).before == 2


def test_tasks_are_told_apart_without_schedules(
    small: tuple[TaskGraph, dict[str, Task]], tmp_path: Path
) -> None:
    for task in small[1].values():
        task.save(tmp_path / "tasks")
    found = unscheduled(tmp_path, small[1])
    assert found.keys() == small[1].keys()
    for task, (one,) in found.items():
        assert len(one.leaves) == small[1][task].facts["leaves"]
    assert len({one.leaves.tobytes() for (one,) in found.values()}) == len(found)


def test_compiled_code_multiplies_as_often_as_the_task(small: tuple[TaskGraph, dict[str, Task]]) -> None:
    task = named(small[1], "conv2d")
    modules = [module for _, module in Schedules(task).sample(4, np.random.default_rng(3))]
    for isa, width in (("sse", 16), ("avx512", 64)):  # this machine need not have it
        for one in codes_of(modules, isa):
            assert one is not None
            numbers = one.numbers
            assert (
                0.9 * task.facts["flops"] <= numbers["all.flops"] <= 20 * task.facts["flops"]
            )  # lanes that are not used
            assert numbers["all.cycles"] >= numbers["all.instructions"] / 5
            assert not any(numbers[f"arithmetic.{more}"] for more in (32, 64) if more > width)


class Odd(torch.nn.Module):  # type: ignore[misc]
    """Padding, and sizes that vectors do not divide."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = torch.nn.Conv2d(5, 7, 3, padding=1, stride=2)
        self.dense = torch.nn.Linear(35, 19)

    def forward(self, x: Any) -> Any:
        return self.dense(torch.relu(self.convolution(x)).flatten(2))


def counting(ir: str) -> tuple[str, list[str]]:
    """A module whose blocks count themselves, with a function that says where; and the blocks in the order of the counts."""
    lines = marked(ir).split("\n")
    places = [line.split(MARK)[1].split('"')[0].strip() for line in lines if MARK in line]
    order = {place: k for k, place in enumerate(places)}
    for number, line in enumerate(lines):
        if MARK in line:
            k = order[line.split(MARK)[1].split('"')[0].strip()]
            at = f"getelementptr inbounds ([{len(places)} x i64], ptr @counts, i64 0, i64 {k})"
            lines[number] = (
                f"  %was.{k} = load i64, ptr {at}\n  %is.{k} = add i64 %was.{k}, 1\n  store i64 %is.{k}, ptr {at}"
            )
    first = next(number for number, line in enumerate(lines) if line.startswith(("@", "define")))
    lines.insert(first, f"@counts = internal global [{len(places)} x i64] zeroinitializer")
    lines.append(
        "define dllexport i32 @__tvm_ffi_counts(ptr %self, ptr %args, i32 %number, ptr %result) {\n"
        "  store i32 1, ptr %result\n  %value = getelementptr i8, ptr %result, i64 8\n"
        "  store i64 ptrtoint (ptr @counts to i64), ptr %value\n  ret i32 0\n}"
    )
    return "\n".join(lines), places


@pytest.mark.parametrize("isa", ["sse", "avx2"])
def test_blocks_run_as_often_as_is_counted(isa: str, tmp_path: Path) -> None:
    if isa == "avx2" and "avx2" not in describe_processor()[1]:
        pytest.skip("this processor has no avx2")
    _, tasks = cut("odd", 1, lowered(of_torch(Odd(), (torch.randn(1, 5, 13, 9),))))
    for task in tasks.values():
        if not task.facts["flops"]:
            continue
        modules = [module for _, module in Schedules(task).sample(6, np.random.default_rng(1))]
        for built in TvmCpu(isa, 1).build(modules):
            ir = built.mod.inspect_source("ll")
            text, places = counting(ir)
            path = tmp_path / "counting.ll"
            path.write_text(text)

            def ran(_: int, path: Path = path, task: Task = task, count: int = len(places)) -> list[float]:
                use_threads(1)
                module = tvm.runtime.load_module(str(path))
                module["main"](
                    *(tvm.runtime.tensor(np.ones(shape, elem)) for shape, elem in operands(task.module))
                )
                return list(map(float, (ctypes.c_int64 * count).from_address(module["counts"]())))

            (found,) = in_children(ran, [True], 20.0)
            assert found.ok, found.note
            counted = dict(zip(places, found.samples, strict=True))
            said = {
                place: one for place, one in runs(ir).items() if place[0] > 2
            }  # before that operands are checked
            assert sum(counted[f"{function} {block}"] for function, block in said) == pytest.approx(
                sum(one.times for one in said.values()), rel=0.1
            )


def test_a_search_asks_its_guide_and_leaves_its_best_program(
    small: tuple[TaskGraph, dict[str, Task]], tmp_path: Path
) -> None:
    task, device = named(small[1], "conv2d"), TvmCpu("sse", 1)
    seen: list[LoopTree] = []

    def guide(trees: Sequence[LoopTree], codes: Sequence[MachineCode | None]) -> np.ndarray:
        seen.extend(trees)
        assert not any(codes)  # unless it is asked for
        return np.array([sum(1 for _ in tree.leaves()) for tree in trees], float)

    settings: dict[str, Any] = {"batch": 3, "population": 8, "generations": 1}
    for one in guide, "random":
        found = search_schedules(task, device, tmp_path / "found", 6, one, **settings)
        assert 0 < len(found.trials) <= 6
        assert found.curve == sorted(found.curve, reverse=True)
        assert (found.guide_s > 0) == callable(one)
        best = found_in(tmp_path / "found")(task, device)
        (measured,) = device.time(device.build([best]), task)
        assert measured.ok, measured.note
    assert len(seen) >= 6
    with pytest.raises(InputError, match="one of xgb, random"):
        search_schedules(task, device, tmp_path / "found", 6, "ours")
    with pytest.raises(InputError, match="nothing was searched yet"):
        found_in(tmp_path / "nowhere")


def test_a_search_compiles_what_its_guide_puts_first(
    small: tuple[TaskGraph, dict[str, Task]], tmp_path: Path
) -> None:
    asked: list[tuple[list[str], list[MachineCode | None]]] = []

    def guide(trees: Sequence[LoopTree], codes: Sequence[MachineCode | None]) -> np.ndarray:
        asked.append(([tree.text for tree in trees], list(codes)))
        return np.array([float(len(tree.text)) if code is None else 1 / len(tree.text)
                         for tree, code in zip(trees, codes, strict=True)])  # fmt: skip

    task, device = named(small[1], "conv2d"), TvmCpu("sse", 1)
    settings: dict[str, Any] = {"batch": 3, "population": 8, "generations": 1, "compiled": 2}
    found = search_schedules(task, device, tmp_path / "found", 6, guide, **settings)
    assert found.trials
    for (all_trees, none), (some, codes) in itertools.pairwise(asked):
        if len(some) <= 2 < len(all_trees):
            assert not any(none)
            assert all(codes)
            assert sorted(map(len, some)) == sorted(map(len, all_trees))[:2]
    assert any(all(codes) for _, codes in asked)
