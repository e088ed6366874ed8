"""Commands about this machine: the kernel cache, the devices, the store of measurements."""

from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer

from tensorwise.errors import CompilerError, InputError
from tensorwise.front.terminal import FAILED, INTERRUPTED, command, emit, pairs, progress_bar

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object a line.")]
StorePath = Annotated[
    Path | None,
    typer.Option("--store", help="The store's file, or a folder NAME.parts; default: the user's file."),
]

cache_app = typer.Typer(help="Compiled kernels: what is there; compile, check or remove some.")
store_app = typer.Typer(help="Remembered measurements: what is there; export, import, and merge parts.")


@cache_app.callback(invoke_without_command=True)
@command
def cache_info(context: typer.Context, json: Json = False) -> None:
    """List the contents of the kernel cache."""
    if context.invoked_subcommand is not None:
        return
    from tensorwise.toolchain.cache import default_cache

    info = default_cache().info()
    facts = {
        "path": str(info.root),
        "kernels": info.entries,
        "bytes": info.held_bytes,
        "cap_bytes": info.cap_bytes,
    }
    if json:
        emit(facts)
    else:
        pairs(
            [
                ("folder", info.root),
                ("kernels", info.entries),
                ("size", f"{info.held_bytes / 1e6:.1f} MB of at most {info.cap_bytes / 1e6:.0f} MB"),
            ]
        )


@cache_app.command("warm")
@command
def cache_warm(
    op: Annotated[
        list[str] | None, typer.Option("--op", help="Only this operation; may be repeated.")
    ] = None,
    dtype: Annotated[
        list[str] | None,
        typer.Option("--dtype", help="float32 (default) or float64; may be repeated. With --all: both."),
    ] = None,
    every: Annotated[
        bool,
        typer.Option(
            "--all",
            help="Also narrow dense operands, all modes of mttkrp, tensors of order 4 and 5, float64: many more kernels.",
        ),
    ] = False,
    json: Json = False,
) -> None:
    """Compile the common structures now, once a machine, so that tunings need not: some 160 kernels.

    They are what tunings of spmv, spmm and sddmm (n of 64 and more) and mttkrp (order 3, rank 16) in float32
    try first, whatever the sizes.
    """
    import time

    from tensorwise.front.warm import DTYPES, OPS, warm

    for name, given, known in (("--op", op, OPS), ("--dtype", dtype, DTYPES)):
        for value in given or ():
            if value not in known:
                raise typer.BadParameter(
                    f"{value!r} is not one of {', '.join(known)}", param_hint=f"'{name}'"
                )
    start = time.perf_counter()
    with progress_bar("compiling") as progress:
        kernels, failed = warm(op or OPS, dtype or (DTYPES if every else DTYPES[:1]), every, progress)
    took_s = time.perf_counter() - start
    if json:
        emit({"kernels": kernels, "failed": failed, "seconds": took_s})
    else:
        print(
            f"{kernels} kernels are in the cache ({took_s:.1f} s){f'; {failed} failed to compile' if failed else ''}"
        )
    if failed:
        raise typer.Exit(FAILED)


@cache_app.command("clear")
@command
def cache_clear(json: Json = False) -> None:
    """Remove all compiled kernels."""
    from tensorwise.toolchain.cache import default_cache

    cache = default_cache()
    before = cache.info()
    cache.clear()
    if json:
        emit({"removed_kernels": before.entries, "removed_bytes": before.held_bytes})
    else:
        print(f"{before.entries} kernels removed ({before.held_bytes / 1e6:.1f} MB)")


@cache_app.command("verify")
@command
def cache_verify(json: Json = False) -> None:
    """Check every compiled kernel and remove what is damaged."""
    from tensorwise.toolchain.cache import default_cache

    removed = default_cache().verify()
    left = default_cache().info().entries
    if json:
        emit({"kernels": left, "damaged": [str(path) for path in removed]})
    else:
        print(f"{left} kernels are sound, {len(removed)} were damaged and are removed")


