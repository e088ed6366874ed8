"""Doors of files: matrices, tensors, operators, models, stores, spools, tables, descriptions."""

import functools
import gzip
import io
import json
import random
import sqlite3
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from fuzzing import mutate, texts
from tensorwise.collect.corpus import patterns
from tensorwise.collect.spool import Spool
from tensorwise.device.roofline import _read_figures
from tensorwise.device.spade import MACHINES, Machine
from tensorwise.errors import InputError
from tensorwise.front.cli import _array
from tensorwise.front.cli_select import _read_graph
from tensorwise.front.networks import _read_programs
from tensorwise.keeping import Keeping
from tensorwise.model.choosing import TreeModel
from tensorwise.model.latency import LatencyModel
from tensorwise.model.mean import MeanModel
from tensorwise.model.ranking import RankingModel
from tensorwise.plan import PlacementPlan
from tensorwise.search.graph import ConfigGraph
from tensorwise.store.parquet import read_records, write_records
from tensorwise.store.store import Store
from tensorwise.store.tenset import looks_like_tenset, tenset_records
from tensorwise.tasks.cutting import TaskGraph
from tensorwise.tasks.staged import StagedTask
from tensorwise.tasks.task import Task
from tensorwise.tensor.convert import entries_from
from tensorwise.tensor.files import read
from tensorwise.toolchain.places import private_dir
from tensorwise.tuning import saving

MTX = [
    b"%%MatrixMarket matrix coordinate real general\n% c\n3 4 4\n1 1 1.5\n2 3 -2e-3\n1 3 0\n3 4 7\n",
    b"%%MatrixMarket matrix coordinate pattern symmetric\n3 3 3\n1 1\n2 1\n3 2\n",
    b"%%MatrixMarket matrix array real general\n2 2\n1\n0\nnan\n4\n",
    b"%%MatrixMarket matrix array real skew-symmetric\n3 3\n1\n2\n3\n",
    b"%%MatrixMarket matrix coordinate complex hermitian\n2 2 2\n1 1 1 0\n2 1 1D+3 -1\n",
    b"%%MatrixMarket matrix coordinate integer general\n\n2 2 2\n\n1 1 5\n%\n2 2 9223372036854775807\n",
]
TNS = [
    b"1 1 1 1.0\n2 3 2 2.0\n",
    b"# dims: 2 3 2\n1 1 1 1.0\n\n2 3 2 2.0 # c\n",
    b"3 2\n2 3 2\n1 1 1 1.0\n2 3 2 2.0\n",
    b"sptensor\n3\n2 3 2\n2\n1 1 1 1.0\n2 3 2 2.0\n",
    b"1,1,1,1.0\n2,3,2,2.0\n",
    b"# dims: 3x3\n",
    b"1 2 3 4 5 6 1e3\n",
]


def _file(rng: random.Random, folder: Path, name: str, seeds: list[bytes], packed: bool) -> Path:
    data = mutate.bytes_of(rng, rng.choice(seeds), seeds)
    path = folder / name
    if packed:
        data = gzip.compress(data, rng.choice((0, 1)))
        if rng.random() < 0.3:
            data = mutate.bytes_of(rng, data)
    path.write_bytes(data)
    return path


def mtx(rng: random.Random, folder: Path) -> object:
    part = rng.choice((None, None, "real", "imaginary", "both"))
    return read(_file(rng, folder, "a.mtx", MTX, False), texts.some_dtype(rng), part)  # type: ignore[arg-type]


def mtx_gz(rng: random.Random, folder: Path) -> object:
    return read(_file(rng, folder, "a.mtx.gz", MTX, True))


def tns(rng: random.Random, folder: Path) -> object:
    return read(_file(rng, folder, "a.tns", TNS, False), texts.some_dtype(rng))


def tns_gz(rng: random.Random, folder: Path) -> object:
    return read(_file(rng, folder, "a.tns.gz", TNS, True))


