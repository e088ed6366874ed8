"""Doors of texts and JSON: formats, schedules, einsums, programs of TVM, records, jobs, settings, arguments."""

import contextlib
import functools
import json
import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from fuzzing import mutate
from tensorwise.analysis.loop_tree import LoopTree
from tensorwise.analysis.machine_code import MachineCode
from tensorwise.analysis.tvmscript import read_tvmscript
from tensorwise.collect.augment import Augmentation
from tensorwise.collect.executors import records_in
from tensorwise.collect.serve import job_of
from tensorwise.device.device import Measurement
from tensorwise.device.hardware import Hardware, described
from tensorwise.device.rounds import RoundTable
from tensorwise.errors import InputError
from tensorwise.front.networks import prices
from tensorwise.lower.program import program_for
from tensorwise.program.einsum import Einsum
from tensorwise.program.schedule import Schedule
from tensorwise.program.workload import Workload, workload
from tensorwise.reading import parse_json
from tensorwise.runtime.work import check_work
from tensorwise.space.config import Config
from tensorwise.store.record import COLUMNS, Record, row_id
from tensorwise.store.store import default_path
from tensorwise.tensor.convert import entries_from
from tensorwise.tensor.elements import value_dtype
from tensorwise.tensor.format import Format
from tensorwise.tensor.partition import Partition

FORMATS = [
    "(i,k) -> U(i) C(k)",
    "(i,k) -> U(i1) C(k1) U(i0:4) U(k0:2)",
    "(i:length4096,k) -> U(i1) P(k#) U(i0:8) S16(k)",
    "(i,k) -> U(k-i) U(i)",
    "(i,k) -> C(i) S(k)",
    "U(k) C(i)",
    "(i,j,k) -> C(i) C(j) C(k)",
    "(i,k) -> U(i1) C(k) B(i0:64)",
]
SCHEDULES = [
    "reorder(i,k,j) parallel(i,dynamic,32) tile(j,4x8)",
    "split(i,16) split(k,4) reorder(i1,k1,i0,k0) unroll(i0,4)",
    "bound(j,64) prefetch(B,8) factor(k)",
    "bind(i,block) bind(j,thread,32) stage(k,32)",
    "parallel(i,merge-path,4)",
    "",
]
EINSUMS = [
    "C[i,j] += A[i,k] * B[k,j]",
    "C[i] max= A[i,k] * B[k]",
    "T[i] max= A[i,k]*B[k]; C[i] = T[i] / 2",
    "C[i,k] = A[i,k] * exp(-B[i,j] * D[k,j])",
    "C[i] += A[i,k] * (B[k] if B[k] < 3 else -1.5)",
    "C[i] argmax= A[i,k] for A[i,k]",
    "C[i] += abs(min(A[i,k], 1e3)) - 2",
    "y[i] mean= A[i,k] * x[k] for P[i,k]",
]
TVM = """
@T.prim_func
def main(A: T.Buffer((T.int64(64), T.int64(32)), "float32"), B: T.Buffer((32, 48)), C: T.Buffer((64, 48), "float32")):
    T.func_attr({"tirx.noalias": True})
    D = T.alloc_buffer((64, 48), "int32")
    for i_0_j_0_fused in T.parallel(T.int64(32), annotations={"pragma_auto_unroll_max_step": 16}):
        for k_0, i_1 in T.grid(T.int64(16), T.int64(4)):
            for k_1 in range(T.int64(2)):
                for b in T.thread_binding(4, thread="blockIdx.x"):
                    for j_1 in T.vectorized(T.int64(24)):
                        with T.sblock("C_update"):
                            v_i = T.axis.spatial(T.int64(64), i_0_j_0_fused // T.int64(2) * T.int64(4) + i_1)
                            v_j, v_k = T.axis.remap("SR", [i_0_j_0_fused % 2 * 24 + j_1, k_0 * 2 + k_1])
                            T.where(v_i < 60 and not v_j == 3)
                            if T.likely(v_i > 2) or D[v_i, v_j] >= 1:
                                C[v_i, v_j] = C[v_i, v_j] + A[v_i, v_k] * T.Select(v_i < 3, B[v_k, v_j], T.float32(1.5))
"""
JOBS: list[dict[str, Any]] = [
    {
        "name": "m",
        "path": "patterns/m.mtx",
        "digest": "0f" * 16,
        "family": "f",
        "op": "spmm",
        "n": 8,
        "mode": 0,
        "variant": 0,
        "device": "null",
        "threads": 1,
        "samples": 6,
        "seed": 0,
        "sample_s": 10.0,
        "most_terms": 1000,
        "named": [],
        "asked": "",
    },
    {
        "name": "add",
        "path": "t.json",
        "task": "0" * 32,
        "networks": ["net-b1"],
        "device": "avx2",
        "threads": [1, 2],
        "samples": 16,
        "seed": 0,
        "limit_s": 8.0,
    },
    {"staged": "s.json", "content": "0" * 32, "device": "H200", "threads": 1},
]