@command
def devices(
    measure: Annotated[
        bool, typer.Option("--measure", help="Also measure bandwidth and arithmetic (seconds).")
    ] = False,
    threads: Annotated[int | None, typer.Option("--threads", min=1, max=1024, help="For --measure.")] = None,
    json: Json = False,
) -> None:
    """Show the processor, compiler and libraries that kernels are generated for and measured on."""
    from tensorwise.device.hardware import described
    from tensorwise.device.host import host
    from tensorwise.toolchain.compiler import find_compiler
    from tensorwise.toolchain.threads import available_threads

    facts = host()
    usable = available_threads()
    found: dict[str, Any] = {
        "cpu": facts.cpu,
        "host_id": facts.id,
        "physical_cores": facts.physical_cores,
        "logical_cores": facts.logical_cores,
        "threads": usable,
        "l1d_bytes": facts.l1d_bytes,
        "l2_bytes": facts.l2_bytes,
        "l3_bytes": facts.l3_bytes,
        "memory_bytes": facts.memory_bytes,
        "os": facts.os,
        "compiler": None,
        "libraries": _libraries(),
        "described": list(described()),
    }
    problem = None
    try:
        compiler = find_compiler()
        found["compiler"] = {
            "command": " ".join(compiler.command),
            "kind": compiler.kind,
            "version": compiler.version,
            "flags": " ".join(compiler.flags),
            "id": compiler.id,
        }
    except CompilerError as error:
        problem = str(error)
    if measure:
        from tensorwise.device.roofline import roofline

        peak = roofline(threads or usable)
        found["roofline"] = {
            "threads": peak.threads,
            "bandwidth_bytes_per_s": dict(peak.bandwidth),
            "flop_per_s": dict(peak.flops),
            "provisional": peak.provisional,
        }
    if json:
        emit(found)
        return
    caches = ", ".join(
        f"{name} {size / 1024:.0f} KiB"
        for name, size in (("L1", facts.l1d_bytes), ("L2", facts.l2_bytes), ("L3", facts.l3_bytes))
        if size
    )
    rows: list[tuple[str, object]] = [
        (
            "cpu",
            f"{facts.cpu}, {facts.physical_cores} cores ({facts.logical_cores} logical), {usable} threads usable",
        ),
        ("caches", caches),
        ("memory", f"{facts.memory_bytes / 2**30:.1f} GiB"),
        ("system", facts.os),
    ]
    if found["compiler"]:
        rows += [("compiler", found["compiler"]["version"]), ("flags", found["compiler"]["flags"])]
    else:
        rows += [("compiler", f"none: {' '.join(str(problem).split())}")]
    rows += [(name, version or "not installed") for name, version in found["libraries"].items()]
    rows.append(("described", ", ".join(found["described"])))
    if measure:
        rows += [
            (f"{level} bandwidth", f"{rate / 1e9:.1f} GB/s, {peak.threads} threads")
            for level, rate in peak.bandwidth.items()
        ]
        rows += [(name, f"{rate / 1e9:.1f} Gflop/s") for name, rate in peak.flops.items()]
        if peak.provisional:
            rows.append(("provisional", "measured beside other processes; true peaks may be higher"))
    pairs(rows)


def _libraries() -> dict[str, str | None]:
    """Versions of the libraries whose kernels can be candidates; None for one that is not installed."""
    from importlib.metadata import PackageNotFoundError, version

    from tensorwise.device.library import LIBRARY

    found: dict[str, str | None] = {}
    for name, cls in LIBRARY.items():
        found[name] = None
        if cls.installed():
            try:
                found[name] = version(cls.package)
            except PackageNotFoundError:
                found[name] = "installed"
    return found


@store_app.callback(invoke_without_command=True)
@command
def store_info(context: typer.Context, store: StorePath = None, json: Json = False) -> None:
    """List the measurements in the store."""
    context.obj = store
    if context.invoked_subcommand is not None:
        return
    from tensorwise.device.device import STATUSES
    from tensorwise.store.reading import open_store
    from tensorwise.store.store import Store, default_path

    path = store or default_path()
    facts: dict[str, Any] = {"path": str(path), "records": 0, "bytes": 0, "statuses": {}}
    if path.exists():
        with open_store(path) as opened:
            if isinstance(opened, Store):
                counts = {status: opened.count(status=status) for status in STATUSES}
                facts |= {"records": len(opened), "bytes": path.stat().st_size}
            else:
                counts = dict(Counter(record.status for record in opened))
                facts |= {"records": len(opened), "bytes": opened.num_bytes, "parts": opened.num_parts,
                          "jobs": len(opened.jobs())}  # fmt: skip
            facts["statuses"] = {status: counts[status] for status in STATUSES if counts.get(status)}
    if json:
        emit(facts)
    else:
        rows: list[tuple[str, object]] = [("file", path), ("records", facts["records"])]
        rows += [("size", f"{facts['bytes'] / 1e6:.2f} MB")]
        rows += [(name, facts[name]) for name in ("parts", "jobs") if name in facts]
        rows += list(facts["statuses"].items())
        pairs(rows)