@functools.cache
def _matrices() -> list[Any]:
    matrix = sp.random_array((6, 8), density=0.3, rng=np.random.default_rng(0), format="csr")
    return [matrix, matrix.tocsc(), matrix.tocoo(), sp.bsr_array(matrix, blocksize=(2, 2)), matrix.todia()]


@functools.cache
def _archives() -> list[dict[str, np.ndarray]]:
    found = []
    for matrix in _matrices():
        data = io.BytesIO()
        sp.save_npz(data, matrix)
        with np.load(io.BytesIO(data.getvalue())) as arrays:
            found.append(dict(arrays))
    return found


def npz(rng: random.Random, folder: Path) -> object:
    arrays = dict(rng.choice(_archives()))
    if rng.random() < 0.6:
        name = rng.choice(list(arrays))
        changed = mutate.array_of(rng, arrays[name])
        try:
            arrays[name] = np.asarray(changed)
        except ValueError:
            arrays[name] = np.zeros(2)
        if arrays[name].dtype.hasobject:
            arrays[name] = np.array(["x"])
    data = io.BytesIO()
    np.savez(data, **{name: np.ma.getdata(array) for name, array in arrays.items()})
    packed = data.getvalue()
    if rng.random() < 0.5:
        packed = mutate.bytes_of(rng, packed)
    elif rng.random() < 0.3:  # members that lie about themselves, in a sound archive
        data = io.BytesIO()
        with (
            zipfile.ZipFile(io.BytesIO(packed)) as old,
            zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as new,
        ):
            for name in old.namelist():
                new.writestr(
                    name, mutate.bytes_of(rng, old.read(name)) if rng.random() < 0.4 else old.read(name)
                )
        packed = data.getvalue()
    path = folder / "a.npz"
    path.write_bytes(packed)
    return read(path, texts.some_dtype(rng))


def binsparse(rng: random.Random, folder: Path) -> object:
    """Descriptors, arrays and bytes of binsparse files that are changed."""
    import h5py

    matrix = rng.choice(_matrices()[:3])
    arrays = {
        "values": matrix.data,
        "indices_1": matrix.indices if matrix.format != "coo" else matrix.coords[1],
    }
    arrays |= {"indices_0": matrix.coords[0]} if matrix.format == "coo" else {"pointers_to_1": matrix.indptr}
    about: Any = {
        "binsparse": {
            "version": "0.1",
            "format": matrix.format.upper(),
            "shape": list(matrix.shape),
            "number_of_stored_values": matrix.nnz,
            "data_types": {name: array.dtype.name for name, array in arrays.items()},
        }
    }
    kind = rng.random()
    if kind < 0.4:
        about = mutate.json_of(rng, about)
    elif kind < 0.7:
        name = rng.choice(list(arrays))
        changed = np.ma.getdata(np.asarray(mutate.array_of(rng, arrays[name])))
        arrays[name] = np.zeros(2) if changed.dtype.kind in "OUMV" else changed
    path = folder / "a.bsp.h5"
    packed: dict[str, Any] = rng.choice(({}, {}, {"chunks": (4,), "compression": "gzip", "shuffle": True}))
    with h5py.File(path, "w", libver=rng.choice(("earliest", "latest"))) as file:
        file.attrs["binsparse"] = rng.choice((str, np.bytes_))(json.dumps(about))
        for name, array in arrays.items():
            file.create_dataset(name, data=array, **(packed if array.ndim == 1 and array.size > 4 else {}))
        if rng.random() < 0.1:
            del file["values"]
            file["values"] = rng.choice((h5py.SoftLink("/indices_1"), h5py.ExternalLink("/etc/passwd", "/x")))
    if kind > 0.65:
        path.write_bytes(mutate.bytes_of(rng, path.read_bytes()))
    return read(path, texts.some_dtype(rng))


def npy(rng: random.Random, folder: Path) -> object:
    data = io.BytesIO()
    np.save(data, np.arange(12.0).reshape(3, 4))
    path = folder / "a.npy"
    path.write_bytes(mutate.bytes_of(rng, data.getvalue()))
    return _array(path)


