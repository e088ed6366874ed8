"""Ledger: a folder in which the drivers of a collection write who runs which job, and what became of it.

    NAME.jsonl  one append-only journal a driver: {"claim": JOB} before a job, {"job": JOB, "error": text} where it cannot
                be run, {"job": JOB, "lost": text} where its worker died or hung, {"beat": N} now and then
    NAME.lock   held by the driver as long as it lives: other drivers on its machine see immediately that it died

No clock is compared between machines: a driver elsewhere is taken for dead when its journal did not grow for a lease, as
seen here. Nobody but its driver writes to a journal, a line is written in one call, and counts when it is whole. Two drivers
that claim a job at the same moment may both run it; the store takes the first result.
"""

import contextlib
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final

from tensorwise.errors import InputError, StoreError
from tensorwise.reading import MOST_BYTES, open_regular, parse_json, printable, reason
from tensorwise.system import try_lock
from tensorwise.toolchain.places import boot_id

LEASE_S: Final = 600.0
"""A driver whose journal did not grow for so long, as seen by another, is taken for dead: it beats ten times as often,
and network file systems show a change within a minute."""
BEAT_S: Final = 60.0
"""Seconds between two lines of a journal, at most."""


class Ledger:
    """The journals of a folder. Reading goes on where it stopped.

    Args:
        journals: the folder, made if absent.
    """

    def __init__(self, journals: Path) -> None:
        self.journals = journals
        self.journals.mkdir(parents=True, exist_ok=True)
        self.damaged = 0
        """Lines that were not whole, as of drivers that were killed while they wrote."""
        self.claims: dict[str, set[str]] = {}
        """Job id -> drivers that said they would run it."""
        self.claimed_at: dict[str, float] = {}
        """Job id -> ``time.monotonic()`` when its last claim was read here."""
        self.failed: dict[str, str] = {}
        """Job id -> why it cannot be run."""
        self.lost: dict[str, list[str]] = {}
        """Job id -> what was said each time that its worker died or hung; it is still to be done."""
        self.unread: dict[str, str] = {}
        """Journals that could not be read, and why; they are tried again each time."""
        self._read: dict[str, int] = {}
        self._grew: dict[str, float] = {}
        self._hosts: dict[str, str] = {}
        self._dead: set[str] = set()
        """Drivers of this machine that have ended, and those whose journal is gone."""

    @contextlib.contextmanager
    def hold(self, driver: str) -> Iterator[None]:
        """Be a driver of this name; others on this machine see when the block, or the process, ends.

        Raises:
            StoreError: another process is a driver of this name.
        """
        with open(self.journals / f"{driver}.lock", "ab") as lock:
            try:
                if not try_lock(lock.fileno()):
                    journal = printable(str(self._journal(driver)))
                    raise StoreError(
                        f"another process writes to {journal}; choose another name than {driver!r}"
                    )
            except OSError:  # a file system without locks: others go by the lease
                self.append(driver, {"host": ""})
            else:
                self.append(driver, {"host": boot_id()})
            yield

    def remove(self, driver: str) -> None:
        """Remove the journal of a driver that has nothing more to say."""
        for path in (self._journal(driver), self.journals / f"{driver}.lock"):
            path.unlink(missing_ok=True)

    def remove_dead(self) -> None:
        """Remove the journals of drivers that died on this machine; not for ledgers whose drivers come back by name."""
        for driver in self._dead & self._hosts.keys():
            self.remove(driver)
            del self._hosts[driver]

    def append(self, driver: str, *lines: dict[str, Any]) -> None:
        """Add lines to the driver's journal; they are on the disk when this returns."""
        path = self._journal(driver)
        try:
            append_text(path, "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))
        except OSError as error:
            raise StoreError(
                f"{path}: results cannot be written to it ({reason(error)}); mend it, or give the worker another name"
            ) from error

    def refresh(self) -> None:
        """Read what was appended since the last time: ``claims``, ``failed`` and ``lost`` are up to date then."""
        for driver, line in self.lines(self._read):
            self._grew[driver] = time.monotonic()
            self.note(driver, line)
        self._dead = {driver for driver in self._grew if self._has_ended(driver)}

    def note(self, driver: str, line: dict[str, Any]) -> None:
        """Take note of a line."""
        if "host" in line:
            self._hosts[driver] = line["host"]
        elif "claim" in line:
            self.claims.setdefault(line["claim"], set()).add(driver)
            self.claimed_at[line["claim"]] = time.monotonic()
        elif "lost" in line:
            self.lost.setdefault(line["job"], []).append(line["lost"])
            self.claims.get(line["job"], set()).discard(driver)
        elif "error" in line:
            self.failed.setdefault(line["job"], line["error"])

    def rivals(self, job: str, driver: str, lease_s: float) -> set[str]:
        """Return the other drivers that have claimed ``job`` and are alive."""
        claims = self.claims.get(job)
        return (
            {other for other in claims if other != driver and self._is_alive(other, lease_s)}
            if claims
            else set()
        )

    def others(self, driver: str, lease_s: float) -> set[str]:
        """Return the other drivers that are alive."""
        return {other for other in self._grew if other != driver and self._is_alive(other, lease_s)}

    def forget(self, job: str) -> None:
        """Drop the claims of a job that is done."""
        self.claims.pop(job, None)
        self.claimed_at.pop(job, None)

    def lines(self, read: dict[str, int] | None = None) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield (driver, line) of all whole lines, journal by journal; ``read`` remembers how far, in bytes."""
        read = {} if read is None else read
        paths = sorted(self.journals.glob("*.jsonl"))
        for name in self.unread.keys() - {path.name for path in paths}:
            del self.unread[name]
        for gone in read.keys() - {path.stem for path in paths}:
            del read[gone]
        for path in paths:
            try:
                with open_regular(path) as file:
                    file.seek(read.get(path.stem, 0))
                    yield from self._lines(path, file, read)
                self.unread.pop(path.name, None)
            except (OSError, InputError) as error:  # the others are read all the same
                self.unread[path.name] = f"{printable(str(path))}: its results are left out: {reason(error)}"

    def _lines(
        self, path: Path, file: BinaryIO, read: dict[str, int]
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        while text := file.readline(MOST_BYTES + 1):
            if len(text) > MOST_BYTES:
                raise InputError(f"a line is longer than {MOST_BYTES} bytes")
            if not text.endswith(b"\n"):
                break  # being written, or never finished: its writer, if it returns, ends it
            read[path.stem] = read.get(path.stem, 0) + len(text)
            if not text.strip():
                continue
            try:
                line = parse_json(text, "no line of results")
            except InputError:
                line = None
            if _is_line(line):
                yield path.stem, line
            elif line != {}:
                self.damaged += 1

    def _is_alive(self, driver: str, lease_s: float) -> bool:
        return driver not in self._dead and self._grew[driver] > time.monotonic() - lease_s

    def _has_ended(self, driver: str) -> bool:
        """Whether a driver is known to have ended, whatever its lease."""
        if driver not in self._read:
            return True  # it removed its journal
        if not self._hosts.get(driver) or self._hosts[driver] != boot_id():
            return False  # only the kernel that it runs on knows
        try:
            with open(self.journals / f"{driver}.lock", "rb") as lock:
                return try_lock(lock.fileno(), shared=True)
        except OSError:
            return not (self.journals / f"{driver}.lock").exists()

    def _journal(self, driver: str) -> Path:
        return self.journals / f"{driver}.jsonl"


def append_text(path: Path, text: str) -> None:
    """Append whole lines; what a killed process left unfinished is ended first."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        size = os.fstat(descriptor).st_size
        if size and os.pread(descriptor, 1, size - 1) != b"\n":
            text = f"\n{text}"
        data = text.encode()
        while data:
            data = data[os.write(descriptor, data) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _is_line(line: Any) -> bool:
    """Whether this is what a driver writes: a claim, a job and what became of it, its host, or a beat."""
    if not isinstance(line, dict) or not line:
        return False
    said = [line[name] for name in ("claim", "job", "device", "lost", "error", "host") if name in line]
    whole = all(isinstance(one, str) for one in said) and isinstance(line.get("records", []), list)
    of_a_job = any(name in line for name in ("lost", "error", "records"))
    return whole and any(
        name in line for name in (("job",) if of_a_job else ("claim", "job", "host", "beat"))
    )