@store_app.command("export")
@command
def store_export(
    context: typer.Context,
    path: Annotated[Path, typer.Argument(metavar="FILE", help="What to write: .parquet, else JSON lines.")],
    json: Json = False,
) -> None:
    """Write all records to a file: JSON lines, or compact Parquet with a datasheet (.md) beside it."""
    from tensorwise.store.datasheet import Datasheet
    from tensorwise.store.lines import write_lines
    from tensorwise.store.parquet import SUFFIX, write_records
    from tensorwise.store.reading import open_store
    from tensorwise.store.store import Store, default_path
    from tensorwise.writing import replacing

    source = context.obj or default_path()
    if not source.exists():
        raise InputError(f"{source}: there is no store yet; tune something, or name one with --store")
    with open_store(source) as opened:
        if path.suffix == SUFFIX:
            sheet = Datasheet()
            count = write_records(path, sheet.watch(opened))
            with replacing(path.with_suffix(".md")) as page:
                page.write(sheet.text(path.stem).encode())
        else:
            count = opened.export(path) if isinstance(opened, Store) else write_lines(path, opened)
    if json:
        emit({"exported": count, "path": str(path)})
    else:
        print(f"{count} records written to {path}")


@store_app.command("import")
@command
def store_import(
    context: typer.Context,
    path: Annotated[
        Path, typer.Argument(metavar="FILE", help="What `export` wrote, of either kind, or a log of TenSet.")
    ],
    device: Annotated[
        str | None,
        typer.Option(
            "--device", help="Of a log of TenSet: whose times these are; default: its folder's name."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Add the records of a file that `export` wrote, or of TenSet; those already there are skipped."""
    from tensorwise.store.exchange import import_jobs
    from tensorwise.store.lines import read_lines
    from tensorwise.store.parquet import SUFFIX, read_records
    from tensorwise.store.reading import open_store
    from tensorwise.store.store import Store
    from tensorwise.store.tenset import looks_like_tenset, tenset_records

    if not path.is_file():
        what = "is no regular file" if path.exists() else "does not exist"
        raise InputError(f"{path}: {what}; expected a file that `tensorwise store export` wrote")
    foreign = path.suffix != SUFFIX and looks_like_tenset(path)
    if device is not None and not foreign:
        raise InputError(f"--device is for logs of TenSet; the records of {path} say whose they are")
    with open_store(context.obj) as opened:
        if foreign:
            records = tenset_records(path, device or path.resolve().parent.name)
        else:
            records = read_records(path) if path.suffix == SUFFIX else read_lines(path)
        if not isinstance(opened, Store):
            count = import_jobs(opened, records)
        elif foreign or path.suffix == SUFFIX:
            count = opened.append_all(records)
        else:
            count = opened.import_(path)
    if json:
        emit({"imported": count, "path": str(opened.path)})
    else:
        print(f"{count} new records in {opened.path}")


@store_app.command("compact")
@command
def store_compact(context: typer.Context, json: Json = False) -> None:
    """Merge small files of a folder NAME.parts, also while drivers append. Ctrl-C keeps what is merged."""
    from tensorwise.store.parts import FOLDER_SUFFIX, PartStore, is_part_store

    path = context.obj
    if path is None or not path.exists() or not is_part_store(path):
        raise InputError(
            f"{path or 'the default store'}: is no folder of parts, which alone can be merged; expected --store "
            f"NAME{FOLDER_SUFFIX}"
        )
    with PartStore(path) as opened, progress_bar("merging") as progress:
        before, merged = opened.num_parts, 0

        def observe(done: int, total: int) -> None:
            nonlocal merged
            merged = done
            progress(f"{done} of {total} parts", done / total)

        interrupted = False
        try:
            merged = opened.compact(observe=observe)
        except KeyboardInterrupt:
            interrupted = True
        after = opened.num_parts
    if json:
        emit({"path": str(path), "merged": merged, "parts_before": before, "parts": after})
    else:
        print(f"{merged} of {before} parts were merged; {after} are in {path}")
        if merged:
            print("the files that they replace are removed by the next merge, so that readers can finish")
    if interrupted:
        raise typer.Exit(INTERRUPTED)