@functools.cache
def records() -> list[Record]:
    """Two records."""
    about = {
        "op": "spmm",
        "einsum": EINSUMS[0],
        "sizes": {"i": 6},
        "shape": [6, 8],
        "nnz": 12,
        "dtype": "float32",
    }
    made = [
        Record(
            "w" * 32,
            about,
            "d" * 32,
            "cpu",
            Config({"n": 1, "loops": ("i", "k"), "off": None}),
            0.1,
            1e-4,
            provenance={"job": "j", "threads": 2},
        ),
        Record(
            "v" * 32,
            about,
            "d" * 32,
            "cpu",
            Config({"n": 2, "flag": True}),
            float("inf"),
            status="crash",
            note="gone",
        ),
    ]
    return made


def some_dtype(rng: random.Random) -> Any:
    """Mostly none, else a dtype or what is none."""
    return (
        None
        if rng.random() < 0.7
        else rng.choice(
            ("float32", np.float64, "float16", "int32", "O", ",", "f8,f8", 5, "bfloat16", "(2,)f4", "\ud800")
        )
    )


def format_text(rng: random.Random, folder: Path) -> object:
    made = Format.parse(mutate.text_of(rng, rng.choice(FORMATS), FORMATS), "A")
    return str(made), made.structure, made.extents(tuple(rng.choice((0, 1, 7, 2**40)) for _ in made.modes))


def schedule(rng: random.Random, folder: Path) -> object:
    made = Schedule.parse(mutate.text_of(rng, rng.choice(SCHEDULES), SCHEDULES))
    return made.splits, made.bounds, made.parallel, made.tile, made.unrolls, made.teams, str(made)


def einsum(rng: random.Random, folder: Path) -> object:
    return str(Einsum.parse(mutate.text_of(rng, rng.choice(EINSUMS), EINSUMS)))


@functools.cache
def works() -> list[Workload]:
    """Workloads of a small matrix."""
    entries = entries_from(
        sp.random_array((6, 8), density=0.3, rng=np.random.default_rng(0), dtype=np.float32)
    )
    return [workload("spmm", entries, n=4), workload("spmv", entries), workload("sddmm", entries, n=4)]


def program(rng: random.Random, folder: Path) -> object:
    """Format and schedule together, as from a file: nothing is lowered before the checks."""
    work = rng.choice(works())
    format_text = (
        mutate.text_of(rng, rng.choice(FORMATS), FORMATS) if rng.random() < 0.5 else rng.choice(FORMATS)
    )
    schedule_text = (
        mutate.text_of(rng, rng.choice(SCHEDULES), SCHEDULES) if rng.random() < 0.5 else rng.choice(SCHEDULES)
    )
    made = program_for(work, {"A": format_text}, schedule_text)
    check_work(made, work)
    return made.format_texts, made.schedule_text


def tvmscript(rng: random.Random, folder: Path) -> object:
    return read_tvmscript(mutate.text_of(rng, TVM), np.random.default_rng(0)).text


