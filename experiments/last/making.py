"""Patterns of the last sets, made of files of the package index by standard steps. See README.md."""

import ast
import gzip
import hashlib
import io
import re
import tarfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

import numpy as np

from tensorwise.errors import InputError
from tensorwise.tensor.convert import entries_from
from tensorwise.tensor.entries import Entries

CUTOFF: Final = 0.5
"""Nanometres up to which two atoms are in contact."""
RADIUS: Final = 2
"""Pixels up to which neighbours are compared, in both directions, ..."""
ALIKE: Final = 12
"""... and the difference of grey values, of 255, up to which they are alike."""
WORDS: Final = 20_000
"""Most words that are told apart: the first ones met."""
_WORD: Final = re.compile(r"[A-Za-z_]\w+", re.ASCII)
Members = Mapping[str, bytes]
"""Files by their path inside of a package."""


def members(archive: Path, wanted: str, sha256: str) -> Members:
    """Return the files of a wheel or source archive whose paths match, the archive's own folder left out.

    Raises:
        InputError: the archive is another one, or has no such file.
    """
    data = archive.read_bytes()
    if (found := hashlib.sha256(data).hexdigest()) != sha256:
        raise InputError(f"{archive} has the checksum {found}, expected {sha256}: download that version")
    pairs = sorted(_files(archive.name, data))
    inside = {name: text for name, text in pairs if fnmatchcase(name, wanted)}
    if not inside:
        raise InputError(f"{archive} has no file {wanted}")
    return {name: gzip.decompress(text) if name.endswith(".gz") else text for name, text in inside.items()}


def _files(name: str, data: bytes) -> Iterator[tuple[str, bytes]]:
    if name.endswith((".whl", ".zip")):
        with zipfile.ZipFile(io.BytesIO(data)) as packed:
            yield from ((one, packed.read(one)) for one in packed.namelist() if not one.endswith("/"))
        return
    with tarfile.open(fileobj=io.BytesIO(data)) as unpacked:
        for one in unpacked.getmembers():
            file = unpacked.extractfile(one) if one.isfile() else None
            if file is not None:
                yield one.name.partition("/")[2], file.read()


def stoichiometry(files: Members) -> Entries:
    """Metabolites by reactions of an SBML model: an entry where a reaction uses or makes a metabolite."""
    (text,) = (one.decode() for one in files.values())
    numbers: dict[str, int] = {}
    rows, columns = list[int](), list[int]()
    for column, reaction in enumerate(re.findall(r"<reaction\b.*?</reaction>", text, re.DOTALL)):
        for species in re.findall(r'<speciesReference\b[^>]*\bspecies="([^"]+)"', reaction):
            rows.append(numbers.setdefault(species, len(numbers)))
            columns.append(column)
    return _ones((len(numbers), max(columns, default=-1) + 1), rows, columns)


def contacts(files: Members) -> Entries:
    """Atoms by atoms of a GROMACS file that lie within CUTOFF of each other, themselves included."""
    from scipy.spatial import cKDTree

    (text,) = (one.decode() for one in files.values())
    lines = text.splitlines()
    count = int(lines[1])
    places = np.array([[float(line[at : at + 8]) for at in (20, 28, 36)] for line in lines[2 : 2 + count]])
    pairs = cKDTree(places).query_pairs(CUTOFF, output_type="ndarray")
    own = np.arange(count)
    return _ones(
        (count, count),
        np.concatenate([own, pairs[:, 0], pairs[:, 1]]),
        np.concatenate([own, pairs[:, 1], pairs[:, 0]]),
    )


def words(files: Members) -> Entries:
    """Files by words: an entry where a file has a word."""
    numbers: dict[str, int] = {}
    rows, columns = list[int](), list[int]()
    for row, text in enumerate(files.values()):
        for word in dict.fromkeys(_WORD.findall(text.decode("utf-8", "replace"))):
            if word in numbers or len(numbers) < WORDS:
                columns.append(numbers.setdefault(word, len(numbers)))
                rows.append(row)
    return _ones((len(files), len(numbers)), rows, columns)