@functools.cache
def _operators() -> list[tuple[dict[str, Any], dict[str, np.ndarray]]]:
    """Descriptions and arrays of saved operators, as `saving.save` writes them; nothing is compiled."""
    found = []
    for text, formats, schedule, sizes, shape in (
        (
            "C[i,j] += A[i,k] * B[k,j]",
            {"A": "(i,k) -> U(i) C(k)"},
            "reorder(i,k,j) parallel(i)",
            {"j": 8},
            (6, 8),
        ),
        ("C[i] += A[i,k] * B[k]", {"A": "(i,k) -> U(k-i) U(i)"}, "", {}, (6, 8)),
        ("C[i] += A[i,k] * B[k]", {"A": "(i,k) -> U(i1) C(k) U(i0:2)"}, "split(i,2)", {}, (6, 8)),
        ("C[i] max= A[i,k] * B[k]", {"A": "(i,k) -> C(i) S(k)"}, "", {}, (6, 8)),
    ):
        entries = entries_from(_matrices()[0])
        description = {
            "schema": saving.SCHEMA,
            "version": "0",
            "op": "einsum",
            "einsum": text,
            "sizes": {"i": 6, "k": 8, **sizes},
            "sparse": {
                "A": {
                    "shape": list(shape),
                    "nnz": entries.nnz,
                    "dtype": "float64",
                    "pattern_id": entries.pattern_id,
                }
            },
            "dtypes": {},
            "kernel": "tensorwise",
            "formats": formats,
            "schedule": schedule,
            "threads": 1,
            "machine": {"host": "x", "host_id": "y", "compiler_id": "z"},
        }
        arrays = {"A.values": entries.values, "A.0": entries.coordinates[0], "A.1": entries.coordinates[1]}
        from tensorwise.program.workload import einsum_workload

        op = einsum_workload(text, {"A": entries}, description["sizes"]).op
        found.append(({**description, "op": op}, arrays))
    return found


def operator(rng: random.Random, folder: Path) -> object:
    from safetensors.numpy import save

    description, arrays = rng.choice(_operators())
    changed = mutate.json_of(rng, description)
    parts = dict(arrays)
    if rng.random() < 0.3:
        name = rng.choice(list(parts))
        parts[name] = np.ascontiguousarray(_plain(mutate.array_of(rng, parts[name])))
    text = json.dumps(changed)
    data = save(parts, metadata={saving.KEY: text, "checksum": saving._checksum(text, parts)})
    if rng.random() < 0.1:
        data = mutate.bytes_of(rng, data)
    path = folder / "a.tw"
    path.write_bytes(data)
    return saving.read_operator(path, None, rng.random() < 0.1)


def _plain(value: Any) -> np.ndarray:
    """An array that safetensors can write."""
    try:
        array = np.ma.getdata(np.asarray(value))
    except ValueError:
        return np.zeros(1)
    return (
        array
        if array.dtype.str[1:] in ("i4", "i8", "f4", "f8", "u1", "u2", "f2", "b1") and array.dtype.isnative
        else np.zeros(1)
    )


