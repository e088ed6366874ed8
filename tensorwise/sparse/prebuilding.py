"""Compiling the families of kernels for a level of processors, not for this machine.

    python -m tensorwise.sparse.prepare --for x86-64-v3 --out DIR [--compiler COMMAND]

writes ``DIR/x86-64-v3``. ``TENSORWISE_KERNELS=DIR`` uses it, and the package ``tensorwise-kernels`` holds such folders.
"""

import argparse
import hashlib
import importlib.util
import json
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, Final

from tensorwise.errors import InputError, TensorwiseError
from tensorwise.ids import content_id
from tensorwise.sparse.kernels import ELEMENTS, FAMILIES, KernelFamily
from tensorwise.sparse.prebuilt import MANIFEST, PROCESSOR_LEVELS, ProcessorLevel
from tensorwise.sparse.prepare import kernel_of
from tensorwise.sparse.table import IN_PLACE, sources_digest
from tensorwise.toolchain.cache import write_bundle
from tensorwise.toolchain.compiler import Compiler, describe_compiler
from tensorwise.toolchain.runtime import DRIVER

_TIMEOUT_S: Final = 600.0
"""Time limit of a compiler for one file: zig compiles parts of the C library first."""
_STRIPPED: Final = "-s"


def compiler_for(level: ProcessorLevel, command: str = "") -> Compiler:
    """Return the compiler of a level.

    Args:
        level: of the processors.
        command: a C compiler without flags for a processor; default: ``TENSORWISE_CC``, the package ``ziglang``, gcc.

    Raises:
        CompilerError: it does not answer.
    """
    words = shlex.split(command or os.environ.get("TENSORWISE_CC", ""))
    if not words:
        zig = importlib.util.find_spec("ziglang")
        words = [sys.executable, "-m", "ziglang", "cc"] if zig else ["gcc"]
    is_zig = Path(words[0]).name.startswith("zig") or "ziglang" in words
    return describe_compiler((*words, *(level.zig_flags if is_zig else level.flags)))


def build_level(
    level: ProcessorLevel,
    out: Path,
    command: str = "",
    families: Sequence[KernelFamily] = tuple(FAMILIES.values()),
    elements: Sequence[str] = ELEMENTS,
) -> Path:
    """Compile families of kernels for a level into ``out/LEVEL``, which is replaced; return that folder.

    Args:
        level: of the processors.
        out: folder of levels' folders.
        command: see `compiler_for`.
        families: that are compiled.
        elements: types of elements that are compiled.

    Raises:
        CompilerError: the compiler does not work for this level.
        OSError: the folder cannot be written.
    """
    compiler = compiler_for(level, command)
    compiler = replace(compiler, flags=(*compiler.flags, _STRIPPED))
    folder = out / level.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    shared: dict[str, str] = {}
    for name, routines in (("driver", DRIVER), ("in_place", IN_PLACE)):
        shared[name] = f"tensorwise_{name}.so"  # threadpoolctl finds the second by its name
        compiler.compile(routines.sources, folder / shared[name], _TIMEOUT_S)
    tables: dict[str, dict[str, Any]] = {}
    for family in families:
        rows: dict[str, dict[str, object]] = {}
        for element, index in product(elements, family.indices):
            file, texts = f"{family.name}-{element}-{index}.so", {}
            for shape in family.shapes:
                text, buffers, sizes = kernel_of(shape, element, index, level.register_bytes)
                key = content_id(("prebuilt", level.name, text))
                texts[key] = text
                found: dict[str, object] = {"key": key, "file": file}
                found |= {"buffers": list(buffers), "sizes": list(sizes)}
                rows[f"{element}-{index}-{shape.name}"] = found
            with tempfile.TemporaryDirectory(prefix="tensorwise-level-") as scratch:
                compiler.compile([write_bundle(texts, Path(scratch))], folder / file, _TIMEOUT_S)
        tables[family.name] = {"kernels": rows, **shared}
    made = {
        "level": level.name,
        "sources": sources_digest(),
        "compiler": f"{compiler.kind}: {compiler.version}",
        "flags": [*(level.zig_flags if compiler.kind == "zig" else level.flags), *compiler.flags],
        "features": list(level.features),
        "files": {
            path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.glob("*.so"))
        },
        "tables": tables,
    }
    (folder / MANIFEST).write_text(json.dumps(made, indent=1) + "\n")
    return folder


def main(arguments: Sequence[str]) -> int:
    """Compile a level and print what there is; return the exit status."""
    parser = argparse.ArgumentParser("python -m tensorwise.sparse.prepare", description=__doc__)
    parser.add_argument("--for", dest="level", required=True, choices=PROCESSOR_LEVELS)
    parser.add_argument("--out", type=Path, required=True, help="folder of levels' folders")
    parser.add_argument("--compiler", default="", help="C compiler; default: TENSORWISE_CC, ziglang, gcc")
    parser.add_argument("families", nargs="*", help=f"some of {', '.join(FAMILIES)}; default: all")
    given = parser.parse_args(arguments)
    try:
        if unknown := sorted(set(given.families) - set(FAMILIES)):
            raise InputError(f"there are no kernels {unknown[0]!r}; expected some of {', '.join(FAMILIES)}")
        wanted = [FAMILIES[name] for name in given.families] or list(FAMILIES.values())
        folder = build_level(PROCESSOR_LEVELS[given.level], given.out, given.compiler, wanted)
    except (TensorwiseError, OSError) as error:
        print(f"the kernels cannot be compiled for {given.level}: {error}", file=sys.stderr)
        return 1
    size = sum(path.stat().st_size for path in folder.iterdir())
    print(f"the kernels for {given.level} are in {folder} ({size / 1e6:.2f} MB)")
    return 0