def trigrams(files: Members) -> Entries:
    """Words by words by words: an entry where the three follow each other in a file."""
    numbers: dict[str, int] = {}
    found = list[list[int]]()
    for text in files.values():
        line = [
            numbers.setdefault(word, len(numbers))
            for word in _WORD.findall(text.decode("utf-8", "replace"))
            if word in numbers or len(numbers) < WORDS
        ]
        found += [line[at : at + 3] for at in range(len(line) - 2)]
    return _ones((len(numbers),) * 3, *np.array(found, np.int64).reshape(-1, 3).T)


def affinities(files: Members) -> Entries:
    """Pixels by pixels of a picture: an entry where near ones are alike."""
    grey = _grey(files)
    number = np.arange(grey.size).reshape(grey.shape)
    steps = [(dy, dx) for dy in range(-RADIUS, RADIUS + 1) for dx in range(-RADIUS, RADIUS + 1)]
    rows, columns = list[np.ndarray](), list[np.ndarray]()
    height, width = grey.shape
    for dy, dx in steps:
        here = np.s_[max(0, -dy) : height - max(0, dy), max(0, -dx) : width - max(0, dx)]
        there = np.s_[max(0, dy) : height + min(0, dy), max(0, dx) : width + min(0, dx)]
        alike = np.abs(grey[here] - grey[there]) <= ALIKE
        rows.append(number[here][alike])
        columns.append(number[there][alike])
    return _ones((grey.size, grey.size), np.concatenate(rows), np.concatenate(columns))


def edges(files: Members) -> Entries:
    """Rows by columns by brightness of a picture, where it changes from one pixel to the next."""
    grey = _grey(files)
    changes = np.abs(np.diff(grey, axis=1)) > ALIKE
    rows, columns = np.nonzero(changes)
    return _ones((*grey.shape, 256), rows, columns, grey[rows, columns])


def calls(files: Members) -> Entries:
    """Functions by functions, by name: an entry where one calls the other."""
    found = list(_calls(files))
    numbers = {name: place for place, name in enumerate(dict.fromkeys(caller for _, caller, _ in found))}
    known = [(numbers[caller], numbers[callee]) for _, caller, callee in found if callee in numbers]
    return _ones((len(numbers),) * 2, *np.array(known, np.int64).reshape(-1, 2).T)


def calls_by_file(files: Members) -> Entries:
    """Functions by functions by files: an entry where one calls the other in a file."""
    found = list(_calls(files))
    numbers = {name: place for place, name in enumerate(dict.fromkeys(caller for _, caller, _ in found))}
    known = [(numbers[caller], numbers[callee], file) for file, caller, callee in found if callee in numbers]
    return _ones((len(numbers), len(numbers), len(files)), *np.array(known, np.int64).reshape(-1, 3).T)


def _calls(files: Members) -> Iterator[tuple[int, str, str]]:
    for file, text in enumerate(files.values()):
        for function in ast.walk(ast.parse(text)):
            if isinstance(function, ast.FunctionDef):
                yield file, function.name, ""  # it has a number, even where it calls nothing
                for node in ast.walk(function):
                    if isinstance(node, ast.Call):
                        callee = getattr(node.func, "attr", getattr(node.func, "id", ""))
                        yield file, function.name, callee


def spins(sites: int) -> Entries:
    """The Hamiltonian of a ring of spins (Heisenberg's): states by states, diagonal and exchanges of unlike neighbours."""
    states = np.arange(2**sites)
    rows, columns = [states], [states]
    for site in range(sites):
        mask = (1 << site) | (1 << (site + 1) % sites)
        unlike = states[~np.isin(states & mask, (0, mask))]
        rows.append(unlike)
        columns.append(unlike ^ mask)
    return _ones((len(states), len(states)), np.concatenate(rows), np.concatenate(columns))


def _grey(files: Members) -> np.ndarray:
    from PIL import Image

    (data,) = files.values()
    return np.asarray(Image.open(io.BytesIO(data)).convert("L"), np.int64)


def _ones(shape: tuple[int, ...], *coordinates: object) -> Entries:
    arrays = tuple(np.asarray(one, np.int64) for one in coordinates)
    merged = entries_from((shape, arrays, np.ones(len(arrays[0]), np.float32)))
    return merged.with_values(np.ones(merged.nnz, np.float32))


WAYS: Final[Mapping[str, Callable[[Members], Entries]]] = {
    "stoichiometry": stoichiometry, "contacts": contacts, "words": words, "trigrams": trigrams,
    "affinities": affinities, "edges": edges, "calls": calls, "calls-by-file": calls_by_file,
}  # fmt: skip
