"""Names and modules that have moved: the old place still works, and says the new one."""

import sys
from collections.abc import Iterator
from contextlib import nullcontext
from importlib import import_module
from importlib.util import find_spec

import numpy as np
import pytest

from tensorwise.collect.collected import Collected
from tensorwise.device.cpu import CpuDevice
from tensorwise.errors import InputError
from tensorwise.front.api import tune
from tensorwise.old_rooms import RENAMED, ROOMS
from tensorwise.program.einsum import Einsum
from tensorwise.tuning.arrangement import Arrangement
from tensorwise.tuning.sweep import SweepResult


@pytest.fixture(autouse=True)
def _forget_old_names() -> Iterator[None]:
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.rpartition(".")[0] in ROOMS or name in ROOMS:
            del sys.modules[name]


@pytest.mark.parametrize(
    ("old", "name", "new"),
    [
        ("tensorwise.tensor.entries", "entries_from", "tensorwise.tensor.convert"),
        ("tensorwise.features", "MatrixPattern", "tensorwise.analysis.matrix"),
        ("tensorwise.features", "PATTERNS", "tensorwise.analysis.patterns"),
        ("tensorwise.collect.driver", "EXECUTORS", "tensorwise.collect.opening"),
        ("tensorwise.collect.corpus", "split_families", "tensorwise.store.split"),
    ],
)
def test_a_name_that_moved_is_found_and_warned_of(old: str, name: str, new: str) -> None:
    with pytest.warns(DeprecationWarning, match=f"{old}.{name} has moved to {new}") as caught:
        found = getattr(import_module(old), name)
    assert caught[0].filename == __file__  # the line that has to be changed
    assert found is getattr(import_module(new), name)
    with pytest.raises(AttributeError, match=f"module '{old}' has no attribute 'absent'"):
        _ = import_module(old).absent


@pytest.mark.parametrize(
    ("module", "old", "new"),
    [
        ("tensorwise.lower.ir", "Kernel", "LoweredFunction"),
        ("tensorwise.lower.ir", "Store", "BufferStore"),
        ("tensorwise.lower.ir", "Meet", "Barrier"),
        ("tensorwise.lower.ir", "Exchange", "ShuffleXor"),
        ("tensorwise.adapt.cross_device", "Elsewhere", "CrossDeviceCorrection"),
        ("tensorwise.model.evaluation", "Judged", "JobEvaluation"),
        ("tensorwise.model.evaluation", "judge", "evaluate_ranking"),
        ("tensorwise.model.neural", "LookingModel", "NeuralCostModel"),
        ("tensorwise.lower.program", "Apart", "Remainder"),
        ("tensorwise.plan", "Graph", "StepGraph"),
        ("tensorwise.plan", "Plan", "PlacementPlan"),
        ("tensorwise.plan.graph", "Graph", "StepGraph"),
        ("tensorwise.plan.replay", "Plan", "PlacementPlan"),
        ("tensorwise.program.einsum", "Call", "Apply"),
        ("tensorwise.space.cuda", "Gpu", "GpuSpec"),
        ("tensorwise.tensor.levels.level", "Stage", "PackingState"),
        ("tensorwise.tensor.primitives", "Form", "EntryPositions"),
    ],
)
def test_a_renamed_class_is_found_by_its_old_name_with_a_warning(module: str, old: str, new: str) -> None:
    with pytest.warns(DeprecationWarning, match=f"{module}.{old} is now called {new}"):
        found = getattr(import_module(module), old)
    assert found is getattr(import_module(module), new)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("tensorwise.codegen.ir", "tensorwise.lower.ir"),
        ("tensorwise.codegen.loop_tree", "tensorwise.analysis.loop_tree"),
        ("tensorwise.program.packed", "tensorwise.runtime.packed"),
        ("tensorwise.data.record", "tensorwise.store.record"),
        *(
            (f"tensorwise.data.{name}", f"tensorwise.collect.{name}")
            for name in (
                "augment",
                "cluster",
                "corpus",
                "dask",
                "executors",
                "job",
                "measuring",
                "ray",
                "serve",
                "spool",
                "staged_job",
                "task_job",
                "workloads",
            )
        ),
        *(
            (f"tensorwise.data.{name}", f"tensorwise.store.{name}")
            for name in (
                "datasheet",
                "finished",
                "origins",
                "parquet",
                "parts",
                "reading",
                "recorded",
                "split",
                "sqlite",
                "store",
                "tenset",
            )
        ),
        ("tensorwise.data.collect", "tensorwise.collect.driver"),
        ("tensorwise.adapt.elsewhere", "tensorwise.adapt.cross_device"),
        ("tensorwise.model.judging", "tensorwise.model.evaluation"),
        ("tensorwise.model.looking", "tensorwise.model.neural"),
    ],
)
def test_a_module_that_moved_is_itself_under_its_old_name(old: str, new: str) -> None:
    with pytest.warns(DeprecationWarning, match=f"{old} has moved to {new}"):
        module = import_module(old)
    assert module is import_module(new)
    assert module.__name__ == new
    assert module.__spec__ is not None
    assert module.__spec__.name == new  # reload and -m go by it


@pytest.mark.parametrize(
    "name", ["tensorwise.codegen.absent", "tensorwise.program.absent", "tensorwise.absent"]
)
@pytest.mark.filterwarnings("ignore:.*has moved:DeprecationWarning")
def test_what_was_never_there_is_not_found(name: str) -> None:
    with pytest.raises(ModuleNotFoundError, match=f"No module named '{name}'"):
        import_module(name)


def test_what_moved_is_there() -> None:
    for rooms in ROOMS.values():
        for name, package in rooms.items():
            assert name == "*" or find_spec(f"{package}.{name}") is not None, f"{package}.{name}"
    for name in RENAMED.values():
        assert find_spec(name) is not None, name


def test_a_renamed_attribute_works_and_warns_where_it_is_used() -> None:
    found = Collected(5, before=2)
    with pytest.warns(DeprecationWarning, match=r"it is now called Collected\.num_left") as caught:
        assert found.left == found.num_left == 3
    assert caught[0].filename == __file__
    assignment = Einsum.parse("C[i] += A[i,k] * B[k]").single
    with pytest.warns(DeprecationWarning, match=r"Assignment\.free_indices"):
        assert assignment.kept == ("i",)
    with pytest.warns(DeprecationWarning, match=r"Assignment\.has_pattern_of"):
        assert not assignment.keeps("A")


def test_attributes_and_arguments_keep_their_old_names() -> None:
    assert isinstance(vars(CpuDevice)["measure_kernels"], property)
    nothing = Arrangement(())
    with pytest.warns(DeprecationWarning, match=r"Arrangement\.bytes_unshared"):
        assert nothing.bytes_apart == nothing.bytes_unshared == 0
    assert isinstance(vars(SweepResult)["apart"], property)
    with (
        pytest.warns(DeprecationWarning, match="calls is now called expected_calls"),
        pytest.raises(InputError, match="expected_calls must be positive, got -1"),
    ):
        tune(np.eye(4, dtype=np.float32), "spmv", calls=-1)


def test_a_model_that_left_the_package_is_looked_for_where_it_went() -> None:
    import tensorwise.model

    with (
        pytest.warns(DeprecationWarning, match=r"MetricsModel has moved to paper_models\.analytic"),
        nullcontext()
        if find_spec("paper_models")
        else pytest.raises(ModuleNotFoundError, match="paper_models"),
    ):
        assert tensorwise.model.MetricsModel.__module__ == "paper_models.analytic"
    with pytest.raises(AttributeError, match="has no attribute 'NoModel'"):
        _ = tensorwise.model.NoModel