def record(rng: random.Random, folder: Path) -> object:
    """A line of JSON; half of them have the id that fits, so that what is inside is read."""
    data = json.loads(rng.choice(records()).to_json())
    changed = mutate.json_of(rng, data)
    if isinstance(changed, dict) and rng.random() < 0.7 and all(name in changed for name in COLUMNS):
        for name in ("workload", "config", "provenance"):
            if rng.random() < 0.3 and isinstance(data[name], str):
                changed[name] = json.dumps(mutate.json_of(rng, json.loads(data[name])))
        with contextlib.suppress(OverflowError, TypeError, ValueError):
            changed["id"] = row_id([changed[name] for name in COLUMNS[1:]])
    text = json.dumps(changed)
    return Record.from_json(mutate.text_of(rng, text) if rng.random() < 0.2 else text).id


def row(rng: random.Random, folder: Path) -> object:
    values = list(rng.choice(records()).to_row())
    changed = mutate.json_of(rng, values)
    if not isinstance(changed, list):
        changed = [changed]
    if rng.random() < 0.8:
        with contextlib.suppress(OverflowError, TypeError, ValueError, AttributeError, IndexError):
            changed[0] = row_id(changed[1:])
    return Record.from_row(changed).id


def config(rng: random.Random, folder: Path) -> object:
    text = mutate.text_of(rng, '{"chunk":null,"order":["i","k"],"split":4,"flag":true}')
    made = Config.parse(text)
    return made.id, str(made)


def job(rng: random.Random, folder: Path) -> object:
    text = json.dumps(mutate.json_of(rng, rng.choice(JOBS)))
    made = job_of(parse_json(mutate.text_of(rng, text) if rng.random() < 0.2 else text, "a job"))
    return made.id, made.label, made.to_json()


def answer(rng: random.Random, folder: Path) -> object:
    answers = ({"records": [records()[0].to_json()]}, {"error": "x"}, {"lost": "y"}, {"beat": 1})
    return records_in(parse_json(json.dumps(mutate.json_of(rng, rng.choice(answers))), "an answer"))


def measurement(rng: random.Random, folder: Path) -> object:
    one = Measurement.of([0.5, 0.25, 0.75], "a note").to_json()
    table = RoundTable(
        ("a", "b"), ({"a": 0.5, "b": 0.25}, {"a": 0.5, "b": 0.3}), (False, True), "warm", 1.0
    ).to_json()
    kinds: Any = (
        (Measurement.from_json, one),
        (RoundTable.from_json, table),
        (Hardware.from_json, described()["T4"].to_json()),
        (MachineCode.from_json, {"all.flops": 1.0}),
    )
    read, value = rng.choice(kinds)
    return read(mutate.json_of(rng, value))


TREE = [
    [
        "parallel",
        4,
        [["serial", 8, [["leaf", {"float_add": 1}, [["x", "read", 4, 1000, 1, [1, 2], [1, 0.5]]]]]]],
    ]
]


def loop_tree(rng: random.Random, folder: Path) -> object:
    text = json.dumps(mutate.json_of(rng, TREE))
    tree = LoopTree.from_text(mutate.text_of(rng, text) if rng.random() < 0.3 else text)
    return tree.text, tree.repeating()


def small(rng: random.Random, folder: Path) -> object:
    reads: Any = (
        (Augmentation.parse, "4x2-1000x800-7"),
        (Partition.parse, "columns>4/8"),
        (lambda text: prices([text]), "T4=0.5"),
        (Partition.parse, "rows>64"),
        (Augmentation.parse, "1x1x2-9x9x9-7-3"),
    )
    read, text = rng.choice(reads)
    return str(read(mutate.text_of(rng, text)))


def dtype(rng: random.Random, folder: Path) -> object:
    seeds = [
        "float32",
        "float64",
        "float16",
        "bfloat16",
        "<f4",
        "f4,f8",
        "(3,)f4",
        "int32",
        "O",
        "m8[s]",
        "f4, (2,2)f8",
        "{'names': ['a']}",
        "S",
        "=f8",
    ]
    text = mutate.text_of(rng, rng.choice(seeds), seeds)
    value: Any = (
        text
        if rng.random() < 0.8
        else rng.choice(
            (
                text.encode("utf-8", "ignore"),
                [text],
                (text, 3),
                {"names": [text]},
                {text: 1},
                5,
                object(),
                float,
                np.dtype("V4"),
            )
        )
    )
    return value_dtype(value)