@functools.cache
def _models() -> list[tuple[type[Any], Keeping, int, dict[str, Any], dict[str, np.ndarray]]]:
    """Small models, and what is small of the bundled ones: description and arrays."""
    from safetensors.numpy import load_file

    from tensorwise.model.choosing import Latency
    from tensorwise.model.finding import bundled_model
    from tensorwise.model.latency import LATENCY
    from tensorwise.model.model import MODEL
    from tensorwise.model.tree import Tree
    from tensorwise.space.config import Config

    tree = TreeModel()
    tree.fields, tree.configs = ("m", "n"), (Config({"version": "a"}), Config({"version": "b"}))
    tree.choice, tree.ranges = (
        Tree.checked([0, -1, -1], [2.5, 0, 0], [2, 0, 0], [0, 0, 1], 2),
        np.zeros((5, 2)),
    )
    rest = Tree.checked([-1], [0.0], [0], [0.5], 2)
    tree._latencies = {config: Latency(0.0, np.zeros(2), np.ones(2), rest) for config in tree.configs}
    found: list[Any] = []
    values, arrays = tree.state()
    about = {"kind": "tree", "version": tree.version, "returns": "seconds", "card": {}, "values": values}
    found.append((TreeModel, MODEL, about, arrays))
    mean = MeanModel()
    mean.fit(texts.records())
    values, arrays = mean.state()
    found.append(
        (
            MeanModel,
            MODEL,
            {**about, "kind": mean.kind, "version": mean.version, "returns": mean.returns, "values": values},
            arrays,
        )
    )
    for model, keeping, folder in (
        (LatencyModel, LATENCY, bundled_model("latency")),
        (RankingModel, MODEL, bundled_model("spmv")),
    ):
        described, weights = (folder / name for name in keeping.files)
        found.append((model, keeping, json.loads(described.read_text()), load_file(weights)))
    return found


def model(rng: random.Random, folder: Path) -> object:
    import hashlib

    from safetensors.numpy import save

    kind, keeping, about, arrays = rng.choice(_models()[:2] if rng.random() < 0.9 else _models())  # type: ignore[misc]
    big = sum(array.nbytes for array in arrays.values()) > 10**6
    changed = mutate.json_of(rng, about)
    if not big and arrays and rng.random() < 0.3:
        name = rng.choice(list(arrays))
        arrays = {**arrays, name: np.ascontiguousarray(_plain(mutate.array_of(rng, arrays[name])))}
    if big:  # without its file: the arrays take long to write
        made = {LatencyModel: LatencyModel._from_description, RankingModel: RankingModel._from_description}[
            kind
        ]
        from tensorwise.reading import parse_json, reading

        with reading("a model"):
            return made(parse_json(json.dumps(changed), "a model"), dict(arrays))
    data = save({name: np.ascontiguousarray(array) for name, array in arrays.items()})
    if isinstance(changed, dict):
        changed = {**changed, "sha256": hashlib.sha256(data).hexdigest()}
    for name, content in zip(keeping.files, (json.dumps(changed).encode(), data), strict=True):
        (folder / name).write_bytes(mutate.bytes_of(rng, content) if rng.random() < 0.05 else content)
    return kind.load(folder)


@functools.cache
def _graph() -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    arrays = {
        "choices": np.array([[0, 1], [1, 0], [1, 1]], np.uint16),
        "embeddings": np.arange(12, dtype=np.float32).reshape(3, 4),
        "starts": np.array([0, 2, 4, 6], np.int64),
        "links": np.array([1, 2, 0, 2, 0, 1], np.int32),
        "entry_points": np.array([0], np.int64),
    }
    from tensorwise.search.graph import KIND, VERSION

    return {
        "kind": KIND,
        "version": VERSION,
        "values": {"n": [1, 2], "loops": [["i", "k"], ["k", "i"]]},
    }, arrays


def graph(rng: random.Random, folder: Path) -> object:
    from tensorwise.search.graph import GRAPH

    about, arrays = _graph()
    changed = mutate.json_of(rng, about) if rng.random() < 0.6 else about
    parts = dict(arrays)
    if rng.random() < 0.7:
        name = rng.choice(list(parts))
        parts[name] = np.ascontiguousarray(_plain(mutate.array_of(rng, parts[name])))
    if not isinstance(changed, dict):
        changed = {"kind": changed}
    try:
        GRAPH.save(folder, changed, parts)
    except (ValueError, TypeError, RecursionError):
        raise InputError("this cannot be written") from None
    return ConfigGraph.load(folder)


@functools.cache
def _database() -> bytes:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "s.sqlite"
        with Store(path) as made:
            made.append(texts.records())
        with sqlite3.connect(path) as connection:
            connection.execute("PRAGMA journal_mode = DELETE")
        return path.read_bytes()


