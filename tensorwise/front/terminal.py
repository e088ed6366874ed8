"""What every command shares: one line for an error, exit statuses, JSON lines, progress."""

import contextlib
import functools
import json
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn, ParamSpec, TypeVar

import typer

from tensorwise.errors import TensorwiseError

FAILED, INTERRUPTED = 1, 130
FIRST_LINE_S, LONGEST_WAIT_S = 10.0, 300.0
"""Without a terminal: seconds before the first line of progress, so that short commands print none, and the longest
interval between two lines, so that a job of hours keeps a short log."""

P = ParamSpec("P")
R = TypeVar("R")


def command(function: Callable[P, R]) -> Callable[P, R]:
    """Turn what a command raises into one line on standard error and an exit status."""

    @functools.wraps(function)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except TensorwiseError as error:
            fail(str(error))
        except BrokenPipeError:  # as of `tensorwise ... | head -1`: nobody listens any more
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(FAILED) from None
        except OSError as error:
            fail(f"{error.filename}: {error.strerror}" if error.filename and error.strerror else str(error))
        except MemoryError as error:
            fail(
                f"not enough memory{f' ({error})' if str(error) else ''}; free some, or use a smaller operand"
            )
        except KeyboardInterrupt:
            fail("interrupted", INTERRUPTED)

    return guarded


def fail(message: str, status: int = FAILED) -> NoReturn:
    """Print ``message`` in one line and end the command."""
    typer.echo(f"tensorwise: {' '.join(message.split())}", err=True)
    raise typer.Exit(status) from None


def warn(message: str) -> None:
    """Print ``message`` on standard error, where it does not disturb the output."""
    typer.echo(f"tensorwise: {' '.join(message.split())}", err=True)


def emit(line: Mapping[str, Any]) -> None:
    """Print one JSON object as a line; numbers that JSON has not (inf, nan) become null."""
    print(json.dumps(finite(line), allow_nan=False), flush=True)


def finite(value: Any) -> Any:
    """Return ``value`` of JSON types, with null for each number that is not finite.

    >>> finite({"a": float("inf"), "b": [1.5, float("nan")]})
    {'a': None, 'b': [1.5, None]}
    """
    if isinstance(value, Mapping):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    return value


def pairs(rows: Sequence[tuple[str, object]]) -> None:
    """Print names and values in two columns."""
    width = max((len(name) for name, _ in rows), default=0)
    for name, value in rows:
        print(f"{name:<{width}}  {value}")


@contextlib.contextmanager
def progress_bar(what: str) -> Iterator[Callable[[str, float], None]]:
    """Show progress on standard error: a bar on a terminal, elsewhere a line from time to time.

    Args:
        what: the work, such as ``collecting``.

    Yields:
        a function of the current step and the share of the work that is done, 0 to 1.
    """
    if not sys.stderr.isatty():
        with _progress_lines(what) as tell:
            yield tell
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[now]}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=1.0, now="")
        yield lambda now, share: bar.update(task, completed=share, now=now)


@contextlib.contextmanager
def _progress_lines(what: str) -> Iterator[Callable[[str, float], None]]:
    """Print a line after FIRST_LINE_S, then at intervals that double, up to LONGEST_WAIT_S.

    A thread prints, so that a long step without news shows the elapsed time too.
    """
    news, ended, start = ["", 0.0], threading.Event(), time.monotonic()

    def report() -> None:
        wait_s = FIRST_LINE_S
        while not ended.wait(wait_s):
            now, share = news
            parts = [f"{share:.0%} done" if share else "", str(now)]
            about = ", ".join(part for part in parts if part)
            try:
                warn(f"{what}, {time.monotonic() - start:.0f} s{': ' if about else ''}{about}")
            except (OSError, ValueError):  # nobody reads standard error any more
                return
            wait_s = min(2 * wait_s, LONGEST_WAIT_S)

    def tell(now: str, share: float) -> None:
        news[:] = now, share

    thread = threading.Thread(target=report, name="progress", daemon=True)
    thread.start()
    try:
        yield tell
    finally:
        ended.set()
        thread.join()