def plain_json(rng: random.Random, folder: Path) -> object:
    """What `parse_json` lets pass can be printed, walked and hashed."""
    seeds = (JOBS[0], TREE, {"a": [1, 2.5, None, "x"]}, "x", 1.5)
    text = json.dumps(mutate.json_of(rng, rng.choice(seeds)))
    given: Any = mutate.text_of(rng, text)
    if rng.random() < 0.3:
        given = mutate.bytes_of(rng, text.encode("utf-8", "surrogatepass"))
    value = parse_json(given, "a text")
    return json.dumps(value, allow_nan=False).encode() and repr(value).encode()


SETTINGS = {
    "TENSORWISE_NUM_THREADS": ["2", "1"],
    "OMP_NUM_THREADS": ["4,2", "8"],
    "TENSORWISE_VECTOR_BYTES": ["32", "16"],
    "TENSORWISE_CACHE_BYTES": ["1000000"],
    "TENSORWISE_CACHE_DIR": ["/nonexistent/x"],
    "TENSORWISE_STORE": ["~/x.sqlite"],
    "OMP_PROC_BIND": ["true"],
    "TENSORWISE_CC": ["no-such-compiler -O2"],
}


def environment(rng: random.Random, folder: Path) -> object:
    from tensorwise.toolchain.cache import default_cache
    from tensorwise.toolchain.places import cache_dir
    from tensorwise.toolchain.processor import vector_bytes
    from tensorwise.toolchain.threads import available_threads

    name = rng.choice(list(SETTINGS))
    text = (
        mutate.text_of(rng, rng.choice(SETTINGS[name]))
        .replace("\0", "")
        .encode("utf-8", "replace")
        .decode("utf-8", "surrogateescape")[:4000]
    )
    if rng.random() < 0.2:
        text += "\udcff"
    old = os.environ.get(name)
    os.environ[name] = text
    for function in (available_threads, vector_bytes):
        getattr(function, "cache_clear", lambda: None)()
    try:
        return available_threads(), vector_bytes(), default_cache(), cache_dir(), default_path()
    finally:
        if old is None:
            del os.environ[name]
        else:
            os.environ[name] = old


ARGUMENTS = [
    ["tune", "missing.mtx", "--op", "spmm", "--n", "8"],
    ["bench", "missing.mtx", "--op", "spmv"],
    ["run", "missing.tw", "x.npy"],
    ["collect", "missing.mtx", "--op", "spmm", "--device", "null", "--samples", "2"],
    ["collect", "--spool", "missing", "--gather"],
    ["predict", "missing.json"],
    ["store", "info"],
    ["tasks", "info", "missing"],
    ["cache", "info"],
    ["inspect", "missing.mtx"],
    ["calibrate", "missing.mtx", "--op", "spmm"],
    ["model", "info", "missing"],
    ["select", "info", "missing"],
    ["machine"],
    ["--help"],
]


def arguments(rng: random.Random, folder: Path) -> object:
    """The command line: exit status 0, 1 or 2, and never a traceback."""
    from typer.testing import CliRunner

    from tensorwise.front.cli import app

    words = list(rng.choice(ARGUMENTS))
    if words[0] not in ("store", "machine", "cache", "--help") or rng.random() < 0.5:
        at = rng.randrange(len(words))
        words[at] = mutate.text_of(rng, words[at])[:3000]
    if rng.random() < 0.3:
        words.insert(
            rng.randrange(len(words) + 1),
            rng.choice(("--json", "--n", "--threads", "-1", "nan", "--seed", "\udcff", "")),
        )
    if any(word in ("machine", "calibrate") for word in words[:1]) or any(
        Path(word).is_file() for word in words if 0 < len(word) < 200 and "\0" not in word
    ):
        raise InputError("this would measure")
    result = CliRunner().invoke(app, words)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    if result.exit_code not in (0, 1, 2):
        raise AssertionError(f"exit status {result.exit_code}")
    return result.exit_code