def store(rng: random.Random, folder: Path) -> object:
    path = folder / "s.sqlite"
    for old in folder.glob("s.sqlite*"):
        old.unlink()
    if rng.random() < 0.5:
        path.write_bytes(mutate.bytes_of(rng, _database()))
    else:
        path.write_bytes(_database())
        column = rng.choice(
            ("id", "workload", "config", "seconds", "spread_s", "status", "note", "provenance", "workload_id")
        )
        value = rng.choice(
            (
                "",
                "x",
                "[",
                "{}",
                '{"a": 1e999}',
                "\ud800".encode("utf-8", "surrogatepass"),
                b"\xff",
                10**18,
                -1.5,
                None,
                "[" * 3000,
            )
        )
        with sqlite3.connect(path) as connection:
            connection.create_function("json_extract", 2, lambda text, place: None)
            try:
                connection.execute(f"UPDATE records SET {column} = ? WHERE n = 1", (value,))
            except sqlite3.Error:
                raise InputError("this cannot be stored") from None
    with Store(path) as opened:
        opened.jobs()
        return opened.query()


def spool(rng: random.Random, folder: Path) -> object:
    place = folder / "spool"
    made = Spool(place)
    lines = [json.dumps(mutate.json_of(rng, texts.JOBS[0])).encode() for _ in range(2)] + [
        json.dumps(texts.JOBS[0]).encode()
    ]
    (place / "jobs.jsonl").write_bytes(mutate.bytes_of(rng, b"\n".join(lines) + b"\n"))
    result = {"job": "a" * 32, "device": "d", "records": [texts.records()[0].to_json()]}
    answers = [
        json.dumps(mutate.json_of(rng, one)).encode()
        for one in (result, {"claim": "x"}, {"job": "x", "error": "y"}, result)
    ]
    (place / "results" / "w.jsonl").write_bytes(mutate.bytes_of(rng, b"\n".join(answers) + b"\n"))
    made.jobs()
    made.refresh()
    return [made.results_of(line) for _, line in made.lines() if "records" in line]


@functools.cache
def _table() -> bytes:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "r.parquet"
        write_records(path, texts.records())
        return path.read_bytes()


def parquet(rng: random.Random, folder: Path) -> object:
    path = folder / "r.parquet"
    if rng.random() < 0.4:
        path.write_bytes(mutate.bytes_of(rng, _table()))
        return list(read_records(path))
    import pyarrow as pa
    from pyarrow import parquet as pq

    table = pq.read_table(io.BytesIO(_table()))
    name = rng.choice(table.column_names)
    place = table.column_names.index(name)
    kind = rng.randrange(4)
    if kind == 0:
        table = table.remove_column(place)
    elif kind == 1:
        table = table.rename_columns(
            [rng.choice(("x", "config.", "a.b", ".")) if one == name else one for one in table.column_names]
        )
    else:
        value = rng.choice(
            (
                None,
                "x",
                1,
                1.5,
                True,
                "{",
                '{"a": 1e999}',
                "[" * 900,
                float("nan"),
                2**62,
                b"ab",
                [1],
                "9" * 400,
            )
        )
        table = table.set_column(place, name, pa.array([value] * len(table)))
    pq.write_table(table, path)
    return list(read_records(path))


def machine(rng: random.Random, folder: Path) -> object:
    path = folder / "m.toml"
    path.write_bytes(mutate.bytes_of(rng, (MACHINES / "spade.toml").read_bytes()))
    return Machine.load(path)


