"""Write benchmarks/README.md: each script with its claim, its command and its last result.

    python benchmarks/summary.py [--check]

Claims and commands are read from the scripts' docstrings, results from ``benchmarks/results``. With --check
nothing is written, and the exit status is 1 when the file, docs/claims.md, the README's table or its picture,
or docs/benchmark-history.md or its picture is not up to date.
"""

import argparse
import ast
import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
WRITERS = (HERE.parent / "docs" / "claims.py", HERE / "everyday" / "bars.py", HERE / "quick" / "draw.py")
"""Scripts that write other pages and pictures of the same results: ``--check`` runs theirs."""
SHARED = {
    "bench.py",
    "corpus.py",
    "digests.py",
    "generated.py",
    "held_out.py",
    "pages.py",
    "scattering.py",
    "summary.py",
}
STALE = tomllib.loads((HERE.parent / "experiments" / "stale.toml").read_text(encoding="utf-8"))["stale"]
"""Results whose inputs are not those of today, or were not recorded -> why."""
EVERYDAY = ("blocks.py", "regret.py", "overhead.py", "update.py", "clients.py", "gpu.py", "prebuilt.py")
"""Scripts of ``everyday`` that have a claim; the other files there are their parts."""
HEAD = """# Benchmarks

Each script says its claim first and writes its figures to `results/`. Run them on a machine that does nothing else: on a
shared one the rounds that others disturb are repeated, but medians still drift. Runs on the corpus go on
where they were stopped.
This page is written by `python benchmarks/summary.py`.
"""


def scripts() -> list[Path]:
    """Return the scripts that have a claim."""
    found = [
        *HERE.glob("*.py"),
        *HERE.glob("kernels/run.py"),
        HERE / "quick" / "run.py",
        HERE / "collection" / "simulate.py",
        *HERE.glob("robustness/*.py"),
        *(HERE / "everyday" / name for name in EVERYDAY),
    ]
    return sorted(path for path in found if path.exists() and path.name not in {*SHARED, "__init__.py"})


def parts(path: Path) -> tuple[str, str, str]:
    """Return claim, command and the rest of a script's docstring."""
    text = ast.get_docstring(ast.parse(path.read_text())) or ""
    claim, command, rest = [], "", []
    for paragraph in text.split("\n\n"):
        if paragraph.startswith("    python "):
            command = command or paragraph.strip()
        elif command:
            rest.append(paragraph)
        else:
            claim.append(paragraph)
    return "\n\n".join(claim), command, "\n\n".join(rest)


def result(path: Path) -> str:
    """Return the last result of a script, and those of other machines (``NAME-intel.json``), as Markdown."""
    if (path.parent / "history.jsonl").exists():
        return "Results are in the [benchmark history](../docs/benchmark-history.md)."
    name = path.parent.name if path.name == "run.py" else path.stem
    own = path.parent / "results" / f"{name}.json"
    file = own if own.exists() else HERE / "results" / f"{name}.json"
    if not file.exists():
        beside = path.with_suffix(".json")  # of `.ci/long`, too long to tell
        return (
            f"Last result: [{beside.name}]({beside.relative_to(HERE)})."
            if beside.exists()
            else "No result is kept."
        )
    others = sorted(file.parent.glob(f"{name}-*.json"))
    return "\n\n".join(_described(one) for one in (file, *others))


def _described(file: Path) -> str:
    """Describe a file of results: one of the script, or one of another machine, whose name says so."""
    held = json.loads(file.read_text())
    lines = [f"- {line}" for line in held.get("summary", [])] or _plain(held)
    if reason := STALE.get(file.relative_to(HERE.parent).as_posix()):
        lines.insert(0, f"- stale: {reason}")
    machine = held.get("machine", {}).get("processor") or held.get("processor")
    settings = ", ".join(f"{name} {value}" for name, value in held.get("settings", {}).items())
    where = ", ".join(filter(None, (machine, settings)))
    holds = {True: "The claim **holds**", False: "The claim **does not hold**"}.get(
        held.get("holds"), "Last result"
    )
    return "\n".join(
        [f"{holds} ([figures]({file.relative_to(HERE)})){f': {where}' if where else ''}", "", *lines]
    )


def _plain(held: dict[str, Any]) -> list[str]:
    """Describe result files that have no summary."""
    rows = held.get("results")
    if isinstance(rows, list) and rows and "holds" in rows[0]:
        missed = [
            f"{row.get('matrix', '')} {row.get('format', '')}".strip() for row in rows if not row["holds"]
        ]
        return [
            f"- {len(rows) - len(missed)} of {len(rows)} within their limits"
            + (f"; not: {', '.join(missed)}" if missed else "")
        ]
    flat: dict[str, Any] = {}
    for name, value in held.items():
        flat |= {f"{name}: {k}": v for k, v in value.items()} if isinstance(value, dict) else {name: value}
    shown = {k: v for k, v in flat.items() if isinstance(v, int | float) and not isinstance(v, bool)}
    return [f"- {', '.join(f'{name} {value}' for name, value in shown.items())}"] if shown else []


def page() -> str:
    """Return the text of README.md."""
    sections = [HEAD]
    for path in scripts():
        claim, command, rest = parts(path)
        name = path.relative_to(HERE)
        sections.append(
            f"## [{name}]({name})\n\n{claim}\n\n```sh\n{command}\n```\n\n{rest}\n\n{result(path)}\n"
        )
    return "\n".join(sections)


def main() -> None:
    """Write the page, or compare."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true")
    target = HERE / "README.md"
    if parser.parse_args().check:
        others = [subprocess.run([sys.executable, one, "--check"], check=False).returncode for one in WRITERS]
        sys.exit(0 if target.exists() and target.read_text() == page() and not any(others) else 1)
    target.write_text(page())


if __name__ == "__main__":
    main()
