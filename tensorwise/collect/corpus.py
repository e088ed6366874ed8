"""Real patterns on disk: a manifest, folders or single files, and their division by family.

A family says where patterns come from: finite elements, pruned networks, social graphs. Patterns of one family resemble
each other, and an augmented pattern resembles its original; a model that has seen one must not be tested on the other.
So whole families go into training, validation or test, and an augmented pattern is of its original's family.
"""

import csv
import io
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final, final

from tensorwise.collect.augment import Augmentation
from tensorwise.errors import InputError
from tensorwise.ids import file_id
from tensorwise.moved import forward_names
from tensorwise.reading import odd_kind, open_regular, reason
from tensorwise.tensor.entries import Entries
from tensorwise.tensor.files import read

__getattr__ = forward_names(
    __name__, {"split_families": "tensorwise.store.split", "PARTS": "tensorwise.store.split"}
)
MANIFEST: Final = "MANIFEST.csv"
"""In a folder, the list that counts instead of the files themselves."""
KINDS: Final = (".mtx", ".mtx.gz", ".tns", ".tns.gz", ".npz", ".bsp.h5", ".h5")
"""Endings of the files taken from a folder without a list."""


@final
@dataclass(frozen=True)
class Pattern:
    """A sparsity pattern in a file.

    Attributes:
        name: short; in an augmented pattern's name it stands before the ``~``.
        path: the file.
        family: patterns of one family are never divided between training and test.
        order: number of modes.
        nnz: stored entries; None where only reading the file would tell.
    """

    name: str
    path: Path
    family: str
    order: int
    nnz: int | None = None

    @cached_property
    def digest(self) -> str:
        """Id of the file's bytes: another file of the same name is another pattern."""
        _check_regular(self.path)
        return file_id(self.path)


def read_pattern(path: str | os.PathLike[str], change: Augmentation | None = None) -> Entries:
    """Read the entries of ``path`` in float32 (of complex values the real parts) and augment them.

    Raises:
        InputError: the file cannot be read, or the augmentation does not fit it.
    """
    try:
        entries = read(path, "float32")
    except InputError as error:
        if "complex" not in str(error):
            raise
        entries = read(path, "float32", part="real")
    return entries if change is None else change.apply(entries)


def patterns(sources: Sequence[str | os.PathLike[str]], left_out: list[str] | None = None) -> list[Pattern]:
    """Return the patterns of ``sources``, smallest first where sizes are known, then by name.

    Args:
        sources: each a manifest (``.csv`` with columns ``name``, ``file``, ``order``, ``nnz`` and ``group``,
            which is the family; paths are relative to it), a folder (its ``MANIFEST.csv`` if it has one, else all
            matrix and tensor files in and below it) or a file. The family of a file that no manifest names is
            the name of its folder, of a link the folder that it is in.
        left_out: receives why files in folders are left out that cannot be read; None: the first one is an InputError.

    Raises:
        InputError: nothing is there, a manifest lacks a column, or two patterns have one name.
    """
    found = [pattern for source in sources for pattern in _patterns_of(Path(source), left_out)]
    if not found:
        raise InputError(f"no matrix or tensor is in {', '.join(map(str, sources)) or 'no source'}")
    twice = [name for name, count in Counter(pattern.name for pattern in found).items() if count > 1]
    if twice:
        where = ", ".join(str(pattern.path) for pattern in found if pattern.name == twice[0])
        raise InputError(
            f"{len(twice)} names are given twice, such as {twice[0]!r} ({where}); rename one, or leave it out"
        )
    return sorted(found, key=lambda pattern: (pattern.nnz or 0, pattern.name))


def _patterns_of(source: Path, left_out: list[str] | None) -> Iterator[Pattern]:
    if source.is_dir():
        if (source / MANIFEST).is_file():
            yield from _listed(source / MANIFEST)
            return
        for path in sorted(source.rglob("*")):
            if (
                path.name.lower().endswith(KINDS)
                and (path.is_file() or left_out is not None)
                and not path.is_dir()
            ):
                try:
                    _check_regular(path)
                    yield _single(path)
                except InputError as error:
                    if left_out is None:
                        raise
                    left_out.append(str(error))
    elif source.suffix == ".csv":
        yield from _listed(source)
    elif source.is_file():
        yield _single(source)
    else:
        what = "is no regular file" if source.exists() else "does not exist"
        raise InputError(f"{source}: {what}; expected a matrix or tensor file, a folder or a manifest (.csv)")


def _check_regular(path: Path) -> None:
    """Raise InputError for a pipe, which would be waited for, a device, and what is not there."""
    try:
        what = odd_kind(path.stat())
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({reason(error)})") from error
    if what:
        raise InputError(f"{path}: it is {what}; expected a regular file")


def _single(path: Path) -> Pattern:
    kind = next((kind for kind in KINDS if path.name.lower().endswith(kind)), "")
    # A tensor's order is in its first line only; the file name's suffix identifies a matrix.
    order = read(path).order if kind.startswith(".tns") else 2
    name = path.name[: len(path.name) - len(kind)] if kind else path.name
    folder = Path(
        os.path.abspath(path)
    ).parent  # as given: a link in the folder of a family is of that family
    return Pattern(name, path.resolve(), folder.name, order)


def _listed(manifest: Path) -> Iterator[Pattern]:
    wanted = ("name", "file", "order", "nnz", "group")
    try:
        with io.TextIOWrapper(open_regular(manifest), encoding="utf-8", newline="") as file:
            table = csv.DictReader(file)
            if missing := [column for column in wanted if column not in (table.fieldnames or ())]:
                raise InputError(
                    f"{manifest}: lacks the columns {', '.join(missing)}; expected {', '.join(wanted)}"
                )
            for row in table:
                path = (manifest.parent / row["file"]).resolve()
                yield Pattern(row["name"], path, row["group"], int(row["order"]), int(row["nnz"]))
    except OSError as error:
        raise InputError(f"{manifest}: cannot be read ({error.strerror or error})") from error
    except (ValueError, TypeError, csv.Error) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"{manifest}: malformed row ({error}); order and nnz must be whole numbers"
        ) from error