TASK = {"name": "add", "id": "0" * 32, "facts": {"op": "add", "flops": 20.0, "bytes": 120}, "tir": "text"}
TASK_GRAPH = {
    "name": "net",
    "batch": 1,
    "source": "ab",
    "nodes": [
        {"task": "0" * 32, "name": "add", "after": [], "result_bytes": 4},
        {"task": "1" * 32, "name": "mul", "after": [0], "result_bytes": 8},
    ],
}
STAGED = {
    "task": "0" * 32,
    "name": "add",
    "facts": {"op": "add"},
    "networks": ["net-b1"],
    "gpu": "H200",
    "arch": "sm_90",
    "operands": [[[4, 5], "float32"], [[4], "float32"]],
    "tvm": "0.1",
    "programs": [
        {
            "config": '{"design":0}',
            "tree": "[]",
            "launches": [["k", [4, 1], [32, 1], [0, 2]]],
            "scratch": [16],
            "code": "eJwDAAAAAAE=",
            "counted": {},
        }
    ],
}


def task(rng: random.Random, folder: Path) -> object:
    load, value = rng.choice(
        (
            (Task.load, TASK),
            (TaskGraph.load, TASK_GRAPH),
            (StagedTask.load, STAGED),
            (_read_programs, [{"tree": "[]", "code": {}}]),
        )
    )
    path = folder / "t.json"
    data = json.dumps(mutate.json_of(rng, value)).encode()
    path.write_bytes(mutate.bytes_of(rng, data) if rng.random() < 0.2 else data)
    return load(path)  # type: ignore[operator]


PLAN = {
    "devices": ["cpu", "gpu"],
    "links": [
        {"from": "cpu", "to": "gpu", "latency_s": 1e-5, "bytes_per_s": 1e10},
        {"from": "gpu", "to": "cpu"},
    ],
    "steps": [
        {"name": "gemm", "seconds": {"cpu": 1e-2, "gpu": 1e-4}, "result_bytes": 4e6, "given_bytes": 8e6},
        {"name": "relu", "seconds": {"cpu": 1e-3, "gpu": 1e-5}, "result_bytes": 4e6, "after": ["gemm"]},
        {"name": "add", "seconds": {"cpu": 1e-3}, "after": ["gemm", "relu"]},
    ],
}


def plan(rng: random.Random, folder: Path) -> object:
    path = folder / "p.json"
    data = json.dumps(mutate.json_of(rng, PLAN)).encode()
    path.write_bytes(mutate.bytes_of(rng, data) if rng.random() < 0.2 else data)
    best = PlacementPlan.best(*_read_graph(path))
    return best.timeline()


TENSET = {
    "i": [['["conv2d", 1, [3, 4]]', "llvm -mcpu=core-avx2"], [[], [["SP", 3, 0, 4, [2], 1]]]],
    "r": [[0.5, 0.25], 0, 1.5, 1600000000],
    "v": "v0.6",
}


def tenset(rng: random.Random, folder: Path) -> object:
    path = folder / "log.json"
    lines = [json.dumps(TENSET).encode(), json.dumps(mutate.json_of(rng, TENSET)).encode()]
    data = b"# a comment\n" + b"\n".join(lines) + b"\n"
    path.write_bytes(mutate.bytes_of(rng, data) if rng.random() < 0.3 else data)
    looks_like_tenset(path)
    return list(tenset_records(path, "a machine"))


def manifest(rng: random.Random, folder: Path) -> object:
    (folder / "a.mtx").write_bytes(MTX[0])
    path = folder / "m.csv"
    path.write_bytes(mutate.bytes_of(rng, b"name,file,order,nnz,group\na,a.mtx,2,4,g\nb,b.mtx,2,9,h\n"))
    return patterns([path])


def figures(rng: random.Random, folder: Path) -> object:
    value = {
        "bandwidth": {"L1": 1e11, "L2": 5e10, "L3": 2e10, "DRAM": 1e10},
        "flops": {"float32": 1e11, "float64": 5e10},
        "vectors": {"16": 1e10, "32": 2e10, "64": 4e10},
        "provisional": False,
    }
    path = private_dir(folder / "figures") / "roofline.json"
    path.write_bytes(json.dumps(mutate.json_of(rng, value)).encode())
    path.chmod(0o600)
    return _read_figures(path, 1)
